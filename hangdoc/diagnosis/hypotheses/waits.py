"""Who holds the others up, by the wait-for graph of the ranks.

Knots and roots of a wait-for graph as of Chandy, Misra and Haas (1983). A rank of a circle frees the others if it
alone would go on; who waits for a rank of the circle without being in it is only held up.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Sequence

from hangdoc.diagnosis.components import components
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.hypotheses.suspects import Suspects
from hangdoc.diagnosis.state.wait_graph import distinct_waits
from hangdoc.model.kinds import MESSAGES, ActivityKind

SEND_FIRST = "each of its circle sends to the next"
Node = int | tuple[str, int]
"""A rank, or a set of ranks all of which are waited for."""


def by_waits(suspects: Suspects) -> None:
    """The roots, the circle, and who is awaited how."""
    case, graph = suspects.case, suspects.case.graph
    roots = suspects.needs.graph.roots
    suspects.add(roots, "root")
    if len(roots) == 1:
        suspects.add(roots, "sole root")
    suspects.add((rank for rank in graph.stuck if case.activities[rank].kind in MESSAGES), "all in messages")
    sharing = Counter(id(wait.on) for wait in graph.waits)
    awaited: Counter[int] = Counter()
    for wait in distinct_waits(graph.waits):
        awaited.update(dict.fromkeys(wait.on, sharing[id(wait.on)]))
    most = max(awaited.values(), default=0)
    suspects.add((rank for rank, count in awaited.items() if count == most), "most awaited")
    _circle(suspects)


def _circle(suspects: Suspects) -> None:
    case, graph = suspects.case, suspects.case.graph
    # Thousands of ranks share a few sets of ranks that they wait for, so these are nodes as well.
    ahead: defaultdict[Node, list[Node]] = defaultdict(list)
    for wait in graph.waits:
        ahead[wait.waiter].append(("all of", id(wait.on)))
    for wait in distinct_waits(graph.waits):
        ahead["all of", id(wait.on)] += wait.on
    found = [each for each in components(ahead) if len(each) > 1]
    circle = {node for each in found for node in each if isinstance(node, int)}
    beside = tuple(wait for wait in graph.waits if wait.waiter not in circle)
    held_up = {rank for wait in distinct_waits(beside) for rank in wait.on}
    for rank in circle & held_up:
        suspects.add((rank,), "holds up others than its circle")
    messages = {rank for rank in suspects.ranks if case.activities[rank].kind in MESSAGES}
    for waiter in graph.stuck:
        if case.activities[waiter].kind != ActivityKind.IN_COLLECTIVE and len(graph.on(waiter)) == 1:
            (owing,) = graph.on(waiter)
            what = "a message" if waiter in messages else "something"
            suspects.add((owing,), f"owes {what}")
            if waiter in graph.on(owing) and owing not in messages:
                suspects.add((owing,), f"owes {what} in a call")
    for each in found:
        _of_one_circle(suspects, [node for node in each if isinstance(node, int)])


def _of_one_circle(suspects: Suspects, circle: list[int]) -> None:
    """That each of them sends to the next one at one line."""
    case = suspects.case
    waits = [case.activities[rank] for rank in circle]
    to_one = all(each.kind == ActivityKind.SEND and case.graph.on(each.rank) == {each.peer} for each in waits)
    lines = {site_of(stack[:1]) if (stack := user_stack(each.stack)) else () for each in waits}
    if to_one and len(lines) == 1 and () not in lines:
        suspects.add(circle, SEND_FIRST)


def by_effect(suspects: Suspects) -> None:
    """What it would mean if it were these. After all others: it looks at each suspect."""
    case, needs = suspects.case, suspects.needs.graph
    activities = case.activities
    calls = [(wait.waiter, wait.on, False) for wait in case.graph.waits]
    given = [(need.waiter.rank, need.on, need.either) for need in needs.needs]
    frees = _Effect(suspects.ranks, calls, case.graph.movable, case.graph.dissolves if case.graph.stuck else None)
    ends = _Effect(suspects.ranks, given, needs.movable, needs.dissolves if needs.stuck else None)
    for ranks in suspects.every():
        for kind, holds in (
            ("frees all alone", len(ranks) == 1 and frees.of(ranks)),
            ("ends all needs", ends.of(ranks)),
            ("in calls", all(activities[rank].kind == ActivityKind.IN_COLLECTIVE for rank in ranks)),
            ("half of the ranks", 2 * len(ranks) == len(suspects.ranks)),
            ("most ranks", 2 * len(ranks) > len(suspects.ranks)),
        ):
            if holds:
                suspects.add(ranks, kind)


class _Effect:
    """Whether nobody is stuck once some ranks wait for nothing. Of thousands that wait for the same ranks, and for
    which the same ranks wait, each frees the others as any other does: that is asked once."""

    def __init__(
        self,
        ranks: Sequence[int],
        waits: Sequence[tuple[int, tuple[int, ...], bool]],
        movable: frozenset[int],
        dissolves: Callable[[tuple[int, ...]], bool] | None,
    ) -> None:
        """``waits``: (who, for which ranks, whether one of them is enough). ``dissolves``: None where nobody is
        stuck."""
        self._dissolves, self._known = dissolves, dict[tuple[int, ...], bool]()
        sets = {(id(on), either): on for _, on, either in waits}
        waiting: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
        awaited: defaultdict[int, list[int]] = defaultdict(list)
        for waiter, on, either in waits:
            waiting[waiter].append((id(on), either))
        for number, on in enumerate(sets.values()):
            for rank in on:
                awaited[rank].append(number)
        numbers: dict[Hashable, int] = {}
        keys = {rank: (tuple(waiting[rank]), tuple(awaited[rank]), rank in movable) for rank in ranks}
        self._parts = {rank: numbers.setdefault(key, len(numbers)) for rank, key in keys.items()}

    def of(self, ranks: tuple[int, ...]) -> bool:
        """True if all go on once these do."""
        if self._dissolves is None:
            return False
        part = tuple(sorted(self._parts[rank] for rank in ranks))
        if part not in self._known:
            self._known[part] = self._dissolves(ranks)
        return self._known[part]
