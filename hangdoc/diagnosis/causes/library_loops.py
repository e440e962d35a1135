"""HD102 of a loop that a library runs for the user: `trainer.fit(…)` ended early on some ranks."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.call_counts import call_counts
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.interrupted import after_an_exception
from hangdoc.diagnosis.causes.phrases import call_at, cited, line_of, where_they_wait
from hangdoc.diagnosis.causes.quiet_rounds import round_without_call
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.schedule_given import ScheduleGiven, schedule_given
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.decided_back import decided_back_of_items
from hangdoc.diagnosis.condition.elsewhere.hooks import ended_by_hook
from hangdoc.diagnosis.condition.loops.begun_again import may_have_begun_again
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.fed_loop import of_answer, of_items, of_score, of_stopper
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library, package_of
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.guards import Guard, loops_around
from hangdoc.diagnosis.source.stopped_by import Stop, requests_of, stops_of, stops_of_trainers
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.kinds import GONE
from hangdoc.model.message import Condition, Joined, Message, Ranks, Verb, joined, sentence
from hangdoc.model.process import Frame, Stack

_MOST_STOPS = 3
"""Lines of the user's that may have ended the loop; chosen by hand."""
_FIX_GENERATING = (
    "pass synced_gpus=True to generate(), so that every rank goes on until all are done, or let the ranks generate "
    "equally many tokens"
)
_BEGUN_AGAIN = "ranks that have begun the loop again look the same"


@cause("HD102", "HD103", explains=Diverged, order=167)
def library_loop_ended(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: a loop of a library ended on one side, and the other is still in it. HD103: by an exception.

    Example: rank 1's callback called `trainer.stop()`, so that `fit()` returned; rank 0 waits in the next step.
    """
    loop, gap = blame.found.branch_point, blame.found.gap
    if gap is None or loop is None or not (loop.uneven and loop.of_library):
        return None
    ended = loop.guarded == 1 and fell_out(case, loop, blame.culprits, gap.mine)
    if ended:
        return after_an_exception(case, blame)
    culprits, others = blame.culprits, others_of(case, blame)
    early = loop.guarded == 1  # the others' call is the one inside the loop
    left, inside = (culprits, others) if early else (others, culprits)
    token = gap.theirs if early else gap.mine
    ran = _run_at(token.stack if token is not None else (), loop)
    library = package_of(loop.file)
    stops = _guarded_stops(case, _frame(loop))
    other = round_without_call(case, blame, loop, gap)
    fed = fed_by(case, (culprits, others), library) if not stops else Fed()
    given = schedule_given(case, blame) if not (stops or fed.decided_at) else ScheduleGiven()
    stacks = (gap.mine.stack if gap.mine is not None else (), gap.theirs.stack if gap.theirs is not None else ())
    again = may_have_begun_again(case, loop, stacks, (culprits, others))
    what: Message = (
        f"left {library}'s loop early" if early else [Verb(culprits, "is", "are"), f" in {library}'s loop longer"]
    )
    return Finding(
        "HD102",
        sentence(
            [Ranks(culprits), " ", what, [" (", line_of(ran), ")"] if ran else ""],
            where_they_wait(case, others),
        ),
        joined(
            [
                [f"{library}'s loop ", cited(loop.guard, loop.file), " ended on ", Ranks(left), " and not on "],
                [Ranks(inside), call_counts(case, blame)],
            ],
            fed.why,
            given.why,
            other.why,
            _stopped(left, stops),
        ),
        [_FIX_GENERATING if loop.function in names("generates_tokens") else fix_of_stops(stops, library), other.fix],
        other.doubt
        or ("what the loop was given on each rank was not seen" if fed.decided_at else "")
        or given.doubt
        or (_BEGUN_AGAIN if again else ""),
        fed.decided_at or given.decided_at or _decided_at(loop.guard, stops),
        cited(loop.guard, loop.file) if fed.decided_at or given.decided_at else None,
    )


@dataclass(frozen=True, slots=True)
class Fed:
    """What the user's code gives a library's loop, by which it may have ended; empty where nothing of it was found."""

    why: Message = ""
    decided_at: Condition | None = None


def fed_by(case: Case, ranks: SideRanks, library: str) -> Fed:
    """The score that stops a library's loop, by which the user's function answers; and the items that it goes over.
    Without any, what the program made to stop it by a score, unless the library's ranks agree on when to stop."""
    asked, scored, items = of_answer(case.sources), of_score(case.sources), of_items(case.sources)
    hook, left = ended_by_hook(case.sources)
    if not (items or left):
        items = decided_back_of_items(case, ranks)
    agreed = library in names("agrees_to_stop")
    made = of_stopper(case.sources) if not (asked or left or scored or items or agreed) else []
    said: list[Message] = []
    if made:
        said.append([Joined(made, " or "), " may have stopped it by a score of each rank's own"])
    if asked:
        said.append(["the criterion that may have stopped it goes by ", Joined(asked, " and ")])
    if left:
        said.append([f"{hook}() may have left out the rest by ", Joined(left, " and ")])
    if scored:
        said.append(["the score that may have stopped it goes by ", Joined(scored, " and ")])
    if items:
        said.append(["how many items there are depends on ", Joined(items, " and ")])
    return Fed(Joined(said, ", and "), next(iter([*asked, *left, *scored, *items, *made]), None))


@cause("HD102", explains=Diverged, order=88)
def library_loop_ended_the_program(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: a loop of a library was stopped on one side, whose program had nothing more to do and ended.

    Example: rank 1's callback set `trainer.should_stop`, nothing follows `fit()`; rank 0 waits in the next step.
    """
    gap, culprits = blame.found.gap, blame.culprits
    if gap is None or gap.theirs is None or gap.token.op != END or case.activities[culprits[0]].kind not in GONE:
        return None
    end, program = case.ranks[culprits[0]].exit, case.programs.get(culprits[0])
    last = program.tokens[-1].stack if program is not None and program.tokens else ()
    found = _stopped_loop(case, gap.theirs.stack, last)
    if found is None or (end is not None and (end.exception or end.status or end.signal)):
        return None
    frame, loop, stops = found
    others, library = others_of(case, blame), package_of(frame.file)
    ran = next((each for each in gap.theirs.stack[gap.theirs.stack.index(frame) :] if not is_library(each)), None)
    return Finding(
        "HD102",
        sentence(
            [Ranks(culprits), f" left {library}'s loop early", [" (", line_of(ran), ")"] if ran else "", " and ended"],
            [Ranks(others), " went on to ", call_at(gap.theirs)],
        ),
        joined(
            [
                f"{library}'s loop ",
                cited(loop, frame.file),
                " ended on ",
                Ranks(culprits),
                " and not on ",
                Ranks(others),
            ],
            _stopped(culprits, stops),
        ),
        fix_of_stops(stops, library),
        decided_at=_decided_at(loop, stops),
    )


def _decided_at(loop: Guard, stops: list[Stop]) -> Condition | None:
    """The user's only condition that stops the loop, where the loop's own line does not test what it sets: that line
    is the same on every rank, and nobody can change it.

    Example: `for i, batch in enumerate(loader):` that a callback's `if late(): control.should_stop = True` ends → that
    `if`.
    """
    known = {name.rpartition(".")[2] for name in loop.names}
    return None if stops and stops[0].name in known else only_condition(stops)


def _stopped_loop(case: Case, stack: Stack, before: Stack) -> tuple[Frame, Guard, list[Stop]] | None:
    """The innermost loop of a library around ``stack`` that the user's code can stop: its frame, its guard, the lines
    that stop it. ``before`` is the other side's last call, which was in that loop as well."""
    within = {(frame.file, plain(frame.function)) for frame in before}
    for frame in stack:
        tree = case.sources.function(frame.file, frame.line) if is_library(frame) else None
        loop = next(reversed(loops_around(tree, frame.line)), None)
        stops = _guarded_stops(case, frame) if loop is not None else []
        if loop is not None and stops and (frame.file, plain(frame.function)) in within:
            return frame, loop, stops
    return None


def _guarded_stops(case: Case, loop: Frame) -> list[Stop]:
    """The user's lines, each under a condition, that end the library's loop around a line."""
    return [stop for stop in stops_of(case.sources, loop) if stop.guard is not None][:_MOST_STOPS]


def stops_of_stages(case: Case) -> list[Stop]:
    """The user's lines, each under a condition, that set a flag of a known trainer."""
    return [stop for stop in stops_of_trainers(case.sources) if stop.guard is not None][:_MOST_STOPS]


def requested(
    case: Case, stacks: tuple[Stack, Stack], ranks: tuple[tuple[int, ...], ...]
) -> tuple[Message, list[Stop]]:
    """What in the user's code, under a condition, asked the library for what one of the sides does now, and its lines.

    Example: 'rank 2 may have been led there by `if late():` (hooks.py:9), which sets `should_save`'.
    """
    for here, there, side in ((*stacks, ranks[0]), (*stacks[::-1], ranks[1])):
        found = [stop for stop in requests_of(case.sources, here, there) if stop.guard is not None]
        if 0 < len(found) <= _MOST_STOPS:
            return [Ranks(side), " may have been led there by ", stopped_at(found)], found
    return "", []


def before_it_is_set(stops: list[Stop]) -> str:
    """'let all ranks agree on `late()` (all_reduce it) before anybody sets `should_save`; or '; '' without a line."""
    guard = stops[0].guard if stops else None
    condition = guard.condition.removeprefix("if ").removesuffix(":") if guard is not None else ""
    asked = f"let all ranks agree on `{condition}` (all_reduce it) before anybody sets `"
    return f"{asked}{stops[0].name}`; or " if guard is not None else ""


def only_condition(stops: list[Stop]) -> Condition | None:
    """The condition of the only line; None where there are several."""
    guard = stops[0].guard if len(stops) == 1 else None
    return Condition(guard.condition, stops[0].file, guard.line) if guard is not None else None


def _frame(loop: BranchPoint) -> Frame:
    return Frame(loop.file, loop.guard.line, loop.function)


def _run_at(stack: Stack, loop: BranchPoint) -> Frame | None:
    """The user's line that runs the loop: the next user frame outside of the library's."""
    places = [(frame.file, plain(frame.function)) for frame in stack]
    at = next((i for i, each in enumerate(places) if each == (loop.file, loop.function)), len(stack))
    return next((frame for frame in stack[at:] if not is_library(frame)), None)


def _stopped(left: tuple[int, ...], stops: list[Stop]) -> Message:
    """'rank 1 may have ended it at `if loss < best:` (hooks.py:9), which calls `stop()`'; '' where nothing does."""
    return [Ranks(left), " may have ended it at ", stopped_at(stops)] if stops else ""


def stopped_at(stops: list[Stop]) -> Message:
    """'`if loss < best:` (hooks.py:9), which calls `stop()`'."""
    said: list[Message] = []
    for stop in stops:
        assert stop.guard is not None
        how = f"calls `{stop.name}()`" if stop.calls else f"sets `{stop.name}`"
        said.append([Condition(stop.guard.condition, stop.file, stop.guard.line), ", which ", how])
    return Joined(said, " or ")


def fix_of_stops(stops: list[Stop], library: str) -> str:
    """'let all ranks agree on `flat()` (all_reduce it) before anybody stops the loop'; without a line that stops it,
    what keeps the ranks in the ``library``'s loop equally long."""
    if not stops:
        count = "give every rank the same number of batches"
        return f"{count}, and let all ranks agree before anything stops {library}'s loop"
    condition = stops[0].guard.condition.removeprefix("if ").removesuffix(":") if stops[0].guard else ""
    return f"let all ranks agree on `{condition}` (all_reduce it) before anybody stops the loop"
