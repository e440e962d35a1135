"""All ranks wait in one call, each in a round of its own: one of them left the call out in an earlier round.

No history tells of that round. What is left of it: the count of the loop around the call, where a frame on every stack
holds it, and what stands on the way to the call, from the outermost loop on, under which one rank alone left something
behind, ran a line or wrote one. Example: all four ranks wait in the all_reduce of sync(), and

    12  for x, y in batches:
    13      if not self.guard.accepts(model):     # which has counted self.guard.rejected = 1 on rank 2, and 0 elsewhere
    14          continue
    15      self.sync()

→ rank 2, by what accepts() goes by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hangdoc.diagnosis.condition.elsewhere.answers import answers
from hangdoc.diagnosis.condition.elsewhere.left_behind import left_behind
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.condition.elsewhere.written import written_under
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import lines_of, site_of, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.handlers import swallowing
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame, Stack

_MOST_RANKS = 64
"""Each of which is compared with the others; chosen by hand."""


@dataclass(frozen=True, slots=True)
class SkippedRound(Explanation):
    """The culprits left the call out in an earlier round of ``loop``, in which all wait now."""

    at: Frame
    loop: Condition
    conditions: tuple[Condition, ...] = ()
    """Those on the way to the call by which the culprits alone left something behind."""
    shown: dict[str, dict[int, str]] = field(default_factory=dict)
    """Name → rank → value, of what they left behind, or counts the rounds."""


def skipped_round(case: Case) -> Blame[SkippedRound] | None:
    """The blame of the ranks that alone went another way than to the call in some round; None where nothing shows who
    did, or a history tells more."""
    ranks = tuple(sorted(case.activities))
    if case.programs or case.hidden or case.streams or not 1 < len(ranks) <= _MOST_RANKS:
        return None
    stacks = [case.activities[rank].stack for rank in ranks]
    waiting = all(a.kind == ActivityKind.IN_COLLECTIVE and not a.moving for a in case.activities.values())
    lines = {lines_of(site_of(stack)) for stack in stacks}
    way = list(_way(case.sources, stacks[0])) if waiting and len(lines) == 1 else []
    if not way:
        return None
    asked = _asked(case.sources, way)
    alone = {rank: _alone(case, rank, stacks[0], asked) for rank in ranks}
    found = {rank: each for rank, each in alone.items() if each[0]}
    conditions = tuple(dict.fromkeys(each for some, _ in found.values() for each in some))
    shown = {name: values for _, some in found.values() for name, values in some.items()}
    culprits, sure = tuple(found), "that a round left the call out shows in what it left behind"
    counts = _counts(case, way)
    if not culprits and counts:
        culprits, shown = _further_on(counts), counts
        sure = "that a round left the call out shows in what counts the rounds"
    if not culprits or 2 * len(culprits) > len(ranks):
        return None
    others = tuple(rank for rank in ranks if rank not in culprits)
    either = 2 * len(culprits) == len(ranks) and not conditions
    frame, loop = way[0]
    return Blame(
        SkippedRound(user_stack(stacks[0])[0], Condition(loop.condition, frame.file, loop.line), conditions, shown),
        culprits,
        (others,) if either else (),
        confidence=Confidence.POSSIBLE if either else Confidence.LIKELY,
        sure=f"stacks of all ranks seen, their calls not; {sure}",
    )


def _way(sources: Sources, stack: Stack) -> Iterator[tuple[Frame, Guard]]:
    """The guards of the user's on the way to the call, from the outermost loop on, each with its frame."""
    within = False
    for frame in reversed(user_stack(stack)):
        tree = sources.function(frame.file, frame.line)
        for guard in guards(tree, frame.line) if tree is not None else []:
            within = within or (guard.kind == "loop" and not guard.in_header)
            if within:
                yield frame, guard


def _asked(sources: Sources, way: list[tuple[Frame, Guard]]) -> dict[tuple[str, int], bool | None]:
    """(file, line) of the conditions on the way → the truth that leads to the call; of what these go by in functions
    that they ask, and of handlers → None."""
    found: dict[tuple[str, int], bool | None] = {}
    for frame, guard in way:
        if guard.kind in (*CONDITIONS, "match"):
            found[frame.file, guard.line] = guard.taken
            for answer in answers(sources, frame.file, guard.line):
                found.update({(test.file, test.line): None for test in answer.tests})
        if guard.is_tried:
            handlers = (each for each in swallowing(sources, frame) if each.first == guard.line)
            found.update({(frame.file, each.line): None for each in handlers})
    return found


def _alone(
    case: Case, rank: int, stack: Stack, asked: dict[tuple[str, int], bool | None]
) -> tuple[list[Condition], dict[str, dict[int, str]]]:
    """The conditions among ``asked`` at which that rank alone went another way than to the call; and what shows it."""
    sides = (rank,), tuple(sorted(set(case.activities) - {rank}))
    found: dict[Condition, None] = {}
    shown: dict[str, dict[int, str]] = {}
    for left in (*left_behind(case, sides), *ran_alone(case, sides)):
        place = left.file, left.guard.line
        if left.side == 0 and place in asked and asked[place] != left.guard.taken:
            found[Condition(left.guard.condition, *place)] = None
            shown.update({left.name: dict(left.values)} if left.name else {})
    written = written_under(case.sources, case.job.written, [stack], *sides) if case.job.written else []
    for each in written:
        place = each.condition.file, each.condition.line
        if each.ranks == (rank,) and place in asked and asked[place] != each.taken:
            found.setdefault(each.condition)
    return list(found), shown


def _counts(case: Case, way: list[tuple[Frame, Guard]]) -> dict[str, dict[int, str]]:
    """The count of the outermost loop that the ranks are in different rounds of, as name → rank → value; {} where no
    count differs, or none is seen on all."""
    for frame, guard in way:
        for name in guard.rounds if guard.kind == "loop" else ():
            values = case.values.of(frame.file, plain(frame.function), name)
            known = values.keys() == case.activities.keys() and all(v.isdecimal() for v in values.values())
            if known and len(set(values.values())) == 2:
                return {name: values}
    return {}


def _further_on(counts: dict[str, dict[int, str]]) -> tuple[int, ...]:
    """The ranks of the higher count: they have come there with fewer calls."""
    (values,) = counts.values()
    most = max(map(int, values.values()))
    return tuple(rank for rank, value in sorted(values.items()) if int(value) == most)
