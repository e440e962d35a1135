"""HD106 and HD107: every rank issues the calls, in another order."""

from __future__ import annotations

from hangdoc.diagnosis.blame.missing_or_extra import is_shared
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.following import made_fewer
from hangdoc.diagnosis.calls.history import END, Token, group_label
from hangdoc.diagnosis.calls.stack_calls import UNKNOWN_GROUP
from hangdoc.diagnosis.causes.deciding import answers_at, what_decided
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.origin import chosen_by_item, order_of_items, word_for
from hangdoc.diagnosis.condition.elsewhere.set_before import REORDERED
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, lines_of, same_place, user_stack
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.queries import group_given, leads_to
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, joined, sentence
from hangdoc.model.process import Frame


# Its branches choose between the words for two groups, two calls and a loop's items.
@cause("HD107", explains=Diverged, order=190)
def order_across_groups(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD107: each group's calls match, their order differs between ranks, and no condition leaves one out."""
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.mine is None or gap.theirs is None:
        return None
    labels = _labels(case, gap.mine, gap.theirs)
    if labels is None or END in (gap.mine.op, gap.theirs.op):
        return None
    coming = _each_comes_to_the_other(case, gap.mine, gap.theirs)
    if point is not None and not (point.both_arms and (coming or is_shared(case, gap))):
        return None
    if not coming and not (_uses(case, gap.theirs.rank, gap.mine) and _uses(case, gap.mine.rank, gap.theirs)):
        return None  # of a group that one side has not used yet, nobody knows its order
    if not coming and _is_left_out(case, blame, gap.mine, gap.theirs):
        return None
    first, second = labels
    others = others_of(case, blame)
    culprits = blame.culprits
    loop, decided = _loop_of_both(case, blame, gap.mine, gap.theirs)
    return Finding(
        "HD107",
        sentence(
            [
                [Does(culprits, "uses", "use"), f" `{first}` before `{second}`, "],
                [Ranks(others), " the other way round"],
            ],
            "each side waits for the other",
        ),
        joined(
            [
                [Does(culprits, "waits", "wait"), f" in {gap.mine.op} of `{first}`", at(gap.mine.frame), ", "],
                [Ranks(others), f" in {gap.theirs.op} of `{second}`", at(gap.theirs.frame)],
            ],
            loop or what_decided(case, blame),
        ),
        _SAME_ORDER,
        _doubt(case, blame, gap, decided),
        decided_at=decided,
        reorders=coming or is_shared(case, gap) or lines_of(gap.mine.site) == lines_of(gap.theirs.site),
    )


def _doubt(case: Case, blame: Blame[Diverged], gap: Gap, reordered: Condition | None) -> str:
    """Of a call that is only missing, and nowhere one too many, it is open whether it would have come; not where the
    test under which the items were ``reordered`` is recorded to have come out as never before."""
    own = [each.kind for each in blame.found.alignment.gaps if not {*each.ranks}.isdisjoint(gap.ranks)]
    if not case.programs and gap.mine is not None and gap.theirs is not None and gap.mine.group == gap.theirs.group:
        return "the groups could not be seen"
    test = (reordered.file, reordered.line, reordered.source) if reordered is not None else None
    if {*own} != {"insert"} or (test and case.execution.is_new(test, blame.culprits, others_of(case, blame))):
        return ""
    return "a call that was left out looks the same"


def _is_left_out(case: Case, blame: Blame[Diverged], mine: Token, theirs: Token) -> bool:
    """True if the culprits only lack the others' call, have come by where it is made on the way to their own, and made
    fewer there than the last time: nothing says that they would make it later.

    Example: `loss.backward()`, in whose hooks all reduced three times a round, and then `finish()`, in which rank 1 is
    after two.
    """
    where, program = fork(mine.stack, theirs.stack).within_function, case.programs.get(mine.rank)
    if where is None or program is None or any(each.kind != "insert" for each in blame.found.alignment.gaps):
        return False
    function = case.program.function(where[0].file, where[0].line)
    came_by = function is not None and function.comes_by(where[0].line, where[1].line)
    return came_by and made_fewer(program.tokens[: mine.order + 1], mine, theirs)


def _labels(case: Case, mine: Token, theirs: Token) -> tuple[str, str] | None:
    """The names of the two calls' groups; None where they are one group, or none says that they are two.

    Stacks do not show groups: there, what the lines give to the calls counts. Example: `group=self.actor_group` and
    `group=self.critic_group` → these.
    """
    if case.programs:
        labels = {h.key: h.label for h in case.histories}
        same = mine.group == theirs.group
        return None if same else (labels.get(mine.group, "one group"), labels.get(theirs.group, "another"))
    if UNKNOWN_GROUP not in (mine.group[0], theirs.group[0]):  # their frames show them
        shown = [group_label(token.group[0], "") for token in (mine, theirs)]
        return (shown[0], shown[1]) if mine.group != theirs.group else None
    given = [_given(case, token.frame) for token in (mine, theirs)]
    return (given[0], given[1]) if all(given) and given[0] != given[1] else None


def _given(case: Case, frame: Frame | None) -> str:
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    return group_given(tree, frame.line) if tree is not None and frame is not None else ""


def _loop_of_both(case: Case, blame: Blame[Diverged], mine: Token, theirs: Token) -> tuple[Message, Condition | None]:
    """The loop that both sides are in, at one line, whose items choose the group, with what decides their order; and
    the first of that."""
    both = fork(mine.stack, theirs.stack).frames is None and blame.found.branch_point is None
    chosen = chosen_by_item(case.sources, mine.stack) if both else None
    if chosen is None:
        return "", None
    order: Message = [Does(blame.culprits, "iterates", "iterate"), " in another order"]
    origin = order_of_items(case.sources, chosen)
    said = joined(["both are in ", chosen.loop, ", whose items choose the group: ", order], _decides_order(origin))
    return said, _reordered_under(case, chosen.loop) or next(iter(origin), None)


def _reordered_under(case: Case, loop: Condition) -> Condition | None:
    """The one test under which what the loop goes over is put in another order; None where there is none, or more."""
    tests = [test for each in answers_at(case, loop) if each.how == REORDERED for test in each.tests]
    return tests[0] if len(tests) == 1 else None


def _decides_order(origin: list[Condition]) -> Message:
    """'`if full:` (plan.py:9) decides that order'."""
    return [Joined(origin, " and "), f" {word_for(origin)} that order"] if origin else ""


@cause("HD107", explains=AllArrived, order=1035)
def perhaps_across_groups(case: Case, blame: Blame[AllArrived]) -> Finding | None:
    """HD107 without histories: all ranks are in one line, in a loop whose item chooses the group of the call."""
    stack = next((a.stack for a in case.activities.values() if a.kind == ActivityKind.IN_COLLECTIVE), ())
    chosen = chosen_by_item(case.sources, stack)
    if case.programs or chosen is None:
        return None
    origin = order_of_items(case.sources, chosen)
    return Finding(
        "HD107",
        sentence(
            where_they_wait(case, tuple(sorted(case.seen))),
            f"the call does not complete, and each rank may be in another group, `{chosen.group}`",
        ),
        joined(
            [
                [chosen.loop, " chooses the group: ranks that take its items in different orders wait for each other"],
                ". Which rank's order differs, stacks alone do not show",
            ],
            _decides_order(origin),
        ),
        _SAME_ORDER,
        "the groups could not be seen",
        decided_at=next(iter(origin), None),
    )


_SAME_ORDER = "issue the calls of different groups in the same order on every rank"


# Each branch is one of the things that both sides must show.
def _each_comes_to_the_other(case: Case, mine: Token, theirs: Token) -> bool:
    """True if both ranks are members of both groups, wait there for each other, and by the source will make the other's
    call next: another one of its kind follows in the same block, or in the next round of one loop.

    Example: `for group in groups: all_reduce(x, group=group)`; one rank is in group a, the other in group b.
    """
    both = {mine.rank, theirs.rank}
    if not (mine.pending and theirs.pending and both <= set(mine.group[1]) & set(theirs.group[1])):
        return False
    return _comes_next(case, mine, theirs)


def _comes_next(case: Case, mine: Token, theirs: Token) -> bool:
    """True if by the source each side makes the other's call next, or in the next round of one loop."""
    where = fork(mine.stack, theirs.stack)
    if where.frames is None and len(where.mine) == len(where.theirs):
        return mine.op == theirs.op and any(_is_in_loop(case, frame) for frame in where.mine)
    if mine.op == theirs.op and _goes_on(case, mine, theirs):
        return True
    if where.within_function is None:
        return False
    calls = [way[where.common + 1 : where.common + 2] for way in (where.mine, where.theirs)]
    called = [plain(call[0].function) if call else token.op for call, token in zip(calls, (mine, theirs), strict=True)]
    trees = [(frame, case.sources.function(frame.file, frame.line)) for frame in where.within_function]
    return all(
        tree is not None and leads_to(tree, frame.line, other)
        for (frame, tree), other in zip(trees, called[::-1], strict=True)
    )


def _goes_on(case: Case, mine: Token, theirs: Token) -> bool:
    """True if both came by two ways to one statement, and from there such a call is made again.

    Example: `average(critic, actor)` on one side, `average(actor, critic)` on the other; both are in the first of the
    two calls of `average`.
    """
    called = mine.op
    for one, other in zip(user_stack(mine.stack), user_stack(theirs.stack), strict=False):
        if not same_place(one, other):
            return False
        tree = case.sources.function(one.file, one.line)
        if _is_in_loop(case, one) or (tree is not None and leads_to(tree, one.line, called)):
            return True
        called = plain(one.function)
    return False


def _is_in_loop(case: Case, frame: Frame) -> bool:
    return bool(loops_around(case.sources.function(frame.file, frame.line), frame.line))


def _uses(case: Case, rank: int, call: Token) -> bool:
    """True if the rank has issued a call of that group and operation."""
    program = case.programs.get(rank)
    return program is not None and any(t.group == call.group and t.op == call.op for t in program.tokens)
