"""The condition that the sides took differently, in words that many rules share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import distinct
from hangdoc.diagnosis.calls.own_calls import calls_of, who_came_by
from hangdoc.diagnosis.causes.finding import others_of
from hangdoc.diagnosis.causes.phrases import cited, place
from hangdoc.diagnosis.causes.wait_chain import child_stacks, stack_of_child
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_telling
from hangdoc.diagnosis.condition.branch_values import is_of_later, telling_names, values_of_methods
from hangdoc.diagnosis.condition.choice import also_on_the_way, both_are_under, on_own_way
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.raised import thrown_under
from hangdoc.diagnosis.condition.elsewhere.set_before import REORDERED, with_settings
from hangdoc.diagnosis.condition.elsewhere.unordered import item_of_unordered, unordered_at
from hangdoc.diagnosis.condition.further_on import further_on
from hangdoc.diagnosis.condition.loops.executions import is_inside
from hangdoc.diagnosis.condition.loops.iterators import iterator_answers
from hangdoc.diagnosis.condition.loops.loop_counts import calls_what_it_holds, goes_round_alike
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import fork, same_function, user_stack
from hangdoc.diagnosis.source.evaluate import test_at
from hangdoc.diagnosis.source.guards import CONDITIONS, loops_around
from hangdoc.diagnosis.source.loops import reads_in_pieces
from hangdoc.diagnosis.source.syntax import function_name
from hangdoc.model.diagnosis import Branch, BranchAnswer, Divergence
from hangdoc.model.kinds import GONE
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Values, Verb, conditions_in
from hangdoc.model.process import Stack


def what_decided(case: Case, blame: Blame[Explanation]) -> Message:
    """The condition that the sides took differently, and its values; '' where none was found."""
    found = blame.diverged
    if found is None or not found.branch_points:
        return ""
    sides = who_asked(case, found.gap, found.branch_points[0], (blame.culprits, others_of(case, blame)))
    condition = condition_text(case, found.branch_points, sides, gap=found.gap)
    # Where the ranks have gone on since, the values of now say nothing.
    hidden = found.past or further_on(case, found.gap, found.branch_points[0], sides)
    return condition if hidden else [condition, values_text(case, found.branch_points[0], sides)]


def who_asked(
    case: Case, gap: Gap | None, point: BranchPoint, sides: tuple[tuple[int, ...], tuple[int, ...]]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of each side those who came to their call through the condition's function, where some of them did not: of the
    others it was never asked."""
    if gap is None:
        return sides
    mine, theirs = (
        who_came_by(calls_of(case.histories, token, ranks), ranks, point.file, point.function) if token else ranks
        for token, ranks in zip((gap.mine, gap.theirs), sides, strict=True)
    )
    return mine, theirs


def passed_on_its_way(case: Case, blame: Blame[Explanation]) -> Message:
    """'`if full:` (log.py:41) was True on rank 1 on its way there': what led the culprit to where it waits; '' where
    nothing on its way tells it from the others.

    Of a lock that a thread takes twice, what lies between the two comes first. Of a wait that leads to a child, its way
    is asked, and compared with that of the others' children.
    """
    others = tuple(rank for rank in others_of(case, blame) if case.activities[rank].kind not in GONE)
    if not others:
        return ""
    sides = (blame.culprits, others)
    child = stack_of_child(case, blame.culprits[0])
    if child:
        theirs = [stack for rank in others for stack in child_stacks(case, rank)]
        nearest = max(theirs, key=lambda stack: fork(child, stack).common, default=())
        found = on_own_way(case, (child, nearest), sides)
        if found:
            # Without a child of the others to compare it with, what it was started for is on its way as well.
            likeliest = [point for point in found if point.score == found[0].score]
            return [*_cited_truth(likeliest[0 if nearest else -1]), " in that process on its way there"]
    for worker in _pool_workers(case, blame.culprits[0]):
        found = on_own_way(case, (worker, ()), sides)
        if found:
            return [*_cited_truth(found[0]), " in that thread on its way there"]
    mine = case.activities[blame.culprits[0]].stack
    found = on_own_way(case, (mine, case.activities[others[0]].stack), sides)
    if (chain := case.chains.get(blame.culprits[0])) is not None and chain.last.rank != blame.culprits[0]:
        further_in = _still_in_its_loop(case, blame.culprits[0], others)
        found = [] if further_in and any(_went_alike(case, found[:1], rank) for rank in others) else found
        if further_in and not found:
            return further_in
    within = [point for point in found if _since_the_lock(case, blame.culprits[0], point)]
    if not found:
        return ""
    point = (within or found)[0]
    first = blame.culprits[:1]
    return [*_cited_truth(point), " on ", Ranks(first), " on its way there", values_text(case, point, sides)]


def _went_alike(case: Case, points: Sequence[BranchPoint], rank: int) -> bool:
    """True if, by the values seen, the first condition went on that rank as it went on the culprit."""
    for point in points:
        test = test_at(case.sources.function(point.file, point.guard.line), point.guard.line)
        return case.values.truths(point.file, point.function, test, (rank,))[rank] == point.guard.taken
    return False


def _still_in_its_loop(case: Case, rank: int, others: tuple[int, ...]) -> Message:
    """'`for name in self.files:` (feed.py:61) goes on on rank 3 and has ended on ranks 1 and 2': of a rank that waits
    for a thread of another one, which may need the others' calls as well; '' where no other has been in its loop."""
    for frame in user_stack(case.activities[rank].stack):
        tree = case.sources.function(frame.file, frame.line)
        loops = loops_around(tree, frame.line)
        if tree is not None and reads_in_pieces(tree, frame.line):
            continue  # one answer, in as many rounds as it has pieces
        left = case.table.split(others if loops else (), frame.file, frame.line).ran
        if left and not any(same_function(frame, f) for r in left for f in user_stack(case.activities[r].stack)):
            return [cited(loops[-1], frame.file), " goes on on ", Ranks((rank,)), " and has ended on ", Ranks(left)]
    return ""


def _pool_workers(case: Case, rank: int) -> list[Stack]:
    """The stacks of the rank's threads in which tasks of a pool wait for tasks of the same pool."""
    process, found = case.ranks[rank].process, case.deadlocks.get(rank)
    threads = process.last.threads if found is not None and process is not None and process.last is not None else ()
    return [t.frames for t in threads if found is not None and {*found.pool}.intersection(user_stack(t.frames)[:1])]


def _cited_truth(point: BranchPoint) -> list[Message]:
    taken = {"match": "taken", "try": "entered"}.get(point.guard.kind, str(point.guard.taken))
    return [cited(point.guard, point.file), f" was {taken}"]


def _since_the_lock(case: Case, rank: int, point: BranchPoint) -> bool:
    """True if the rank's main thread passed it between taking a lock and waiting for that same lock."""
    circle = case.deadlocks[rank].circle if rank in case.deadlocks else ()
    main, taken = case.activities[rank].stack, circle[0][1].frame if len(circle) == 1 else None
    at = next((i for i, f in enumerate(main) if taken and same_function(f, taken)), -1)
    if taken is None or at < 0 or circle[0][1].thread.frames != main:
        return False
    way = [(f.file, plain(f.function), f.line) for f in main[: at + 1]]
    if (point.file, point.function, point.line) not in way:
        return False
    return (point.file, point.function, point.line) != way[-1] or point.guard.line > taken.line


def condition_text(
    case: Case, points: Sequence[BranchPoint], sides: tuple[tuple[int, ...], tuple[int, ...]], *, gap: Gap | None = None
) -> Message:
    """'`if loss < best:` (train.py:41) was True on rank 1 and False on rank 0'; ``sides[0]`` are the culprits."""
    point = points[0]
    condition = cited(point.guard, point.file)
    also = also_on_the_way(points)
    if also:
        either = Joined([condition, *(cited(p.guard, p.file) for p in also)], " or ")
        return [either, " went differently on ", Ranks(sides[0]), " than on ", Ranks(sides[1])]
    here, there = sides[point.guarded], sides[1 - point.guarded]
    kind = point.guard.kind
    if point.quiet:
        return [condition, " decides which rounds communicate, and was decided by each rank for itself"]
    if kind in CONDITIONS:
        made = f", under which {point.made} is made," if point.made else ""
        if point.registered and point.line != point.guard.line:
            made = f", under which {point.registered}() is registered,"
        return [condition, made, _truth(case, point, gap, here, there)]
    if kind == "match":
        return [condition, " was taken on ", Ranks(here), " and not on ", Ranks(there)]
    if kind == "loop":
        return [condition, " goes on on ", Ranks(here), " and has ended on ", Ranks(there)]
    if kind == "try":
        return _exception(point, condition, here, there)
    if kind == "decorator":
        return [condition, _decorated(point, here, there)]
    return condition


def _truth(case: Case, point: BranchPoint, gap: Gap | None, here: tuple[int, ...], there: tuple[int, ...]) -> Message:
    taken = point.guard.taken
    if point.own_arm:
        return [f" was {not taken} on ", Ranks(there)]
    if gap is not None and both_are_under(case, gap, point):
        return [f" was {taken} on ", Ranks(here), ", and on ", Ranks(there), f" at another call of {point.function}()"]
    if may_run_another(case, point):
        return [f" was {taken} on ", Ranks(here), "; ", Ranks(there), f" may run another {point.function}()"]
    ranks = (there, here) if point.guarded else (here, there)
    further = further_on(case, gap, point, ranks)
    if further:
        told: Message = [f" was {taken} on ", Ranks(here), "; ", Ranks(there), " may have passed it, too"]
        if further.unread is not None:
            return [told, ", and come back from ", place(further.unread), ", whose source was not read"]
        return [told, ", and gone another way in the library, at ", Joined(further.by_library, " or ")]
    loop = item_of(case, point, gap)
    if loop is not None and not point.seen:
        item: Message = [f" was {taken} on ", Ranks(here), ", for an item of ", loop]
        return [item, "; ", Ranks(there), " went the other way, or ", Verb(there, "has", "have"), " no such item"]
    truths: list[Message] = [[f"{taken} on ", Ranks(here)], [f"{not taken} on ", Ranks(there)]]
    if point.guarded == 1:
        truths.reverse()  # the culprits' side first
    return [" was ", Joined(truths, " and ")]


def _exception(point: BranchPoint, condition: Condition, here: tuple[int, ...], there: tuple[int, ...]) -> Message:
    if point.guard.is_tried:
        return ["an exception may have led ", Ranks(there), " out of ", condition]
    if point.guard.taken and point.guard.condition != "finally:":
        return [Does(here, "is", "are"), " in ", condition, ", after an exception"]
    return condition


def _decorated(point: BranchPoint, here: tuple[int, ...], there: tuple[int, ...]) -> Message:
    if point.rank_like:
        return [" lets ", Ranks(here), f" alone run {point.function}()"]
    without = f" may have had this one already, without running {point.function}()"
    return [" keeps results: ", Ranks(there), without]


def values_text(case: Case, point: BranchPoint, sides: tuple[tuple[int, ...], tuple[int, ...]]) -> Message:
    """' (loss = 0.5 on rank 1, 0.7 on ranks 0 and 2)' for each name that shows why the condition went as it did."""
    tested = [
        (name, case.values.tested(case.sources, point.file, point.function, point.guard, name))
        for name in telling_names(case.sources, case.values, point)
    ]
    later = is_of_later(case.sources, case.values, point, sides)
    found = [(name, per_rank) for name, per_rank in tested if len(set(per_rank.values())) > 1 and not later]
    found += values_of_methods(case.values, point, sides).items()
    found = [(name, per_rank) for name, per_rank in found if name not in dict(point.given)]
    found += [(name, dict(given)) for name, given in point.given]
    return [[f" ({name} = ", Values(per_rank), ")"] for name, per_rank in found]


def answers_to_conditions(case: Case, said: Message, branch: Branch | None = None, *, by_rank: bool = True) -> Message:
    """'spiked() is decided by `if loss > self.limit:` (guard.py:57)', of what the conditions of a message ask.

    ``by_rank``: what the rank alone decides is a reason. It is none among ranks that have parts to play by their rank.
    """
    cited = list(conditions_in(said))[:LISTED]
    asked = (_answers(case, each.file, each.line, branch, by_rank=by_rank) for each in cited)
    found = dict.fromkeys(answer for each in asked for answer in each)
    # A test that is cited already is no news.
    known = set(cited)
    told: list[tuple[str, tuple[Condition, ...]]] = []
    for answer in found:
        told.append((subject_of(answer), tuple(test for test in answer.tests if test not in known)))
        known.update(answer.tests if answer.how == REORDERED else ())
    # Two answers that differ only in what is not told, are told once.
    return Joined([[subject, Joined(tests, " and ")] for subject, tests in dict.fromkeys(told) if tests])


def subject_of(answer: Answer) -> str:
    """'spiked() is decided by ', '`self.stale` is set under '."""
    if answer.subject:
        name = answer.subject if answer.subject.endswith(")") else f"`{answer.subject}`"
        return f"{name} {answer.how} "
    return f"{answer.function}() {answer.how} "


def answers_at(case: Case, condition: Condition) -> list[Answer]:
    """What decides the condition, in functions that it asks."""
    return _answers(case, condition.file, condition.line, None)


def _answers(case: Case, file: str, line: int, branch: Branch | None, *, by_rank: bool = True) -> list[Answer]:
    """What decides the condition, handler or loop at that line, in functions that it asks, or where what it tests was
    set."""
    found = thrown_under(case.sources, file, line)
    tree = case.sources.function(file, line)
    function = function_name(tree, line) if tree is not None else ""
    found = found or iterator_answers(case.sources, lambda name: case.values.of(file, function, name), file, line)
    known = branch.values if branch is not None and (branch.file, branch.line) == (file, line) else ()
    seen = {name: [each for each in known if each.name == name] for name in {each.name for each in known}}
    alike = {name for name, values in seen.items() if len(values) == 1 and len(values[0].ranks) == len(case.ranks)}
    found = with_settings(case.sources, file, line, found, alike.__contains__, by_rank=by_rank)
    found = [replace(each, tests=tuple(t for t in each.tests if not _came_out_alike(case, t))) for each in found]
    found = [each for each in found if each.tests]
    unordered = unordered_at(case.sources, file, line)
    if unordered is None:
        return found
    made = {(each.file, each.line) for each in unordered.tests}
    return [unordered, *(each for each in found if not made.issuperset((t.file, t.line) for t in each.tests))]


def _came_out_alike(case: Case, test: Condition) -> bool:
    """True if the recorders show that the test has only ever come out in one way, on all ranks that came to it; on one
    alone, more than once."""
    outcomes = case.table.outcomes
    ranks = outcomes.recorded() if case.execution else {}
    came = [rank for rank in ranks if outcomes.on_line((rank,), test.file, test.line)]
    places = outcomes.on_line(came, test.file, test.line)
    often = len(came) > 1 or all((one := outcomes.of(came[0], place)) and one.times > 1 for place in places)
    return bool(places) and often and all(outcomes.is_alike(came, place) for place in places)


def chosen_without_order(case: Case, stack: Stack) -> tuple[Message, Condition | None]:
    """'`for role in roles:` (train.py:30) chooses what it is given', and that loop, where it goes over something that
    has another order in each process."""
    found = item_of_unordered(case.sources, stack)
    return ([found.loop, " chooses what the call is given"], found.loop) if found is not None else ("", None)


def with_answers(case: Case, found: Divergence | None, *, by_rank: bool = True) -> Divergence | None:
    """The divergence with the tests by which functions answer that its condition asks; then each condition that may
    have decided in its place, with what that one asks. Three such tests in all. ``by_rank``: as above."""
    branch = found.branch if found is not None else None
    if found is None or branch is None:
        return found
    by = decided_by(_answers(case, branch.file, branch.line, branch, by_rank=by_rank))
    known = {(branch.file, branch.line), *((each.file, each.line) for each in (*branch.answers, *by))}
    left = LISTED - len(by)
    told = {(each.file, each.line) for each in by}
    for other in branch.answers:
        if not other.function and (other.file, other.line) in told:
            continue
        more = decided_by(_answers(case, other.file, other.line, None, by_rank=by_rank))
        more = [each for each in more if (each.file, each.line) not in known][: max(0, left)]
        known |= {(each.file, each.line) for each in more}
        left -= len(more)
        by += [other, *more]
    return replace(found, branch=replace(branch, answers=tuple(by)))


def decided_by(found: list[Answer]) -> list[BranchAnswer]:
    """The tests of the answers, as a document lists them."""
    return [
        BranchAnswer(answer.function, test.file, test.line, test.source, answer.subject)
        for answer in found
        for test in answer.tests
    ]


def may_run_another(case: Case, point: BranchPoint | None) -> bool:
    """True if several classes have a method of this name: the other side may have run another one.

    Example: the guard is in ``Tower.forward``, and ``Head.forward`` exists as well.
    """
    return point is not None and not point.seen and has_namesakes(case, point) and not _all_have_run(case, point)


def has_namesakes(case: Case, point: BranchPoint) -> bool:
    """The same, though every rank has run the one of the guard before: it may have been another one this time."""
    return (
        point.level > 0
        and not (point.made or point.registered or point.given)
        and case.sources.methods(point.function) > 1
    )


def _all_have_run(case: Case, point: BranchPoint) -> bool:
    """True if every rank has issued a call from the very function of the guard before: then all run the same one."""
    text = case.sources.text(point.file, point.guard.line)
    if text is None or text.function != point.function or len(case.programs) < len(case.ranks):
        return False
    return all(
        any(
            frame.file == point.file and plain(frame.function) == point.function and text.holds(frame.line)
            for stack in program.recording.issued_from
            for frame in stack
        )
        for program, _ in distinct(case.programs)
    )


def item_of(case: Case, point: BranchPoint | None, gap: Gap | None) -> Condition | None:
    """The loop around the condition that the other side is not in, whose items the condition tests, or which alone may
    have had fewer items there: nothing that was seen tells that the condition itself went another way.

    Example: ``if name.endswith(".bias"):`` in ``for name in names:`` → the `for`.
    """
    tree = case.sources.function(point.file, point.guard.line) if point is not None else None
    if point is None or gap is None or tree is None:
        return None
    tested = {name.partition(".")[0] for name in point.guard.names}
    loops = [g for g in loops_around(tree, point.guard.line) if set(g.counters) - set(g.rounds)]
    loop = next((g for g in reversed(loops) if tested & (set(g.counters) - set(g.rounds))), None)
    if loop is None and loops and not (is_telling(point) or point.seen):
        loop = loops[-1] if _may_have_fewer(case, replace(point, guard=loops[-1])) else None
    token = (gap.mine, gap.theirs)[1 - point.guarded]
    if loop is None or (token is not None and is_inside(token, replace(point, guard=loop))):
        return None
    return cited(loop, point.file)


def _may_have_fewer(case: Case, loop: BranchPoint) -> bool:
    """True unless the loop's bounds, or that it calls the parts of a program, make it go round equally often."""
    return not (goes_round_alike(case, loop) or calls_what_it_holds(case, loop))
