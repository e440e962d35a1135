"""The divergence and its repair as the report shows them: both sides, the branch between them, the edits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangdoc.diagnosis.blame.shared_number import SHARED
from hangdoc.diagnosis.bounds import LISTED, TRIED
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, Token, group_label
from hangdoc.diagnosis.calls.moved import is_moved, left_over
from hangdoc.diagnosis.calls.own_calls import calls_of
from hangdoc.diagnosis.calls.stack_calls import group_shown
from hangdoc.diagnosis.causes.deciding import may_run_another, who_asked
from hangdoc.diagnosis.causes.finding import Finding, others_of, telling, telling_token
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.branch_values import describe as describe_branch
from hangdoc.diagnosis.condition.choice import also_on_the_way, both_are_under, stack_of
from hangdoc.diagnosis.condition.elsewhere.raised import condition_of_raise
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.way_out import seen_way_out, surely_left, way_out_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.decisions import condition_key
from hangdoc.diagnosis.execution.moments import apart
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.landmarks import is_implicit, is_named_by_library, words
from hangdoc.diagnosis.frames.stacks import Site, lines_of, user_stack
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.diagnosis import Activity, Branch, BranchAnswer, Divergence, Edit, Repair, Side
from hangdoc.model.frames import is_library_file
from hangdoc.model.message import Condition, Does, Message, Ranks, conditions_in
from hangdoc.model.process import Frame, Stack
from hangdoc.model.writing import Writer

_KINDS = {
    "for": "loop",
    "while": "loop",
    "try": "try",
    "except": "try",
    "finally": "try",
    "case": "match",
    "if": "if",
    "with": "try",
}
"""First word of a line of source → kind of the branch; a decorator's line and an assignment are expressions."""


def divergence(case: Case, blame: Blame[Explanation], named: Finding) -> Divergence | None:
    """Both sides and the branch between them; None where neither the ranks' calls differ nor a condition is cited.

    The branch is the one that the cause names, else the guard between the two stacks, else the first one cited.
    """
    found = blame.diverged
    gap = found.gap if found is not None else None
    cited = named.decided_at or next(conditions_in(named.why), None)
    said = _as_cited(cited) if cited is not None else None
    if found is None or gap is None:
        return Divergence((), said) if said is not None else None
    others = others_of(case, blame)
    here, there = telling(gap)
    # Of a job with several faults, ranks of other groups are to blame as well.
    members = found.alignment.history.members
    culprits = tuple(rank for rank in blame.culprits if rank in members) or blame.culprits
    both = ((gap.mine, here, culprits), (gap.theirs, there, others))
    sides = tuple(side for token, frame, ranks in both if ranks for side in _by_line(case, found, token, frame, ranks))
    point = found.branch_point if not named.by_chance else None
    if named.decided_at is not None and not _says_more(case, point, named.decided_at, (blame.culprits, others)):
        point = None
    guessed = False
    if point is not None and point.uneven and (point.left_at is not None or not point.recorded):
        raised = condition_of_raise(case, culprits) if fell_out(case, point, culprits, gap.mine) else None
        left, inside = (culprits, others) if point.guarded else (others, culprits)
        seen = seen_way_out(case, point, left, inside)
        guessed = raised is None and seen is None and not surely_left(case, point)
        shown = replace(point, guard=seen, uneven=False) if seen is not None else None
        one = raised or shown or way_out_of(case, point)
        point = one or point
    came = who_asked(case, gap, point, (blame.culprits, others)) if point is not None else (blame.culprits, others)
    branch = (
        describe_branch(
            point,
            case.sources,
            case.values,
            came,
            past=found.past,
            doubted=point.quiet
            or guessed
            or bool(also_on_the_way(found.branch_points))
            or both_are_under(case, gap, point)
            or may_run_another(case, found.branch_point),
        )
        if point is not None
        else said
    )
    also = also_on_the_way(found.branch_points) if named.decided_at is None else []
    more = [Condition(each.guard.condition, each.file, each.guard.line) for each in also]
    or_at = tuple(BranchAnswer("", each.file, each.line, each.source) for each in (*more, named.or_at) if each)
    return Divergence(sides, replace(branch, answers=tuple(dict.fromkeys(or_at))) if branch is not None else None)


def _says_more(case: Case, point: BranchPoint | None, cited: Condition, ranks: SideRanks) -> bool:
    """True if the guard at which the sides were seen to part says more than the condition that the cause names: not
    where an exception was caught, nor a loop whose rounds go by a condition that was recorded to differ.

    A library leaves its loop as it is told: by what came out as never before, on the culprits alone, in the program.
    """
    if point is None or not point.recorded or point.guard.kind == "try":
        return False
    key = condition_key(cited.file, cited.line, cited.source)
    if not point.uneven or apart(case.table, case.execution, key, [*ranks[0], *ranks[1]], tuple(ranks[0])):
        return not point.uneven
    new = case.execution.once_only(*ranks) if is_library_file(point.file) else {}
    return (cited.file, cited.line) not in {key[:2] for key in new}


def _as_cited(cited: Condition) -> Branch:
    """The condition of a sentence as a branch."""
    word = cited.source.partition(" ")[0].rstrip(":")
    return Branch(cited.file, cited.line, cited.source, _KINDS.get(word, "expression"))


def _by_line(
    case: Case, found: Diverged, token: Token | None, frame: Frame | None, ranks: tuple[int, ...]
) -> Iterator[Side]:
    """The side; ranks of it that made the call from another line than most are a side of their own.

    Example: in `main_process_first()` ranks 1 and 3 are in the barrier before the body, and rank 0 in that after it.
    """
    calls = calls_of(case.histories, token, ranks) if token is not None else {}
    apart: dict[Site, list[int]] = {}
    for rank, own in calls.items():
        if token is not None and lines_of(own.site) != lines_of(token.site):
            apart.setdefault(lines_of(own.site), []).append(rank)
    moved = {rank for each in apart.values() for rank in each}
    rest = tuple(rank for rank in ranks if rank not in moved)
    if not rest or len(apart) >= LISTED:
        yield _side(case, found, token, frame, ranks)
        return
    yield _side(case, found, token, frame, rest)
    for those in apart.values():
        yield _side(case, found, calls[those[0]], None, tuple(those))


def _side(case: Case, found: Diverged, token: Token | None, frame: Frame | None, ranks: tuple[int, ...]) -> Side:
    """What ``ranks`` called at the divergence; what they do now where they made no call there."""
    activity = case.activities[ranks[0]]
    key = token.group if token is not None else found.alignment.history.key
    history = next((h for h in case.histories if h.key == key), found.alignment.history)
    if token is None or token.op == END:
        return Side(ranks, history.label, history.members, None, activity.text, activity.where, activity.stack)
    stack = stack_of(case, token, ranks)
    op, note = _call_in_words(token, stack)
    number = None if history.inferred else token.sequence
    frame = frame or _line_of(token, stack, activity)
    label, members = history.label, history.members
    shown = group_shown(activity.stack) if history.inferred and history.key != key else None
    if shown is not None:
        label, members = group_label(shown[0], "") if shown[0] else history.label, shown[1]
    return Side(ranks, label, members, number, op, frame, stack, token.thread, note)


def _line_of(token: Token, stack: Stack, activity: Activity) -> Frame | None:
    """The user's line of the call. A call that another thread issued is nowhere in the main thread's stack."""
    line = next(iter(user_stack(stack)), None)
    return line or (activity.where if token.pending and token.thread == "MainThread" else None)


def _call_in_words(token: Token, stack: Stack) -> tuple[str, str]:
    """(operation, what a library does there)."""
    note = (words(stack) or "") if is_implicit(stack) else ""
    return ("a collective", note) if is_named_by_library(token.op, stack) else (token.op, note)


def repair(blame: Blame[Explanation], named: Finding, writer: Writer) -> Repair | None:
    """The edits after which all calls match, and how they read; None where the ranks' calls do not differ, or where
    what differs came before the calls that were seen."""
    found = blame.diverged
    gap = found.gap if found is not None else None
    if found is None or gap is None or found.came_before or gap.token.group[0] == SHARED:
        return None  # of groups that share a number, removing the call that made one is no repair
    if named.reorders or is_moved(found.alignment, gap):
        edits, text = _moves(found, gap)
    else:
        edits, text = _edits(found, gap, blame.culprits, instead=named.replaces)
    return Repair(tuple(edits[:TRIED]), writer.write(text))


def _moves(found: Diverged, gap: Gap) -> tuple[list[Edit], Message]:
    """The repair of calls that all ranks make: those of the culprits in the order of the others."""
    edits = [Edit(rank, "move", gap.token.op, gap.token.frame) for rank in gap.ranks]
    return edits, [
        "Making these calls in the others' order on ",
        Ranks(gap.ranks),
        f" makes {_matching(found.alignment)}.",
    ]


def _edits(found: Diverged, gap: Gap, culprits: tuple[int, ...], *, instead: bool) -> tuple[list[Edit], Message]:
    line, ranks = line_of(gap.token.frame), Ranks(gap.ranks)
    if _made_otherwise(gap):
        edits = [Edit(rank, "replace", gap.token.op, gap.token.frame) for rank in gap.ranks]
        return edits, ["Passing ", ranks, " the others' members at ", line, " makes all groups the same."]
    if found.late is not None:
        edits = [Edit(rank, "insert", gap.token.op, gap.token.frame) for rank in gap.ranks]
        call: Message = [f"`{gap.token.op}` at ", line]
        return edits, ["Calling ", call, " on ", ranks, " in the same rounds as the others makes the calls match."]
    edits = []
    for each in found.alignment.gaps:
        if each.token.op == END:
            continue
        edits += [Edit(rank, each.kind, each.token.op, each.token.frame) for rank in each.ranks]
    if not edits:
        edits = [Edit(rank, "revive", "", None) for rank in culprits]
        return edits, ["Had ", Ranks(culprits), " come to the others' calls, these would match."]
    both = _replacement(gap, found.alignment, instead=instead)
    if both is not None and len(found.alignment.gaps) == 1:
        edits += [Edit(rank, "insert", both[1].op, both[1].frame) for rank in gap.ranks]
    return edits, _repair_text(gap, found.alignment, both)


def _made_otherwise(gap: Gap) -> bool:
    """True if both sides call new_group at one line, with different members: leaving it out would not help. A group
    that some left out is to be made by them as well."""
    return (
        gap.kind == "delete"
        and gap.mine is not None
        and gap.theirs is not None
        and gap.token.op == "new_group"
        and (gap.mine.site == gap.theirs.site)
    )


def _replacement(gap: Gap, alignment: Alignment, *, instead: bool) -> tuple[Token, Token] | None:
    """(the culprits' call that is one too many, the call that belongs there); None where the repair is another.
    ``instead``: the sides make one call each where one call belongs."""
    if gap.mine is None or gap.theirs is None or not gap.mine.op.isidentifier():
        return None
    if instead and gap.kind == "delete" and len(alignment.gaps) == 1:
        return gap.mine, gap.theirs
    kinds = {g.kind for g in alignment.gaps if (g.ranks, g.mine, g.theirs) == (gap.ranks, gap.mine, gap.theirs)}
    alone = len(alignment.gaps) == 2
    return (gap.mine, gap.theirs) if alone and kinds == {"delete", "insert"} else None


def _matching(alignment: Alignment) -> str:
    last = max((each.sequence for each in alignment.consensus if each.op != END), default=0)
    return f"all calls up to #{last} match" if last > 1 and not alignment.history.inferred else "the calls match"


def _repair_text(gap: Gap, alignment: Alignment, both: tuple[Token, Token] | None) -> Message:
    """'Removing the `barrier` at train.py:41 on rank 1 makes all calls up to #37 match.'

    Where that leaves a call of the others without its partner: '…, once rank 1 also comes to train.py:44.' ``both``: a
    call of the culprits, and the one that belongs in its place.
    """
    line = telling_token(gap)
    where: Message = [" at ", line_of(line)] if line else ""
    start = "Removing" if gap.kind == "delete" else "Adding"
    calls = _matching(alignment)
    if both is not None:
        made, due = both
        call_due: Message = ["Calling `", due.op, "` at ", line_of(due.frame)]
        call_made: Message = [" in place of `", made.op, "` at ", line_of(made.frame)]
        return [call_due, call_made, " on ", Ranks(gap.ranks), f" makes {calls}."]
    named = not is_named_by_library(gap.token.op, gap.token.stack)
    call = f"`{gap.token.op}`" if gap.token.op.isidentifier() else gap.token.op if named else "collective"
    if not gap.token.named:
        call, where = "call", [" that is waited for", where]
    left = next((line_of(each.frame) for each in left_over(alignment, gap) if each.frame is not None), "")
    once: Message = [", once ", Does(gap.ranks, "also comes", "also come"), " to ", left] if left else ""
    more = _further(gap, alignment)
    return [f"{start} the {call}", where, " on ", Ranks(gap.ranks), f"{more} makes {calls}", once, "."]


def _further(gap: Gap, alignment: Alignment) -> str:
    """' and 2 more like it': calls of one line that are to be changed alike; of others, that there are some."""
    edits = [(each, rank) for each in alignment.gaps if each.token.op != END for rank in each.ranks]
    more = len(edits) - len(gap.ranks)
    if more <= 0:
        return ""
    first = gap.kind, gap.token.op, gap.token.frame
    alike = all((each.kind, each.token.op, each.token.frame) == first for each, _ in edits)
    return f" and {more} more like it" if alike else f", and changing {more} more {'call' if more == 1 else 'calls'},"
