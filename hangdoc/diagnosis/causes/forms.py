"""HD101, HD102, HD103, HD106, HD109, HD112, HD702: the ranks' calls differ, named by the form of what parted them.

The guard at which the sides diverged says the form: a handler, or a loop that an exception ended (HD103); a loop that
one side has left (HD102); a condition with another operation in each arm (HD106). Where a library communicates on its
own, that is the name (HD109). Else a call is missing or one too many.

Example: ranks 0 and 1 call all_reduce in `for batch in loader:`, rank 2 has left that loop → HD102.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.crossed_dimensions import CrossedDimensions
from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.exchanged import is_swapped, issued_by_another_thread
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.calls.moved import is_moved
from hangdoc.diagnosis.causes.call_counts import calls_in_loop, compared
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.loop_items import items_differ, items_unordered
from hangdoc.diagnosis.causes.on_devices import of_two_threads
from hangdoc.diagnosis.causes.phrases import call_at, cited, line_of, place, what_a_library_does, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_left_by_exception
from hangdoc.diagnosis.condition.elsewhere.caught import is_run_by_library, only_handler, runs_a_library
from hangdoc.diagnosis.condition.elsewhere.raised import condition_of_raise, thrown_under
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.executions import is_inside
from hangdoc.diagnosis.condition.loops.round_or_loop import skips_of
from hangdoc.diagnosis.condition.loops.way_out import seen_way_out, surely_left
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.caught import last_caught_alone
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, advice, has_role, is_implicit, plain
from hangdoc.diagnosis.frames.library import is_library, package_of
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import lines_of, same_place, task_of, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.handlers import only_looks_up
from hangdoc.diagnosis.source.loops import is_retry_loop, ways_out
from hangdoc.diagnosis.source.queries import leads_to, raises
from hangdoc.diagnosis.source.stopped_by import stops_of
from hangdoc.diagnosis.state.endings import own_words
from hangdoc.model.journal import Journal
from hangdoc.model.message import Condition, Does, Joined, Message, Place, Ranks, Verb, joined, sentence, without
from hangdoc.model.process import Frame, Raised, Stack

_EXCEPTION_UNSEEN = "the exception itself was not seen"
_SAME_ROUNDS = "let all ranks agree on which rounds communicate (all_reduce what the condition tests)"
_BELOW = "see which of the calls below that line some ranks make, and others do not"
_END_OF_ITEMS = ("except StopIteration", "except StopAsyncIteration")
_STOP_TOGETHER = "let all ranks agree on when to stop (all_reduce the flag before anybody leaves the loop)"
_SAME_ITEMS = (
    "let every rank go over equally many items (agree on the count before the loop), and over the same ones where a "
    "call works on one of them"
)
_MAY_BE_A_STOP = "whether the program raises it as an error, or to stop, was not seen"
_ROUND_SKIPPED = "a round that went by without that call looks the same"
_INNER_LOOP = "which of the loops around that call ended was not seen"
_END_UNSEEN = "how the loop ended was not seen"


@cause("HD101", "HD102", "HD103", "HD106", "HD108", "HD109", "HD112", "HD702", explains=Diverged, order=230)
def parted(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """The name by the form of the guard and of the call."""
    gap, point = blame.found.gap, blame.found.branch_point
    if gap is None or gap.token.op == END or isinstance(blame.found, CrossedDimensions):
        return None
    if _run_as_they_get_ready(gap):
        return _in_two_tasks(case, blame, gap)
    if _run_in_two_threads(case, gap):
        return replace(
            of_two_threads(_calls_of(case, blame, gap)), reorders=True, by_chance=not (point and point.recorded)
        )
    if point is not None and point.guard.condition.startswith(_END_OF_ITEMS):
        known = extra_or_missing_call(case, blame, gap)
        dry: Message = [Ranks(blame.culprits), " ran out of items, at ", cited(point.guard, point.file)]
        return replace(known, code="HD102", why=dry, fix=_STOP_TOGETHER)
    if point is not None and _by_exception(case, blame, point, gap):
        return _after_an_exception(case, blame, point, gap)
    if point is not None and point.uneven:
        return _out_of_step(case, blame, point, gap)
    if gap.kind == "delete" and _shuts_down(case, gap.mine) and not _comes_to_shut_down(case, gap):
        return replace(extra_or_missing_call(case, blame, gap), code="HD702", fix=_SHUT_DOWN_TOGETHER)
    unordered = items_unordered(case, gap)
    if _in_two_arms(case, gap, point):
        found = _in_place_of_another(case, blame, gap)
        return replace(found, reorders=True, replaces=False) if unordered is not None else found
    unordered = unordered if point is None else None
    items = unordered or items_differ(case, gap, point)
    if items is not None:
        return _in_another_order(case, blame, gap, items, unordered is not None)
    if is_implicit(gap.token.stack):
        return _on_its_own(case, blame, gap)
    if point is None and gap.theirs is not None and is_moved(blame.found.alignment, gap):
        return replace(_in_place_of_another(case, blame, gap), reorders=True, replaces=False)
    apart = gap.mine is None or gap.theirs is None or gap.mine.site != gap.theirs.site
    return extra_or_missing_call(case, blame, gap) if apart else None


def _run_as_they_get_ready(gap: Gap) -> bool:
    """True if the two calls come from two tasks or callbacks of an event loop."""
    tasks = [_task(token.stack) if token is not None else None for token in (gap.mine, gap.theirs)]
    return None not in tasks and tasks[0] != tasks[1]


def _run_in_two_threads(case: Case, gap: Gap) -> bool:
    """True if both sides make both calls, on one group and in two threads each: the order of the two differs."""
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or mine.group != theirs.group:
        return False
    threads = (issued_by_another_thread(case.programs, *both) for both in ((mine, theirs), (theirs, mine)))
    return all(threads) and is_swapped(case.programs, mine, theirs)


def _task(stack: Stack) -> Place | None:
    first = task_of(stack)
    return Place(first.file, 0, plain(first.function)) if first is not None else None


def _in_two_tasks(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    """HD112."""
    order = "an event loop runs these calls in the order in which they get ready, which differs from rank to rank"
    fix = "await them one after the other, in an order that all ranks share"
    known = _in_place_of_another(case, blame, gap)  # each rank makes both of them
    return replace(known, code="HD112", why=order, fix=fix, doubt="", reorders=True, replaces=False)


def _by_exception(case: Case, blame: Blame[Diverged], point: BranchPoint, gap: Gap) -> bool:
    """True if an exception led one side away: at a `try`, out of a loop, or by a `raise` that a rank went on from."""
    tree = case.sources.function(point.file, point.guard.line)
    if point.guard.kind == "try":
        in_suite = point.guard.taken and point.guarded == 0
        looks_up = in_suite and gap.kind == "delete" and tree is not None
        return not (looks_up and tree is not None and only_looks_up(tree, point.guard.line))
    if point.uneven and point.guarded == 0:
        return tree is not None and is_retry_loop(tree, point.guard.line)
    if point.uneven:
        return fell_out(case, point, blame.culprits, gap.mine)
    return point.guard.kind == "return" and point.guarded == 1 and bool(tree and raises(tree, point.guard.line))


def _after_an_exception(case: Case, blame: Blame[Diverged], point: BranchPoint, gap: Gap) -> Finding:
    """HD103. The handler that the culprits are in is seen; one that they have come out of is not."""
    thrown = others_of(case, blame) if is_left_by_exception(point) and point.guarded == 0 else blame.culprits
    journal, raised = _handling(case, thrown), condition_of_raise(case, thrown)
    # Of a loop that an exception ended, it is the handler around it.
    tries = [point] if point.guard.kind != "loop" else blame.found.branch_points
    handlers = (only_handler(case.sources, gap, each) for each in tries) if raised is None else iter(())
    handler = next((each for each in handlers if each is not None), None)
    at = cited(raised.guard, raised.file) if raised is not None else handler or cited(point.guard, point.file)
    says, wrote = _says(journal), case.last_words(blame.culprits[0])
    calls = "to a call that the others do not make there" if gap.kind == "delete" else "past the others' call"
    seen = journal is not None or point.recorded or point.seen
    inside = point.guard.taken and not point.guard.is_tried and point.guard.condition != "finally:"
    return Finding(
        "HD103",
        extra_or_missing_call(case, blame, gap).verdict,
        joined(
            [
                _error(case, journal, point, thrown),
                " led ",
                Ranks(thrown),
                f" {calls}" if thrown == blame.culprits else "",
                ", at ",
                at,
            ],
            f"it says: {says}" if says else "",
            f"it last wrote: {wrote}" if wrote else "",
        ),
        [
            "let the exception end the process, or make all ranks agree on it (all_reduce a flag) before any of them ",
            "calls again" if gap.kind == "delete" else "skips",
        ],
        _MAY_BE_A_STOP
        if thrown_under(case.sources, at.file, at.line) and raised is None
        else ""
        if seen or inside or (handler is not None and not _runs_a_library(gap, point))
        else _EXCEPTION_UNSEEN,
        decided_at=at if raised is not None or handler is not None else None,
    )


def _runs_a_library(gap: Gap, point: BranchPoint) -> bool:
    return is_run_by_library(gap, point) or runs_a_library(gap, point)


def _handling(case: Case, ranks: tuple[int, ...]) -> Journal | None:
    """The journal of the first of these ranks that still handles an exception."""
    journals = (case.ranks[rank].journal for rank in ranks if rank in case.ranks)
    return next((journal for journal in journals if journal is not None and journal.handled), None)


def _says(journal: Journal | None) -> str:
    """The text of the exception that it still handles."""
    if journal is None:
        return ""
    return own_words(Raised(journal.handled, journal.handled_message, journal.handled_at))


def _error(case: Case, journal: Journal | None, point: BranchPoint, thrown: tuple[int, ...]) -> Message:
    """'the ValueError of train.py:12 load()', where a rank still handles it, or recorders saw it caught there alone."""
    if journal is not None:
        where = place(next(iter(user_stack(journal.handled_at)), None))
        return [f"the {journal.handled}", [" of ", where] if where else ""]
    processes = {rank: each.process for rank, each in case.ranks.items()}
    found = last_caught_alone(case.sources, processes, point.file, point.guard, thrown)
    if found is None:
        return "an exception"
    _, last = found
    return [f"the {last.exception}", [" of ", place(Frame(last.file, last.line, last.function))] if last.file else ""]


def _out_of_step(case: Case, blame: Blame[Diverged], loop: BranchPoint, gap: Gap) -> Finding:
    """HD102: one side has left the loop, the other is in it."""
    culprits, others = blame.culprits, others_of(case, blame)
    early = loop.guarded == 1  # the others' call is the one inside the loop
    left, inside = (culprits, others) if early else (others, culprits)
    at: Condition = cited(loop.guard, loop.file)
    what: Message = "left the loop early" if early else [Verb(culprits, "goes", "go"), " on with the loop"]
    if loop.of_library:
        theirs = f"{package_of(loop.file)}'s loop"
        what = f"left {theirs} early" if early else [Verb(culprits, "is", "are"), f" in {theirs} longer"]
    out = seen_way_out(case, loop, left, inside)
    surely = out is not None or surely_left(case, loop)
    tree = case.sources.function(loop.file, loop.guard.line)
    ways = list(ways_out(tree, loop.guard.line)) if tree is not None else []
    known = loop.recorded or loop.seen or out is not None or len(ways) <= int(surely)
    token = gap.theirs if early else gap.mine
    otherwise = _otherwise(case, loop, token, surely=surely) if token is not None else ""
    stops = _stops(case, loop) if loop.of_library else []
    stopped = len(stops) == 1 and case.execution.is_new((stops[0].file, stops[0].line, stops[0].source), left, inside)
    skips = skips_of(case.sources, blame.found.branch_points)
    left_out = [cited(each.guard, each.file) for each in skips] if early else []
    counts = compared(calls_in_loop(case, blame)) if not loop.own_arm else ""
    return Finding(
        "HD102",
        sentence([Ranks(culprits), " ", what, " (", _run_at(loop, token), ")"], where_they_wait(case, others)),
        joined(
            [at, " ended on ", Ranks(left), _goes_on(loop, inside, token), counts],
            [Ranks(left), " left it at ", cited(out, loop.file)] if out is not None else "",
            ["or ", Joined(left_out, " or "), " left the call out of a round"] if left_out else "",
            [Ranks(left), " ended" if stopped else " may have ended", " it at ", Joined(stops, " or ")]
            if stops
            else "",
        ),
        _alike(loop, token, ends_early=surely or bool(ways)),
        loop.doubt or (_ROUND_SKIPPED if left_out else otherwise or ("" if known or stopped else _END_UNSEEN)),
        decided_at=next(iter(left_out), None) or (stops[0] if len(stops) == 1 else None),
    )


def _run_at(loop: BranchPoint, call: Token | None) -> Place:
    """The loop's line; of a library's loop, the user's that runs it."""
    stack = call.stack if call is not None and loop.of_library else ()
    places = [(frame.file, plain(frame.function)) for frame in stack]
    at = next((i for i, each in enumerate(places) if each == (loop.file, loop.function)), len(stack))
    user = next((frame for frame in stack[at:] if not is_library(frame)), None)
    return Place(user.file, user.line) if user is not None else Place(loop.file, loop.guard.line)


def _alike(loop: BranchPoint, call: Token | None, *, ends_early: bool) -> str:
    """What lets all ranks leave the loop alike; ``call``: the one of the side that has not left it. Whoever is in
    another loop is told of the end; a `for` that nothing but its items ends has them equal."""
    if _is_elsewhere(loop, call):
        return "let whoever leaves the loop tell the others, by a last call that they expect"
    return _STOP_TOGETHER if ends_early or loop.guard.condition.startswith("while ") else _SAME_ITEMS


def _goes_on(loop: BranchPoint, inside: tuple[int, ...], call: Token | None) -> Message:
    """What is said of the side that has not left it: another arm's loop is none that this side is in."""
    if loop.own_arm:
        return [", and ", Ranks(inside), " ", Verb(inside, "expects", "expect"), " another round of it"]
    return "" if _is_elsewhere(loop, call) else [" and not on ", Ranks(inside)]


def _is_elsewhere(loop: BranchPoint, call: Token | None) -> bool:
    """True if the call is not made in the user's loop: whoever made it is in another one."""
    return not loop.of_library and call is not None and not is_inside(call, loop)


def _otherwise(case: Case, loop: BranchPoint, call: Token, *, surely: bool) -> str:
    """What else explains the number of calls: a round that went by without the call, or a loop within that loop. ''
    where nothing lies between the loop and the call. ``surely``: it is known how the loop was left.

    Example: `for batch in loader:` over `for piece in batch: step(piece)` → fewer batches or fewer pieces.
    """
    if loop.recorded or loop.seen or loop.own_arm:
        return ""
    if has_role(call.stack, Role.BACKWARD) and any(map(case.program.places.naming, names("quiet_round"))):
        return _ROUND_SKIPPED  # rounds that make no call, by design
    places = [(frame.file, plain(frame.function)) for frame in call.stack]
    at = next((i for i, each in enumerate(places) if each == (loop.file, loop.function)), -1)
    between = []
    for depth, frame in enumerate(call.stack[: at + 1]):
        tree = case.sources.function(frame.file, frame.line) if not is_library(frame) else None
        around = guards(tree, frame.line) if tree is not None else []
        between += [g.kind for g in around if depth < at or g.line > loop.guard.line]
    if any(kind in (*CONDITIONS, "return", "try") for kind in between):
        return _ROUND_SKIPPED
    return _INNER_LOOP if "loop" in between and not surely else ""


def _stops(case: Case, loop: BranchPoint) -> list[Condition]:
    """The user's conditions that end a library's loop: `if late():` over `trainer.should_stop = True`."""
    found = stops_of(case.sources, Frame(loop.file, loop.guard.line, loop.function))
    return [cited(stop.guard, stop.file) for stop in found if stop.guard is not None][:LISTED]


def _in_two_arms(case: Case, gap: Gap, point: BranchPoint | None) -> bool:
    """True if each side makes a call of its own in place of the other's: in the arms of one condition, or, on devices,
    in one line."""
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or END in (mine.op, theirs.op) or mine.op == theirs.op:
        return False
    if case.programs and mine.group != theirs.group:
        return False  # neither call stands in the place of the other
    if point is not None:
        return point.both_arms
    return bool(case.streams and user_stack(mine.stack)) and lines_of(mine.site) == lines_of(theirs.site)


def _in_place_of_another(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    """HD106."""
    known = extra_or_missing_call(case, blame, gap)
    return Finding(
        "HD106",
        sentence(_calls_of(case, blame, gap)),
        known.why,
        "let all ranks make these calls in one order, or the same call in both arms of the condition",
        known.doubt,
        replaces=True,
    )


def _calls_of(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    """'rank 2 calls all_reduce at train.py:12 where ranks 0 and 1 call all_gather at train.py:20'."""
    assert gap.mine is not None and gap.theirs is not None
    mine: Message = [Does(blame.culprits, "calls", "call"), " ", call_at(gap.mine)]
    return [mine, " where ", Does(others_of(case, blame), "calls", "call"), " ", call_at(gap.theirs)]


def _in_another_order(case: Case, blame: Blame[Diverged], gap: Gap, items: Condition, is_set: bool) -> Finding:
    """HD106 of two calls in one loop, whose items choose the call. ``is_set``: they have another order in each
    process."""
    sides: Message = [Ranks(blame.culprits), " than on ", Ranks(others_of(case, blame))]
    why: Message = [
        "both are in ",
        items,
        ", whose items choose the call: it goes over others, or in another order, on ",
        sides,
    ]
    if is_set:
        why = [items, " chooses the call, and goes over a set, whose order is another one in each process"]
    return replace(
        _in_place_of_another(case, blame, gap),
        why=why,
        fix="iterate over the same items in the same order on all ranks (`sorted`)",
        reorders=is_set,
        replaces=not is_set,
    )


def _shuts_down(case: Case, token: Token | None) -> bool:
    """True if a call that destroys the groups follows it in its function."""
    frame = token.frame if token is not None else None
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    if tree is None or frame is None:
        return False
    return any(leads_to(tree, frame.line, name) for name in names("destroys_group"))


def _comes_to_shut_down(case: Case, gap: Gap) -> bool:
    """True if the others shut down as well, or are below the very line that the culprits are at."""
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or _shuts_down(case, theirs):
        return True
    return any(mine.frame is not None and same_place(mine.frame, frame) for frame in user_stack(theirs.stack))


_SHUT_DOWN_TOGETHER = "let all ranks agree that it is over (all_reduce a flag) and reach the shutdown together"


def _on_its_own(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    """HD109."""
    known, token = extra_or_missing_call(case, blame, gap), gap.token
    library, here = what_a_library_does(token), line_of(token.frame)
    quiet = blame.found.branch_point is not None and blame.found.branch_point.quiet
    cure, same = advice(token.stack), _in_one_line(gap)
    every: Message = ["let every rank run ", here or "that line", ", or none", f" ({cure})" if cure else ""]
    return Finding(
        "HD109",
        without(known.verdict, f" ({library})"),
        joined(
            [
                [here, " does not look like communication, but "] if here else "",
                library,
                ", and every rank has to take part",
            ],
            known.why,
        ),
        _SAME_ROUNDS if quiet else _BELOW if same else every,
        known.doubt,
    )


def _in_one_line(gap: Gap) -> bool:
    return (
        gap.mine is not None and gap.theirs is not None and user_stack(gap.mine.stack) == user_stack(gap.theirs.stack)
    )
