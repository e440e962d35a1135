"""Which of several pipelines of one shape did another number of rounds than its siblings.

Ranks that pass messages to each other are a pipeline. A job often runs several replicas of it, and each stage meets its
siblings, the same stages of the other replicas, in calls of the groups that they share. All siblings make the same such
calls in the same order, so the replica that leaves this order differs. Between two replicas the one differs whose own
rounds before were like the other's now.

Example: pipelines (0, 1), (2, 3) and (4, 5); ranks 4 and 5 go on to all_reduce after 3 reduce_scatter, the others come
to a fourth one → ranks 4 and 5 ran fewer rounds.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import pairwise

from hangdoc.diagnosis.calls.history import GroupKey, RankProgram, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.kinds import Confidence

_MOST_RANKS = 1024
"""That are compared; chosen by hand."""
_MOST_CALLS = 2000
"""Of each rank, the newest: as many as a ring has by default."""


@dataclass(frozen=True, slots=True)
class ReplicaDiffers(Explanation):
    """The culprits, the ranks of whole pipelines, made ``mine`` where their siblings made ``theirs``."""

    mine: Token
    theirs: Token
    siblings: tuple[int, ...]
    """The ranks of the other pipelines."""
    rounds: str
    """'fewer' or 'more' where ``theirs`` or ``mine`` repeats calls of the same round before; '' where neither does."""


@dataclass(frozen=True, slots=True)
class _Parting:
    """Two sides of siblings, by the places of their pipelines: what each issued where the other issued another call."""

    sides: tuple[tuple[int, ...], tuple[int, ...]]
    """The smaller side first."""
    calls: tuple[Token, Token]
    rounds: str
    """'fewer' or 'more': what the smaller side ran."""
    odd: int
    """The number of the side whose round is unlike those before; -1: none is known."""


# Its branches are comprehensions over the replicas and the reasons to answer nothing.
def replica_differs(case: Case) -> Blame[ReplicaDiffers] | None:
    """The pipelines that made other calls than their siblings; None where there is one pipeline, where a stage alone
    differs, or where none does."""
    pipelines = _pipelines(case)
    if len(pipelines) < 2:
        return None
    stages = list(zip(*pipelines, strict=True))
    partings = [parting for siblings in stages if (parting := _parting(case, siblings)) is not None]
    if len(partings) < 2 or not any(w.waiter in case.programs for w in case.graph.waits):
        return None
    odd = _odd(partings)
    if odd is None:
        return None
    places, sure, confidence = odd
    first = next(p for p in partings if any({*side} <= {*places} for side in p.sides))
    at = 0 if {*first.sides[0]} <= {*places} else 1
    culprits = tuple(sorted(rank for place in places for rank in pipelines[place]))
    siblings = tuple(sorted({rank for pipeline in pipelines for rank in pipeline} - set(culprits)))
    turned = {"fewer": "more", "more": "fewer"}
    rounds = turned.get(first.rounds, "") if at else first.rounds
    found = ReplicaDiffers(first.calls[at], first.calls[1 - at], siblings, rounds)
    others = (siblings,) if confidence == Confidence.POSSIBLE else ()
    return Blame(found, culprits, others, proved=bool(case.graph.stuck), confidence=confidence, sure=sure)


def _pipelines(case: Case) -> list[tuple[int, ...]]:
    """The sets of ranks that pass messages to each other, if there are several of one size, or else []."""
    seen = sorted(case.seen & case.programs.keys())[:_MOST_RANKS]
    parent = {rank: rank for rank in seen}

    def root(rank: int) -> int:
        while parent[rank] != rank:
            parent[rank] = rank = parent[parent[rank]]
        return rank

    for rank in seen:
        for peer in {message.peer for message in case.programs[rank].journal.point_to_points} & parent.keys():
            parent[root(rank)] = root(peer)
    found: dict[int, list[int]] = {}
    for rank in seen:
        found.setdefault(root(rank), []).append(rank)
    pipelines = [tuple(ranks) for ranks in found.values() if len(ranks) > 1]
    sizes = {len(ranks) for ranks in pipelines}
    return pipelines if len(sizes) == 1 else []


def _parting(case: Case, siblings: tuple[int, ...]) -> _Parting | None:
    """The first place at which the siblings' calls in the groups that they all share differ."""
    programs = [case.programs[rank] for rank in siblings]
    groups = [{program.key(name) for name in program.recording.by_group} for program in programs]
    every = set(siblings)
    shared = {key for key in set.union(*groups) if every <= set(key[1])}
    if not shared:
        return None
    calls = _from_common_start(programs, shared)
    for place in range(max(map(len, calls), default=0)):
        here = {at: sequence[place] for at, sequence in enumerate(calls) if place < len(sequence)}
        by_call: dict[Hashable, list[int]] = {}
        for at, token in here.items():
            by_call.setdefault(_key(token), []).append(at)
        if len(by_call) == 1:
            continue
        if len(by_call) > 2:
            return None
        small, large = sorted(by_call.values(), key=lambda ats: (len(ats), ats))
        mine, theirs = here[small[0]], here[large[0]]
        rounds, odd = _rounds([_key(t) for t in calls[small[0]][:place]], (_key(mine), _key(theirs)))
        return _Parting((tuple(small), tuple(large)), (mine, theirs), rounds, odd)
    return None


# Its branches are comprehensions over the stages' calls.
def _from_common_start(programs: list[RankProgram], groups: set[GroupKey]) -> list[list[Token]]:
    """The siblings' newest calls in those groups. Rings forget at different places: then all begin with the first call
    of a sibling's that all of them still have; [] where there is none."""
    found = []
    for program in programs:
        names = {name for name in program.recording.by_group if program.key(name) in groups}
        places = [at for at, call in enumerate(program.journal.calls) if call.group in names][-_MOST_CALLS:]
        found.append([program.token(at) for at in places])
    if not any(program.journal.forgotten and not program.journal.active_only for program in programs):
        return found
    for start in [calls[0] for calls in found if calls]:
        at = [next((n for n, t in enumerate(c) if _same(t, start)), None) for c in found]
        if None not in at:
            return [calls[first:] for calls, first in zip(found, at, strict=True)]
    return []


def _same(one: Token, other: Token) -> bool:
    return (one.group, one.sequence) == (other.group, other.sequence)


def _key(token: Token) -> Hashable:
    return token.group, token.op, token.sizes, token.site


def _rounds(before: list[Hashable], sides: tuple[Hashable, Hashable]) -> tuple[str, int]:
    """('fewer' where the second side goes on with a call of the same round, 'more' where the first does, else '', the
    side whose round is unlike the ones before or -1).

    Example: after b, a, a, b, a one side goes on with b, the other with a → the first ran fewer, and differs.
    """
    last = {key: at for at, key in enumerate(before)}
    first, second = (last.get(key, -1) for key in sides)
    if first == second:
        return "", -1
    goes_on = 1 if second > first else 0
    again, ending = sides[goes_on], sides[1 - goes_on]
    ends = [at for at, key in enumerate(before) if key == ending]
    usual = {before[a:b].count(again) for a, b in pairwise(ends)}
    rounds = ("more", "fewer")[goes_on]
    if len(usual) != 1:
        return rounds, -1
    return rounds, goes_on if before[ends[-1] :].count(again) >= usual.pop() else 1 - goes_on


def _odd(partings: list[_Parting]) -> tuple[tuple[int, ...], str, Confidence] | None:
    """(places of the pipelines that differ, why these, how sure); None where the stages do not agree on them."""
    # A stage whose siblings did not all come as far shows a part of the sides.
    small, large = max((parting.sides for parting in partings), key=lambda sides: len(sides[0]) + len(sides[1]))
    for one, other in (parting.sides for parting in partings):
        if not ({*one} <= {*small} and {*other} <= {*large}) and not ({*other} <= {*small} and {*one} <= {*large}):
            return None
    if len(small) < len(large):
        return small, f"the {len(large)} other pipelines of the same shape agree", Confidence.LIKELY
    odd = {(small, large)[parting.odd] for parting in partings if parting.odd >= 0 and parting.sides == (small, large)}
    if len(odd) == 1:
        return odd.pop(), "their own rounds before had as many calls as those of the others now", Confidence.LIKELY
    return small, "the data does not show which of the pipelines is right", Confidence.POSSIBLE
