"""What speaks for a reason, and against it: kinds of evidence, the words of ``weights.toml``.

Example: `if len(rows) > limit:` is the nearest test of the user's own, was False on rank 2 and True on the others as
the counters prove, and reads a value that differs → 'proved counters', 'nearest 1', 'value differs', and so on.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.frames.names import is_rank_name, pattern
from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.even import Even
from hangdoc.diagnosis.reason.judged import Item, Reason, decides
from hangdoc.diagnosis.reason.known import Known, Strength
from hangdoc.diagnosis.reason.relays import LOOPS, handed_on, sources_of
from hangdoc.diagnosis.reason.starts import Sides
from hangdoc.diagnosis.source.evaluate import flag_in, names_in

NOTHING = frozenset(("nothing",))
"""Evidence for that none of them is one."""
BEHIND = "behind, seen"
"""It has decided the outcome of another test, and is seen to differ."""
_DISTANCES = (1, 2, 3, 4, 6, 9)
_PLACES = (1, 2, 3, 5, 9)
_WAYS = ("recorder", "counters", "stacks")
"""Sources that show which way was taken, and not only what is there now."""
_STRENGTHS = {Strength.PROVED: "proved", Strength.MAY: "may", Strength.UNKNOWN: "unknown"}


class Evidence:
    """Of one job's reasons."""

    def __init__(self, known: Known, program: Program, sides: Sides, *, parted: bool) -> None:
        self._known, self._even, self._sides = known, Even(program), sides
        self._followed: set[Item] = set()
        self._calls = "calls part" if parted else "no calls part"

    def of(self, listed: Iterable[Reason]) -> dict[Reason, frozenset[str]]:
        """Of each of them."""
        every = sorted(listed, key=lambda each: each.distance)
        self._followed = {each.item for each in every[:TRIED]}
        tests = [e for e in every if not e.of_library and isinstance(e.item, Predicate) and e.item.kind not in LOOPS]
        places = {test.item: place for place, test in enumerate(tests, 1)}
        chained = self._chained(every)
        return {each: frozenset((*self._kinds(each, places.get(each.item)), *chained[each.item])) for each in every}

    def _chained(self, every: Sequence[Reason]) -> Mapping[Item, set[str]]:
        """Of tests whose outcome another test has decided, and of those others: whether that is seen to differ.

        Example: `if wants_save(used):`, and in that function `if used > limit:` with another `used` on each side → the
        second is 'behind, seen', the first 'handed on, seen'.
        """
        listed = {each.item: each for each in every}
        found: defaultdict[Item, set[str]] = defaultdict(set)
        for each in every:
            item = each.item
            ends = [at for at in each.path if at in listed and isinstance(at, Predicate) and handed_on(at, each)]
            if not ends or not isinstance(item, Predicate):
                continue
            proved = each.strength == Strength.PROVED and each.source in _WAYS
            sets = any(item in sources_of(at, listed) for at in ends)
            seen = proved or sets or (item.kind not in LOOPS and self._reads_what_differs(item))
            found[item].add(BEHIND if seen else "behind")
            for at in ends:
                found[at].add("handed on, seen" if seen else "handed on")
        return found

    def _kinds(self, reason: Reason, place: int | None) -> Iterable[str]:
        item = reason.item
        seen = f"{_STRENGTHS[reason.strength]} {reason.source}".rstrip()
        differs = self._known.values_differ(item)
        yield seen
        yield f"distance {_up_to(reason.distance, _DISTANCES)}"
        if reason.direct:
            yield "direct"
        if reason.of_library:
            yield "library"
        if decides(reason):
            yield "decides"
        if differs:
            yield "value differs, test" if isinstance(item, Predicate) else "value differs, value"
        if isinstance(item, Definition):
            yield f"value {item.kind}"
            yield f"value, {seen}"
            yield f"value, {reason.start.name.lower()}"
            yield f"value, {self._calls}"
            if item in self._followed and self._even.is_even(item):
                yield "even value"
            return
        yield f"test {item.kind}"
        if place is not None:
            yield f"nearest {_up_to(place, _PLACES)}"
        yield from self._of_test(reason, item)

    def _of_test(self, reason: Reason, item: Predicate) -> Iterable[str]:
        names = names_in(item.subject)
        asked = [is_rank_name(name) for name in names]
        if names and all(asked):
            yield "rank alone"
            yield f"rank alone, {'direct' if reason.direct else 'indirect'}"
            yield f"rank alone, {self._calls}"
        elif any(asked):
            yield "rank among"
        if reason.strength == Strength.PROVED:
            yield f"test {item.kind}, proved"
        if item in self._followed and self._even.is_even(item):
            yield "even"
        if item.asks_for_none:
            yield "asks for none"
        if flag_in(item.text):
            yield "flag"
        if not names:
            yield "no names"
        elif all(name.isupper() or name == "__name__" for name in names):
            yield "constants alone"
        if " % " in item.subject:
            yield "remainder"
        if pattern("same_everywhere").search(item.subject):
            yield "same by its words"
        yield from self._truths(item)

    def _reads_what_differs(self, item: Predicate) -> bool:
        """True if a value that goes into it differs; not the count of a loop, in which one may be further on."""
        if item not in self._followed:
            return False
        read = [each for each in self._even.read_by(item) if each.kind != "loop" and not is_rank_name(each.name)]
        return any(self._known.values_differ(each) and not self._even.is_even(each) for each in read)

    def _truths(self, item: Predicate) -> Iterable[str]:
        """How it comes out with what is seen of its names now, on all ranks."""
        ranks = (*self._sides.culprits, *self._sides.others)
        for seen in (self._known.computed(item), self._known.by_values(item)):
            found = {seen.had.get(rank) for rank in ranks} if seen is not None else set()
            if seen is not None and found >= {True, False}:
                yield f"truth not same, {seen.source}"
            elif seen is not None and len(found) == 1 and None not in found:
                yield f"truth same, {seen.source}"


def _up_to(number: float, steps: tuple[int, ...]) -> str:
    """Example: 5 of (1, 3, 6) → '6'; 9 → 'more'."""
    return next((str(step) for step in steps if number <= step), "more")
