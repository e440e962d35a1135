"""HD106 and HD107: every rank issues the calls, in another order."""

from __future__ import annotations

from hangdoc.diagnosis.blame.crossed_by_item import CrossedByItem
from hangdoc.diagnosis.blame.crossed_dimensions import CrossedDimensions
from hangdoc.diagnosis.blame.missing_or_extra import is_shared
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token, group_label
from hangdoc.diagnosis.calls.stack_calls import UNKNOWN_GROUP
from hangdoc.diagnosis.causes.deciding import answers_at, what_decided
from hangdoc.diagnosis.causes.diverging import no_condition
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, call_at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.origin import chosen_by_item, order_of_items, word_for
from hangdoc.diagnosis.condition.elsewhere.set_before import REORDERED
from hangdoc.diagnosis.condition.elsewhere.unordered import item_of_unordered
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import AllArrived, Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, lines_of, same_function, same_place, user_stack
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.loops import item_loop, shared_item_loop
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
        "" if case.programs or gap.mine.group != gap.theirs.group else "the groups could not be seen",
        decided_at=decided,
        reorders=coming or is_shared(case, gap) or lines_of(gap.mine.site) == lines_of(gap.theirs.site),
    )


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


@cause("HD107", explains=CrossedDimensions, order=139)
def crossed_dimensions(case: Case, blame: Blame[CrossedDimensions]) -> Finding | None:
    """HD107: two dimensions of a mesh in another order on some ranks, which by the source come to the other call next.
    Without a source, a call left out looks the same."""
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.theirs is None:
        return None
    at_one_line = lines_of(gap.mine.site) == lines_of(gap.theirs.site)
    known = any(t.frame and case.sources.function(t.frame.file, t.frame.line) for t in (gap.mine, gap.theirs))
    # At one line, what it is given chooses the group.
    if known and not at_one_line and not _comes_next(case, gap.mine, gap.theirs):
        return None
    labels = {h.key: h.label for h in case.histories}
    first, second = (labels.get(t.group, "one group") for t in (gap.mine, gap.theirs))
    culprits, others = blame.culprits, others_of(case, blame)
    loop, decided = _loop_of_both(case, blame, gap.mine, gap.theirs)
    return Finding(
        "HD107",
        sentence(
            [
                [Does(culprits, "uses", "use"), f" a group like `{first}` before one like `{second}`, "],
                [Ranks(others), " the other way round"],
            ],
            "so that the groups wait for each other in a circle",
        ),
        joined(
            [
                [Does(culprits, "waits", "wait"), f" in {gap.mine.op}", at(gap.mine.frame), ", "],
                [Ranks(others), f" in {gap.theirs.op}", at(gap.theirs.frame)],
            ],
            loop or what_decided(case, blame),
        ),
        _SAME_ORDER,
        "" if known else "a call that was left out looks the same",
        decided_at=decided,
        reorders=known,
    )


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


@cause("HD107", explains=CrossedByItem, order=1034)
def crossed_by_item(case: Case, blame: Blame[CrossedByItem]) -> Finding:
    """HD107 without histories: all ranks are in one line, and the frames show that a loop's items chose their groups in
    another order."""
    found, culprits = blame.found, blame.culprits
    others = others_of(case, blame)
    origin = order_of_items(case.sources, found.chosen)
    return Finding(
        "HD107",
        sentence(
            [
                [Does(culprits, "uses", "use"), " a group like ", _listed(found.mine), " before one like "],
                [_listed(found.theirs), ", ", Ranks(others), " the other way round"],
            ],
            ["so that the groups wait for each other in a circle", at(case.activities[culprits[0]].where)],
        ),
        joined(
            [
                [found.chosen.loop, f" chooses the group, `{found.chosen.group}`: "],
                "ranks that take its items in different orders wait for each other",
            ],
            _decides_order(origin),
        ),
        _SAME_ORDER,
        decided_at=next(iter(origin), None) or found.chosen.loop,
    )


def _listed(members: tuple[int, ...]) -> str:
    """'[0,2]', as a table of calls names the members of a group."""
    return f"[{','.join(map(str, members))}]"


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


def _at_one_line(case: Case, gap: Gap) -> bool:
    """True if devices are in two operations that one line of the user's called, by one way."""
    if not case.streams or gap.mine is None or gap.theirs is None:
        return False
    return bool(user_stack(gap.mine.stack)) and lines_of(gap.mine.site) == lines_of(gap.theirs.site)


@cause("HD106", explains=Diverged, order=210)
def swapped_operation(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD106: one condition, a different operation in each of its arms; or one loop, whose items choose between them; or
    one line."""
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.mine is None or gap.theirs is None or END in (gap.mine.op, gap.theirs.op):
        return None
    if case.programs and gap.mine.group != gap.theirs.group:
        return None  # neither call stands in the place of the other
    others, unordered = others_of(case, blame), _items_unordered(case, blame, gap)
    if gap.mine.op == gap.theirs.op and (unordered is None or lines_of(gap.mine.site) == lines_of(gap.theirs.site)):
        return None
    loop = unordered or _items_differ(case, blame, gap)
    if loop is None and (point is None or not point.both_arms) and not _at_one_line(case, gap):
        return None
    culprits = blame.culprits
    by_order = item_of_unordered(case.sources, gap.mine.stack) is not None
    return Finding(
        "HD106",
        sentence(
            [
                [Does(culprits, "calls", "call"), " ", call_at(gap.mine), " where "],
                [Does(others, "calls", "call"), " ", call_at(gap.theirs)],
            ]
        ),
        [
            ["both are in ", loop, ", whose items choose the call: ", Does(culprits, "iterates", "iterate")],
            [" in another order than ", Ranks(others), ", or over other items"],
        ]
        if loop
        else what_decided(case, blame) or no_condition(case, blame, gap),
        "iterate over the same items in the same order on all ranks (`sorted`)"
        if loop or by_order or _chosen_by_items(case, gap.mine, gap.theirs)
        else "let all ranks make these calls in the same order"
        if _crosswise(case, gap.mine, gap.theirs)
        else "let all ranks take the same arm of the condition, or issue the same operation in both",
        reorders=by_order,
        replaces=not by_order,
    )


def _crosswise(case: Case, mine: Token, theirs: Token) -> bool:
    """True if each side made the other's operation next: both make the two calls, in another order.

    Example: [broadcast, all_reduce] against [all_reduce, broadcast]; each arm of a condition issues both.
    """
    behind = [_behind(case, token) for token in (mine, theirs)]
    return [each and each.op for each in behind] == [theirs.op, mine.op]


def _behind(case: Case, token: Token) -> Token | None:
    """The call that the same rank has issued after it."""
    program = case.programs.get(token.rank)
    return next(iter(program.tokens[token.order + 1 : token.order + 2]), None) if program is not None else None


def _chosen_by_items(case: Case, mine: Token, theirs: Token) -> Condition | None:
    """The loop that both calls are in, in one function, whose items choose between them."""
    where = fork(mine.stack, theirs.stack)
    if where.frames is None or not same_function(*where.frames):
        return None
    a, b = where.frames
    tree = case.sources.function(a.file, a.line)
    found = shared_item_loop(tree, (a.line, b.line)) if tree is not None else None
    return Condition(found[1], a.file, found[0]) if found is not None else None


def _items_differ(case: Case, blame: Blame[Diverged], gap: Gap) -> Condition | None:
    """The loop in which both sides are, if its items decide which call is made.

    Either the items are called themselves and no condition explains the divergence (``for step in steps: step()``), or
    they are tested and both sides have made both calls (``for name in names: if name == 'a': …``).
    """
    if gap.mine is None or gap.theirs is None:
        return None
    where = fork(gap.mine.stack, gap.theirs.stack)
    if where.frames is None or not where.common:
        return None
    (a, _), caller = where.frames, where.mine[where.common - 1]
    tree = case.sources.function(caller.file, caller.line)
    found = None
    if tree is not None and blame.found.branch_point is None:
        found = item_loop(tree, caller.line, plain(a.function))
    if found is None and _both_made_both(case, gap.mine, gap.theirs):
        return _chosen_by_items(case, gap.mine, gap.theirs)
    return Condition(found[1], caller.file, found[0]) if found is not None else None


def _items_unordered(case: Case, blame: Blame[Diverged], gap: Gap) -> Condition | None:
    """The loop in which both sides are, if its items choose what is called, and it goes over what has another order in
    each process. Example: `for kind in wanted & known: ⏎ MEASURES[kind](table)`, of two sets."""
    if gap.mine is None or gap.theirs is None or blame.found.branch_point is not None:
        return None
    mine, theirs = (item_of_unordered(case.sources, token.stack) for token in (gap.mine, gap.theirs))
    return mine.loop if mine is not None and theirs is not None and mine.loop == theirs.loop else None


def _both_made_both(case: Case, mine: Token, theirs: Token) -> bool:
    programs = (case.programs.get(mine.rank), case.programs.get(theirs.rank))
    return all(p is not None and {mine.site, theirs.site} <= {t.site for t in p.tokens} for p in programs)
