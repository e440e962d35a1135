"""The likeliest of the reasons, where no rule has told a condition.

Example: rank 2 waits in the join of a thread that ended under `if number == limit:` (writer.py:16), and nothing shows
what `limit` was → that test, as what likely led there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.nearest import reasons_of, sides_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, OutsideWait
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.reason.even import Even
from hangdoc.diagnosis.reason.judged import WORTH_A_LOOK, Item, Reason, line_of_item
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.spectra import odd_in_spectra
from hangdoc.diagnosis.reason.starts import CULPRITS, Kind
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.state.process import calls_of_threads
from hangdoc.model.diagnosis import Branch
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition, Message, Place, Ranks
from hangdoc.model.process import Stack

_KINDS = {"for": "loop", "while": "loop", "comprehension": "loop", "except": "try", "with": "try", "match": "match"}
"""Kind of a predicate → that of a branch; 'if' of any other."""


def likeliest(case: Case, blame: Blame[Explanation], told: Branch | None) -> tuple[Branch | None, Message]:
    """What the recorders show to be odd, else the likeliest of the reasons; and that in words, (None, '') where neither
    is there. Of a library's test that is ``told``, and that nobody saw to part them, only the former take the place."""
    ways = (_alone_in_spectra, *((_likeliest,) if told is None else ()), _delayed)
    found = (way(case, blame) for way in ways)
    return next((each for each in found if each[0] is not None), (None, ""))


@dataclass(frozen=True, slots=True)
class Likely:
    """The likeliest reason, as a branch and in words. ``stands_out``: it decides about what would end a wait, and was
    seen to differ, or nothing that was seen to differ is half as likely."""

    branch: Branch
    words: Message
    stands_out: bool


def _likeliest(case: Case, blame: Blame[Explanation]) -> tuple[Branch | None, Message]:
    likely = likely_reason(case, blame)
    return (likely.branch, likely.words) if likely is not None else (None, "")


def likely_reason(case: Case, blame: Blame[Explanation]) -> Likely | None:
    """The likeliest of the reasons, if it is likely enough to look at."""
    found = reasons_of(case, blame).reasons if blame.culprits and others_of(case, blame) else ()
    if not found or _share(found) < WORTH_A_LOOK or _lies_ahead(case, blame, found[0].item):
        return None
    first, culprits = found[0], Ranks(blame.culprits)
    item = first.item
    at = Condition(line_of_item(case, item), item.file, item.line)
    near = any(
        each.strength == Strength.PROVED and each.share > first.share / 2
        for each in found[1:]
        if each.item not in first.path
    )
    provides = first.start in (Kind.TOUCHING, Kind.MISSED) and _is_for_the_culprits(case, blame, first)
    stands_out = provides and (first.strength > Strength.UNKNOWN or not near)
    if not isinstance(item, Predicate):
        branch = Branch(at.file, at.line, at.source, "expression")
        return Likely(branch, ["what likely differs is set by ", at], stands_out)
    if _never_came(case, blame, item) or _is_even(case, first):
        return None
    ranks = blame.culprits, others_of(case, blame)
    if item.kind == "ifexp" and not case.execution.is_new((item.file, item.line, item.text), *ranks):
        return None  # it chooses a value, and no way
    if item.kind in ("for", "while") and _is_loop_of_others(case, item, blame):
        return None
    ends_it = provides and not first.outcomes[CULPRITS]
    led: Message = ["what likely led ", culprits, " there is ", at]
    words: Message = ["what ends the wait of ", culprits, " likely depends on ", at] if ends_it else led
    return Likely(Branch(at.file, at.line, at.source, _KINDS.get(item.kind, "if")), words, stands_out)


def _is_for_the_culprits(case: Case, blame: Blame[Explanation], reason: Reason) -> bool:
    """True if what the reason decides about would end the wait of the culprits: they alone wait outside of calls, and
    not at that line itself."""
    waiting = {rank for rank, activity in case.activities.items() if activity.kind != ActivityKind.IN_COLLECTIVE}
    stacks = [case.activities[rank].stack for rank in blame.culprits if rank in waiting]
    return waiting == {*blame.culprits} and reason.at not in {(f.file, f.line) for stack in stacks for f in stack}


def _never_came(case: Case, blame: Blame[Explanation], test: Predicate) -> bool:
    """True if the culprits never came to the test, and it is theirs: of what they wait for outside of calls, others may
    run what they never ran at all, or their children do."""
    if not case.table.never_asked(test, blame.culprits):
        return False
    function = case.program.function(test.file, test.line)
    lines = range(function.line + 1, function.end_line + 1) if function is not None else range(0)
    ran = any(case.table.ran(rank, test.file, line) is True for rank in blame.culprits for line in lines)
    return ran or not isinstance(blame.found, OutsideWait)


def _share(found: Sequence[Reason]) -> float:
    """That of the first of them; of a flag with that of all who ask it.

    Example: 0.42 for `if self.boundary:` of step() and 0.33 for that of context() → 0.75.
    """
    first = found[0].item
    if not first.text.replace(".", "_").isidentifier():
        return found[0].share
    return math.fsum(each.share for each in found if (each.item.file, each.item.text) == (first.file, first.text))


def _alone_in_spectra(case: Case, blame: Blame[Explanation]) -> tuple[Branch | None, Message]:
    """The one test that was recorded to come out more or less often on the culprits, and in words; (None, '')."""
    item = odd_in_spectra(case, sides_of(case, blame)) if case.execution else None
    if item is None or (not isinstance(blame.found, Diverged) and not _leads_there(case, blame, item)):
        return None, ""
    at = Condition(line_of_item(case, item), item.file, item.line)
    said: Message = ["of all that was recorded, ", at, " alone came out otherwise on ", Ranks(blame.culprits)]
    return Branch(at.file, at.line, at.source, _KINDS.get(item.kind, "if")), said


def _leads_there(case: Case, blame: Blame[Explanation], item: Predicate) -> bool:
    """True if it decides by control alone whether the culprits came to where they are; what a comprehension goes
    through decides nothing."""
    return item.kind != "comprehension" and any(
        each.item == item and each.direct for each in reasons_of(case, blame).reasons
    )


def _delayed(case: Case, blame: Blame[Explanation]) -> tuple[Branch | None, Message]:
    """Of two threads of the one culprit that are in calls at once, the one test in front of the call of either that
    came out otherwise on it, and in words: what it led to took time there; (None, '') where there is none, or several.

    Example: `if rank == 0: write_names()`, and then the all_gather of the thread that saves → that `if`, on rank 0.
    """
    others = others_of(case, blame)
    if len(blame.culprits) != 1 or not others or not isinstance(blame.found, Diverged):
        return None, ""
    calls = calls_of_threads(case.ranks[blame.culprits[0]].process)
    odd = {
        item: frame
        for frame in (frame for stack in calls if len(calls) > 1 for frame in user_stack(stack))
        if (function := case.program.function(frame.file, frame.line)) is not None
        for item in function.predicates
        if item.kind == "if" and item.line < frame.line
        if case.table.differs(item, ("True", "False"), blame.culprits, others)
    }
    if len(odd) != 1:
        return None, ""
    item, frame = next(iter(odd.items()))
    at = Condition(line_of_item(case, item), item.file, item.line)
    call = Place(frame.file, frame.line, plain(frame.function))
    apart: Message = [", which came out otherwise on ", Ranks(blame.culprits), " than on ", Ranks(others)]
    said: Message = ["in which order the threads call may go by ", at, apart, " before the call at ", call]
    return Branch(at.file, at.line, at.source, "if"), said


def _is_even(case: Case, reason: Reason) -> bool:
    """True of a test that comes out alike on all ranks by its nature, and is not seen to differ."""
    return reason.strength < Strength.PROVED and Even(case.program).is_even(reason.item)


def _is_loop_of_others(case: Case, item: Predicate, blame: Blame[Explanation]) -> bool:
    """True of a loop that the others are in, with the culprits: it has parted nobody; and of a `while` that the others
    wait in without them: it tells what these wait for, and has led the culprits nowhere.

    Example: `while not path.exists(): time.sleep(1)` of ranks 1 and 2, rank 0 in a barrier → True.
    """

    def is_in(rank: int) -> bool:
        stack = user_stack(case.activities[rank].stack)
        at = [each for each in stack if (each.file, plain(each.function)) == (item.file, plain(item.function))]
        trees = [(case.sources.function(each.file, each.line), each.line) for each in at]
        return any(guard.line == item.line for tree, line in trees for guard in loops_around(tree, line))

    inside = {rank for rank in case.activities if is_in(rank)}
    culprits = {*blame.culprits}
    return bool(inside.intersection(others_of(case, blame))) and (culprits <= inside or item.kind == "while")


def _lies_ahead(case: Case, blame: Blame[Explanation], item: Item) -> bool:
    """True if the culprits have not come to it: they wait in it, or no way leads from it to where they are in its
    function, and nobody on the way to that runs the function again in a loop.

    Example: they wait in `done = run(tool)`, and the next line is `if done.returncode != 0:` → that test.
    """
    stacks = [user_stack(case.activities[rank].stack) for rank in blame.culprits if rank in case.activities]
    return bool(stacks) and all(_is_ahead(case, item, stack) for stack in stacks)


def _is_ahead(case: Case, item: Item, stack: Stack) -> bool:
    own = case.program.function(item.file, item.line)
    around = [(frame, case.program.function(frame.file, frame.line)) for frame in stack]
    here = next((at for at, (_, each) in enumerate(around) if own is not None and each == own), None)
    if own is None or here is None:
        return False
    first, *outer = around[here:]
    if own.leads_to(item.line, first[0].line):
        return False
    return not any(each is not None and each.leads_to(frame.line, frame.line) for frame, each in outer)
