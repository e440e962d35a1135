"""The lines of code that prove the verdict: the condition, what each side went on to, and where the culprits are.

Example: rank 0 alone calls all_reduce under `if rank == 0:` at line 39, ranks 1 and 2 wait in the barrier at 41 →

    39 │         if rank == 0:                     True on rank 0, False on ranks 1 and 2
    40 │             dist.all_reduce(loss)         rank 0: all_reduce
    41 │         dist.barrier()                    ranks 1 and 2: barrier
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.blame.mixed_threads import MixedThreads
from hangdoc.diagnosis.blame.odd_past import OddPast
from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.causes.deciding import item_of, who_asked
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.other_lines import awaited_lock, other_lines
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.choice import also_on_the_way
from hangdoc.diagnosis.condition.further_on import further_on
from hangdoc.diagnosis.condition.loops.round_or_loop import skips_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, Explanation, Supposed
from hangdoc.diagnosis.frames.stacks import same_line, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.model.diagnosis import Branch, BranchAnswer, CodeExcerpt, CodeLine, Divergence
from hangdoc.model.message import Joined, Message, Ranks
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText
from hangdoc.model.wording import single_spaced
from hangdoc.model.writing import Writer

_MOST_LINES = 12
"""Lines of one excerpt, and excerpts: what fits on a screen beside the rest of the report. Chosen by hand."""
_BETWEEN = 1
"""Lines between two telling ones that are shown rather than left out: a mark for what is missing takes one as well."""

_ONE_OF_THESE = "one of these decides"


@dataclass(frozen=True, slots=True)
class _Note:
    """What is to be said of one line. ``condition``: the text in it that decides, '' for none."""

    file: str
    line: int
    said: Message
    guilty: bool = False
    condition: str = ""


def code_excerpts(
    case: Case, blame: Blame[Explanation], named: Finding, divergence: Divergence | None, writer: Writer
) -> tuple[CodeExcerpt, ...]:
    """The telling lines by function, the function of the condition first; () where no source was captured."""
    notes: dict[SourceText, list[_Note]] = {}
    branch = blame.diverged.branch_point if blame.diverged is not None else None
    around = case.sources.text(branch.file, branch.guard.line) if branch is not None else None
    of_sides = _of_the_sides(case, blame, divergence, around)
    of_ranks = list(_of_the_culprits(case, blame))
    of_answers = list(_of_the_answers(divergence))
    own = next((i for i, note in enumerate(of_answers) if note.said == _ONE_OF_THESE), len(of_answers))
    decided = _of_the_branch(case, blame, divergence) if not named.by_chance else ()
    of_branch = [*decided, *of_answers[:own]]
    of_wait = [_Note(frame.file, frame.line, said) for frame, said in named.shown]
    for note in [*of_branch, *of_sides, *of_ranks, *of_wait, *of_answers[own:]]:
        text = case.sources.text(note.file, note.line)
        if text is not None:
            notes.setdefault(text, []).append(note)
    return tuple(_excerpt(text, each, writer) for text, each in list(notes.items())[:LISTED])


def _of_the_branch(case: Case, blame: Blame[Explanation], divergence: Divergence | None) -> Iterator[_Note]:
    point = blame.diverged.branch_point if blame.diverged is not None else None
    branch = divergence.branch if divergence is not None else None
    if isinstance(blame.found, OddPast | Supposed) and branch is not None:
        yield _Note(branch.file, branch.line, "", condition=branch.condition.removesuffix(":").removeprefix("if "))
    if blame.diverged is None or point is None:
        return
    shown = divergence.branch if divergence is not None else None
    caught = shown is not None and shown.kind == "try"
    raised = caught or point.guard.kind == "try" or (point.of_library and not point.uneven)
    skips = skips_of(case.sources, blame.diverged.branch_points) if point.uneven and shown is not None else []
    skipped = shown is not None and (shown.file, shown.line) in {(p.file, p.guard.line) for p in skips}
    looped = shown is not None and shown.kind == "loop" and point.guard.kind in CONDITIONS
    elsewhere = shown is not None and shown.kind == "if" and point.uneven and not _is_in_one(case, shown, point)
    if (raised or skipped or looped or elsewhere) and shown is not None and shown.condition != point.guard.condition:
        # Of an exception, a round that was left out or a loop over other items, the cause says more than the stacks.
        yield _Note(shown.file, shown.line, "", condition=shown.condition.removesuffix(":").removeprefix("if "))
        return
    sides = who_asked(case, blame.diverged.gap, point, (blame.culprits, others_of(case, blame)))
    doubted = point.quiet or bool(also_on_the_way(blame.diverged.branch_points))
    doubted = doubted or bool(further_on(case, blame.diverged.gap, point, sides))
    doubted = doubted or (not point.seen and item_of(case, point, blame.diverged.gap) is not None)
    named = shown is not None and (shown.file, shown.line) == (point.file, point.guard.line) and not shown.values
    doubted = doubted or (named and point.guard.kind in CONDITIONS)  # a cause that names it says which way each went
    theirs = blame.diverged.gap.theirs if blame.diverged.gap is not None else None
    if blame.diverged.alignment.history.inferred and point.uneven and theirs is not None:
        doubted = doubted or not theirs.pending  # all have left that loop since
    condition = point.guard.condition.removesuffix(":")
    if point.guard.kind in CONDITIONS:
        condition = condition.removeprefix("if ")
    yield _Note(point.file, point.guard.line, "" if doubted else _ways(point, sides), condition=condition)
    if point.made:
        yield _Note(point.file, point.line, f"makes {point.made}")
    if point.registered and point.line != point.guard.line:
        yield _Note(point.file, point.line, f"registers {point.registered}()")


def _is_in_one(case: Case, branch: Branch, point: BranchPoint) -> bool:
    """True if both stand in one function."""
    return case.sources.function(branch.file, branch.line) is case.sources.function(point.file, point.guard.line)


def _of_the_answers(divergence: Divergence | None) -> Iterator[_Note]:
    """The tests by which functions answer that the condition asks, and what may have decided in its place."""
    branch = divergence.branch if divergence is not None else None
    answers = branch.answers if branch is not None else ()
    own = (
        [_Note(branch.file, branch.line, _ONE_OF_THESE)]
        if branch and any(_said_of(each) == _ONE_OF_THESE for each in answers)
        else []
    )
    for each in answers:
        said = _said_of(each)
        if said == _ONE_OF_THESE:  # the likeliest first: not all may be shown
            yield from own
            own = []
        yield _Note(each.file, each.line, said)
    yield from own


def _said_of(answer: BranchAnswer) -> str:
    if answer.ran:
        return "passed by one side alone"
    if answer.subject:
        return f"decides {answer.subject}"
    return f"decides {answer.function}()" if answer.function else _ONE_OF_THESE


def _ways(point: BranchPoint, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> Message:
    """'True on rank 0, False on rank 1', the culprits' side first; '' for what is no choice of two ways."""
    guard = point.guard
    if point.own_arm:
        return ["ended on ", Ranks(sides[1 - point.guarded])] if guard.kind == "loop" else ""
    if guard.kind in CONDITIONS:
        here, there = str(guard.taken), str(not guard.taken)
    elif guard.kind == "loop":
        here, there = "continues", "ended"
    elif guard.kind == "match":
        here, there = "taken", "not taken"
    else:
        return ""
    said: list[Message] = [
        [here, " on ", Ranks(sides[point.guarded])],
        [there, " on ", Ranks(sides[1 - point.guarded])],
    ]
    if point.guarded == 1:
        said.reverse()
    return Joined(said, ", ")


def _of_the_sides(
    case: Case, blame: Blame[Explanation], divergence: Divergence | None, around: SourceText | None
) -> Iterator[_Note]:
    """What each side called, and the line by which it left ``around``, the function of the condition, for it.

    Example: `if rank == 0: ⏎ report()` leads rank 0 to the all_reduce in report() → 'rank 0: in report()' at its call,
    and 'rank 0: all_reduce' in there.
    """
    for side in divergence.sides if divergence is not None else ():
        guilty = bool(set(side.ranks) & set(blame.culprits))
        for inner, frame in itertools.pairwise(user_stack(side.stack)):
            if around is not None and _holds(around, frame) and not _holds(around, inner):
                ranks = _on_this_way(case, blame, side.ranks, frame)
                yield _Note(frame.file, frame.line, [Ranks(ranks), f": in {_called(inner)}"], guilty)
        if side.frame is not None and not side.frame.file.startswith("<"):
            yield _Note(side.frame.file, side.frame.line, [Ranks(side.ranks), ": ", side.op], guilty)


def _on_this_way(case: Case, blame: Blame[Explanation], ranks: tuple[int, ...], frame: Frame) -> tuple[int, ...]:
    """Those of the ranks that came to their call by the line of the frame: leaders and followers make one call by
    lines of their own. All of them where what they do now need not be that call."""
    if blame.diverged is None or not blame.diverged.alignment.history.inferred:
        return ranks
    stacks = {rank: case.activities[rank].stack for rank in ranks}
    return tuple(r for r in ranks if any(same_line(f, frame) for f in stacks[r])) or ranks


def _holds(text: SourceText, frame: Frame) -> bool:
    return text.file == frame.file and text.holds(frame.line)


def _called(frame: Frame) -> str:
    return frame.function if frame.function.startswith("<") else f"{frame.function}()"


def _of_the_culprits(case: Case, blame: Blame[Explanation]) -> Iterator[_Note]:
    """Where the culprits are, and the threads and children that they wait for, if no two sides show it; where any rank
    may be one, where all of them are."""
    if blame.diverged is not None:
        return
    if isinstance(blame.found, MixedThreads):
        for number, call in enumerate(blame.found.calls):
            in_it = Ranks.of(blame.culprits if number and blame.found.others else case.seen)
            if call.frame is not None:
                yield _Note(call.frame.file, call.frame.line, [in_it, f": {call.op} in {call.name}"])
        return
    alike = tuple(case.seen) if isinstance(blame.found, AllArrived) and not case.programs else ()
    there: dict[tuple[str, int, str], list[int]] = {}
    for rank in sorted(blame.culprits or alike):
        activity = case.activities.get(rank)
        if activity is not None and activity.where is not None:
            lock = awaited_lock(case, rank)
            doing = f"waits for `{lock}`" if lock else single_spaced(activity.text)
            there.setdefault((activity.where.file, activity.where.line, f": {doing}"), []).append(rank)
    for line in other_lines(case, blame):
        there.setdefault((line.frame.file, line.frame.line, line.said), []).append(line.rank)
    for (file, number, said), ranks in there.items():
        yield _Note(file, number, [Ranks.of(ranks), said], guilty=not set(ranks).isdisjoint(blame.culprits))


def _excerpt(text: SourceText, notes: list[_Note], writer: Writer) -> CodeExcerpt:
    source = text.lines()
    told = {note.line for note in notes}
    shown = set(told)
    for line in told:
        following = min((other for other in told if other > line), default=line)
        if following - line - 1 <= _BETWEEN:
            shown.update(range(line, following))
    lines = [
        _line(source[number], number, [note for note in notes if note.line == number], writer)
        for number in sorted(shown)[:_MOST_LINES]
    ]
    return CodeExcerpt(text.file, text.function, tuple(lines))


def _line(text: str, number: int, notes: list[_Note], writer: Writer) -> CodeLine:
    said = dict.fromkeys(writer.write(note.said) for note in notes if note.said)
    condition = next((note.condition for note in notes if note.condition), "")
    return CodeLine(
        number,
        text.rstrip(),
        tuple(said),
        _columns(text, condition) if condition else None,
        any(note.guilty for note in notes),
    )


def _columns(text: str, condition: str) -> tuple[int, int]:
    """Where ``condition`` is in the line; the whole of its code where it is written in another way.

    Example: ('    if a == 0:', 'a == 0') → (7, 13).
    """
    at = text.find(condition)
    if at >= 0:
        return at, at + len(condition)
    return len(text) - len(text.lstrip()), len(text.rstrip())
