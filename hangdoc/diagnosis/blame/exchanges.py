"""An all_to_all whose sizes do not fit: what one rank sends another is not as much as that one expects from it.

A recorder keeps the sizes of each rank's tensors. Of a list of tensors they tell what every pair agreed on; of one
tensor with splits only its sum, so it is seen that a group's sizes do not add up, and not always whose are wrong. What
each rank always gave to that call tells it where the program repeats itself.

Example: ranks 0 and 1 send 5 and 7 elements, and expect 6 and 7 → 12 are sent, 13 expected: no one can say whose 6 it
is; but if rank 1 always gave 8 and 7, and rank 0 what it gives now → rank 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from math import prod

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.blame.precedent import out_of_turn
from hangdoc.diagnosis.bounds import COMPARED, FEWEST, TRIED
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import Confidence
from hangdoc.model.operations import operation
from hangdoc.model.wording import ranks_text

_Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class Given:
    """What a rank passes to an exchange: the sizes that it sends and those that it expects."""

    sent: _Sizes
    expected: _Sizes

    @property
    def sums(self) -> tuple[int, int]:
        """(elements sent, elements expected)."""
        return sum(map(prod, self.sent)), sum(map(prod, self.expected))


@dataclass(frozen=True, slots=True)
class UnequalExchange(Explanation):
    """The sizes of an all_to_all do not fit together."""

    history: GroupHistory
    tokens: dict[int, Token]
    given: dict[int, Given]
    pair: tuple[int, int] | None = None
    """(sender, receiver) that disagree, where the sizes of each pair are known."""

    @property
    def clashes(self) -> bool:
        """True if the sizes prove it: the call can never complete."""
        return self.pair is not None or _differ(self.given)


def unequal_exchange(case: Case) -> Blame[UnequalExchange] | Blame[Disagreement] | None:
    """The first exchange that all its members have issued, of sizes that do not fit; None where there is none."""
    if not case.streams:
        return None
    for history in case.histories:
        tokens = _under_way(history)
        given = _given(case, tokens)
        if given is None:
            continue
        found = _by_pairs(case, history, tokens, given) or _by_sums(case, history, tokens, given)
        if found is not None:
            return found
    return None


def _under_way(history: GroupHistory) -> dict[int, Token]:
    """Rank → its token, of the first call that has not completed everywhere and that all members have issued."""
    if history.blind or history.inferred or len(history.members) < 2:
        return {}
    fronts = [number for rank in history.members if (number := history.first_pending(rank))]
    tokens = {rank: history.at(rank, min(fronts)) for rank in history.members} if fronts else {}
    known = {rank: token for rank, token in tokens.items() if token is not None}
    return known if len(known) == len(history.members) else {}


def _given(case: Case, tokens: dict[int, Token]) -> dict[int, Given] | None:
    """What each rank passes; None where they are in other calls, or the sizes are not known."""
    if not tokens or not all(operation(token.op).exchange for token in tokens.values()):
        return None
    found = {}
    for rank, token in tokens.items():
        call = case.programs[rank].journal.calls[token.order]
        longest = max(len(call.input_sizes), len(call.output_sizes))
        if not call.input_sizes or not call.output_sizes or longest >= COMPARED:
            return None
        found[rank] = Given(call.input_sizes, call.output_sizes)
    return found


def _differ(given: dict[int, Given]) -> bool:
    """True if more or less is sent than expected."""
    sums = [each.sums for each in given.values()]
    return sum(sent for sent, _ in sums) != sum(expected for _, expected in sums)


def _by_pairs(
    case: Case, history: GroupHistory, tokens: dict[int, Token], given: dict[int, Given]
) -> Blame[UnequalExchange] | None:
    """The pairs that disagree, where every rank passes a tensor for each other one."""
    members = history.members
    if any(len(each.sent) != len(members) or len(each.expected) != len(members) for each in given.values()):
        return None
    pairs = [
        (a, b)
        for at, a in enumerate(members)
        for to, b in enumerate(members)
        if prod(given[a].sent[to]) != prod(given[b].expected[at])
    ]
    if not pairs:
        return None
    found = UnequalExchange(history, tokens, given, pairs[0])
    common = set.intersection(*(set(pair) for pair in pairs))
    if len(pairs) > 1 and len(common) == 1:
        sure = f"all {len(pairs)} pairs of ranks that disagree have it in common"
        return Blame(found, tuple(common), proved=True, confidence=Confidence.LIKELY, sure=sure)
    odd = _odd_ranks(case, found) or []
    if len(odd) == 1 and odd[0] in pairs[0]:
        return _odd(found, tuple(odd))
    several = len(common) != 2
    sure = "several pairs of ranks disagree" if several else "either of the two may have the wrong size"
    others = sorted({rank for pair in pairs for rank in pair} - {pairs[0][0]})
    return Blame(found, (pairs[0][0],), tuple((rank,) for rank in others), proved=True, sure=sure)


def _by_sums(
    case: Case, history: GroupHistory, tokens: dict[int, Token], given: dict[int, Given]
) -> Blame[UnequalExchange] | Blame[Disagreement] | None:
    """The same where only sums are known."""
    found = UnequalExchange(history, tokens, given)
    if not _differ(given):
        # Equal splits of unequal tensors add up all the same.
        odd = _odd_ranks(case, found) if len({each.sums for each in given.values()}) > 1 else None
        always_equal = odd and all(len(set(sums.values())) == 1 for sums in _before(case, found))
        return _odd(found, tuple(odd)) if odd and always_equal else None
    if len({token.site for token in tokens.values()}) > 1 and all(token.site for token in tokens.values()):
        return _at_other_lines(case, found)
    odd = _odd_ranks(case, found)
    if odd:
        return _odd(found, tuple(odd))
    sure = "of each rank only the sum of its sizes is recorded, and they differ from call to call"
    return Blame(found, (), tuple((rank,) for rank in history.members), proved=True, sure=sure)


def _odd(found: UnequalExchange, ranks: tuple[int, ...]) -> Blame[UnequalExchange]:
    sure = f"{ranks_text(ranks)} alone passed sizes that it had not passed there before"
    if 2 * len(ranks) == len(found.given):
        # The others may be those that should have passed new ones as well.
        others = tuple(rank for rank in found.given if rank not in ranks)
        return Blame(found, ranks, (others,), proved=found.clashes, sure=sure)
    return Blame(found, ranks, proved=found.clashes, confidence=Confidence.LIKELY, sure=sure)


def _odd_ranks(case: Case, found: UnequalExchange) -> list[int] | None:
    """The ranks, fewer than half, whose sizes now are none that they passed at that line before, where all others'
    are; None where sizes are new on many."""
    before = list(_before(case, found))
    if len(before) < FEWEST:
        return None
    new = [rank for rank, each in found.given.items() if all(sums[rank] != each.sums for sums in before)]
    # Of two ranks, the one whose sizes are new is one of half of them.
    return new if new and 2 * len(new) <= len(found.given) else None


def _before(case: Case, found: UnequalExchange) -> Iterator[dict[int, tuple[int, int]]]:
    """Rank → its sums, of the newest calls before that all made at the same line."""
    first, token = next(iter(found.tokens.items()))
    earlier = (
        call.sequence
        for call in reversed(found.history.tokens[first])
        if call.sequence < token.sequence and call.site == token.site
    )
    for number in islice(earlier, TRIED):
        tokens = {rank: found.history.at(rank, number) for rank in found.tokens}
        known = {rank: t for rank, t in tokens.items() if t is not None and t.site == found.tokens[rank].site}
        given = _given(case, known) if len(known) == len(tokens) else None
        if given is not None:
            yield {rank: each.sums for rank, each in given.items()}


def _at_other_lines(case: Case, found: UnequalExchange) -> Blame[Disagreement]:
    """Ranks whose calls at that number come from different lines, of sizes that do not add up: a call is missing, or
    one too many, and they are each other's partner by mistake."""
    by_site: dict[object, list[int]] = {}
    for rank, token in found.tokens.items():
        by_site.setdefault(token.site, []).append(rank)
    sides = sorted((tuple(ranks) for ranks in by_site.values()), key=lambda ranks: (len(ranks), ranks))
    frames = {rank: token.frame or token.stack[0] for rank, token in found.tokens.items()}
    values = {rank: f"{frame.file.rpartition('/')[2]}:{frame.line}" for rank, frame in frames.items()}
    clash = Disagreement("arguments", found.history, found.tokens, values)
    odd = [side for side in sides if out_of_turn(case, clash, side)]
    if len(odd) == 1:
        sure = f"{ranks_text(odd[0])} alone left the order that such calls always had"
        return Blame(clash, odd[0], proved=True, confidence=Confidence.LIKELY, sure=sure)
    return Blame(clash, sides[0], tuple(sides[1:]), proved=True, sure="calls of different lines were paired")


def sums_text(given: Given) -> str:
    """'sends 37 elements and expects 64'."""
    sent, expected = given.sums
    return f"sends {sent:,} elements and expects {expected:,}"
