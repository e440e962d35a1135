"""A function that ranks call on another one, and that answers only when a further rank has called it too.

Example: three trainers push gradients to a server, whose `push` waits until all three have come. Trainers 1 and 3 wait
for its answer; trainer 2 has skipped its push and is in the barrier after the loop, with the server → trainer 2.
The call that is missing may be one of another function: pull() waits until all have called push(). It may be a message
to a thread that serves a socket, and the ranks that make it may run what a further rank has called on them.
A function that returns a future (`async_execution`) holds its answers back without any thread that waits.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import partial

from hangdoc.diagnosis.blame.odd_by_value import OutOfStep, odd_by_value
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.calls.stack_calls import from_stacks
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import fork, is_in, same_function, site_of, user_stack
from hangdoc.diagnosis.source.calls_between import receiver_of, remote_function, requests
from hangdoc.diagnosis.source.evaluate import truth
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards
from hangdoc.diagnosis.source.syntax import enclosing_function, walk
from hangdoc.diagnosis.state.threads import Chain, runs_remote_call
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import RankSnapshot
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True)
class MissingRequest(Diverged):
    """``waiting`` called a function whose answer takes one more call of it, which the culprits have not made."""

    waiting: tuple[int, ...] = ()
    called: str = ""
    chain: Chain | None = None
    """From the first of them to the thread that runs the function; None where no thread does any more."""


@dataclass(frozen=True, slots=True)
class NoFurtherRequest(Explanation):
    """``waiting`` called a function whose answer takes a call of another one, which the culprits alone make, at
    ``places``, and will not make again. ``left_out``: lines that make it too, and that no rank has run.

    Example: takers call next_task(), which waits on a queue; only the planner calls file_task(), which fills it.
    """

    waiting: tuple[int, ...]
    chain: Chain
    places: tuple[Frame, ...]
    left_out: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class AllAsked(Explanation):
    """``waiting`` called a function whose answer takes one more call of it, and no other rank is there to make one.

    Example: three evaluators report each round to rank 0, one of them has skipped a round, and all wait for answers.
    """

    waiting: tuple[int, ...]
    called: str
    chain: Chain


def missing_request(
    case: Case,
) -> Blame[MissingRequest] | Blame[NoFurtherRequest] | Blame[AllAsked] | Blame[OutOfStep] | None:
    """The blame of the ranks that neither called the function nor run it, and that wait for those who did; of a
    function that waits for another one, of those that made calls of that one before.

    None where a rank does anything else: it may still be on its way to the call.
    """
    asked = {rank: chain for rank, chain in sorted(case.chains.items()) if _waits_for_a_request(case, rank, chain)}
    servers = {chain.last.rank for chain in asked.values()}
    if not asked:
        return _held_back(case)
    ends = {(at.file, at.line) if (at := chain.last.where) is not None else None for chain in asked.values()}
    if len(servers) != 1 or len(ends) != 1:
        return None
    waiting, chain, unknown = tuple(asked), asked[min(asked)], False
    rest = tuple(r for r in sorted(case.seen) if r not in asked)
    absent = tuple(r for r in rest if r not in servers)
    idle = {rank for rank in servers if serves_on_main(case, rank)}
    if case.hidden or not all(r in idle or case.graph.on(r) & set(asked) for r in rest):
        return None
    # A thread of a pool, or of a socket's own, runs more around what it does for a request.
    servant = user_stack(chain.last.thread.frames)
    called = plain(servant[-1 if runs_remote_call(chain.last.thread) else 0].function)
    if not absent:
        return _all_asked(case, waiting, called, chain) if len(waiting) > 1 and not chain.asked else None
    if chain.asked:
        makers = _makers(case, chain.asked)
        unseen = [r for r in absent if all(case.table.ran(r, at.file, at.line) is None for at in _lines(case, chain))]
        absent = tuple(r for r in absent if r in makers or r in unseen)
        unknown = any(r in unseen for r in absent)
        if not absent or servers & makers.keys():
            return None
        if makers.keys().isdisjoint(waiting):
            return _no_further_request(case, absent, waiting, chain)
    found = without_its_call(case, absent, waiting, called, chain)
    if found is None:
        return None
    proved = chain.last.thread.wakes_in is None
    further = f"a further call of {chain.asked[0]}()" if chain.asked else "a further call"
    sure = f"{called}() waits for {further}, which {ranks_text(absent)} alone could make"
    if len(absent) < len(waiting) and not unknown:
        return Blame(found, absent, proved=proved, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, absent, (waiting,), proved=proved, sure=f"{sure}; or {ranks_text(waiting)} made one too many")


def serves_on_main(case: Case, rank: int) -> bool:
    """True if the rank's main thread only takes requests in, and has other threads answer them."""
    main = below_user(case.activities[rank].stack)
    return any(is_in(frame, "server_file", "serves_in_turn") for frame in main)


def _all_asked(case: Case, waiting: tuple[int, ...], called: str, chain: Chain) -> Blame[AllAsked] | Blame[OutOfStep]:
    """The blame of all that called the function: one of them has left one out, and may be in a later round."""
    if len(waiting) > 2 and (other := odd_by_value(case, waiting)) is not None:
        return other
    sure = f"{called}() waits for a further call, and all that make it wait for its answer"
    proved = chain.last.thread.wakes_in is None
    return Blame(AllAsked(waiting, called, chain), waiting, proved=proved, sure=sure)


def _lines(case: Case, chain: Chain) -> list[Frame]:
    """The lines that call one of the functions whose further call the chain's end waits for."""
    made = requests(case.sources)
    return [at for function in chain.asked for at in made.get(function, ())]


def _makers(case: Case, asked: tuple[str, ...]) -> dict[int, tuple[Frame, ...]]:
    """Rank → the lines at which it has called one of these functions on another rank."""
    made = requests(case.sources)
    places = [at for function in asked for at in made.get(function, ())]
    ran = {rank: tuple(at for at in places if case.table.ran(rank, at.file, at.line)) for rank in case.seen}
    return {rank: lines for rank, lines in ran.items() if lines}


def _no_further_request(
    case: Case, absent: tuple[int, ...], waiting: tuple[int, ...], chain: Chain
) -> Blame[NoFurtherRequest]:
    """The blame of those that alone have called the other function, all of which wait for those that need it."""
    makers, made = _makers(case, chain.asked), requests(case.sources)
    places = tuple(sorted({at for rank in absent for at in makers.get(rank, ())}, key=lambda at: (at.file, at.line)))
    never = [
        at
        for function in chain.asked
        for at in made[function]
        if all(case.table.ran(rank, at.file, at.line) is False for rank in case.seen)
    ]
    sure = f"only {ranks_text(absent)} called {chain.asked[0]}(); or {ranks_text(waiting)} asked once too often"
    found = NoFurtherRequest(waiting, chain, places, tuple(never))
    proved = chain.last.thread.wakes_in is None
    return Blame(found, absent, proved=proved, confidence=Confidence.LIKELY, sure=sure)


def without_its_call(
    case: Case, absent: tuple[int, ...], waiting: tuple[int, ...], called: str, chain: Chain | None = None
) -> MissingRequest | None:
    """The divergence of those who have not called the function from those who have; None if one of them moves."""
    history = from_stacks(case.activities, tuple({activity.kind for activity in case.activities.values()}))
    if not history or not history[0].tokens.keys() >= {*waiting, *absent}:
        return None
    theirs = replace(history[0].tokens[waiting[0]][0], op=called)
    alignment = _without_it(history[0], absent, waiting, theirs)
    points = tuple(branch_points_of(case, alignment))
    if chain is not None and chain.asked:
        theirs = _at_its_request(case, theirs, chain.asked)
        alignment = _without_it(history[0], absent, waiting, theirs)
    return MissingRequest(alignment, points, None, waiting, called, chain)


def _held_back(case: Case) -> Blame[MissingRequest] | None:
    """The blame of the ranks that are past the call at which others wait, where no thread of any rank works on these
    calls: the function has returned a future, and nothing but a further call can set it.

    Example: trainers 1 and 2 wait for the answer of push() in their loop, trainer 3 and the server are in
    rpc.shutdown() behind it, and `if rank > 0:` keeps the server from that loop → trainer 3. None where it cannot be
    told of every rank whether it makes such calls, and where another thread may set the future.
    """
    asked = tuple(r for r, a in sorted(case.activities.items()) if a.kind == ActivityKind.REMOTE_CALL)
    at = case.activities[asked[0]].where if asked else None
    places = {(a.file, a.line) if (a := case.activities[rank].where) is not None else None for rank in asked}
    called = remote_function(at, case.sources)
    rest = tuple(r for r in sorted(case.seen) if r not in asked)
    if len(places) != 1 or not called or case.hidden or any(rank in case.chains for rank in asked):
        return None
    if not all(case.graph.on(r) & set(asked) for r in rest) or any(map(_has_other_threads, case.ranks.values())):
        return None
    comes = {rank: _comes_to(case, rank, asked[0]) for rank in rest}
    absent = tuple(rank for rank in rest if comes[rank])
    found = without_its_call(case, absent, asked, called) if absent and None not in comes.values() else None
    if found is None:
        return None
    sure = f"nothing runs {called}() any more, and {ranks_text(absent)} alone could call it"
    if len(absent) < len(asked):
        return Blame(found, absent, proved=True, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, absent, (asked,), proved=True, sure=f"{sure}; or {ranks_text(asked)} made one too many")


def _has_other_threads(rank: RankSnapshot) -> bool:
    """True if a thread beside the main thread runs code of the user's, or will, or if the threads could not be seen."""
    last = rank.process.last if rank.process is not None else None
    main = last.main if last is not None else None
    if last is None or main is None or not main.frames:
        return True
    others = [thread for thread in last.threads if thread.tid != main.tid]
    return any(user_stack(t.frames) or runs_remote_call(t) or any(map(_acts_later, t.frames)) for t in others)


def _acts_later(frame: Frame) -> bool:
    return frame.file.endswith(names("acts_later_file")) and frame.function in names("acts_later")


def _comes_to(case: Case, rank: int, asked: int) -> bool | None:
    """Whether the rank goes the way to the call as well: by the counters of lines, else by what the function that both
    are in tests around it, by what is set there alone, and by the object whose method leads there; None where that
    cannot be told."""
    at = case.activities[asked].where
    if at is not None and (came := case.table.ran(rank, at.file, at.line)) is not None:
        return came
    where = fork(case.activities[asked].stack, case.activities[rank].stack)
    frames = where.within_function
    tree = case.sources.function(frames[0].file, frames[0].line) if frames is not None else None
    if frames is None or tree is None:
        return None
    own = partial(_value_of, case, rank, frames[0])
    further = where.mine[where.common + 1] if where.common + 1 < len(where.mine) else None
    made_on = receiver_of(frames[0], plain(further.function), case.sources) if further is not None else ""
    if made_on and own(made_on) != _value_of(case, asked, frames[0], made_on):
        return None  # a method of another object may be another one
    truths = []
    for guard in guards(tree, frames[0].line):
        if guard.kind == "loop" and not guard.holds(frames[1].line):
            break  # what the rank did in there, in some round, its values do not show
        if guard.kind in CONDITIONS and not guard.holds(frames[1].line):
            test = _test_of(guard)
            true = truth(test, {name: own(name) for name in guard.names}) if test is not None else None
            went = _set_under(tree, guard, where.theirs[where.common])
            truths.append(went if true is None else true == guard.taken)
    return False if False in truths else None if None in truths else True


def _set_under(tree: ast.AST, guard: Guard, frame: Frame) -> bool | None:
    """True if the frame has a local that its function sets under the guard alone, False if it lacks one; None where
    none is set there.

    Example: `if name != "ps": ⏎ ref = make() ⏎ train(ref)`, and the frame's locals are name and ref → True.
    """
    here = enclosing_function(tree, frame.line)
    stored = [n for n in walk(here) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    within = {n.id for n in stored if guard.holds(n.lineno)} - {n.id for n in stored if not guard.holds(n.lineno)}
    seen = {local.name for local in frame.locals}
    if frame.line < guard.line and not within & seen:
        return None  # it may be still to come there
    return bool(within & seen) if within and seen else None


def _value_of(case: Case, rank: int, at: Frame, name: str) -> str:
    return case.values.of(at.file, at.function, name).get(rank, "")


def _test_of(guard: Guard) -> ast.expr | None:
    """The test of `if …:`; None where its text was shortened."""
    try:
        return ast.parse(guard.condition.removeprefix("if ").removesuffix(":"), mode="eval").body
    except SyntaxError:
        return None


def _waits_for_a_request(case: Case, rank: int, chain: Chain) -> bool:
    """True if the rank called a function that runs on another one, or sent it, or a server of its own, a request, and
    what answers it waits there for a further one."""
    asks = case.activities[rank].kind in (ActivityKind.REMOTE_CALL, ActivityKind.IO)
    return asks and chain.needs_a_request and len(chain.hops) == 2


def _at_its_request(case: Case, token: Token, asked: tuple[str, ...]) -> Token:
    """``token`` as the call of the other function that would end its wait, where a function on its way makes one."""
    made = [(name, at) for name in asked for at in requests(case.sources).get(name, ())]
    for depth, frame in enumerate(token.stack):
        for name, at in made:
            if same_function(frame, at):
                stack = (replace(frame, line=at.line), *token.stack[depth + 1 :])
                return replace(token, op=name, stack=stack, site=site_of(stack))
    return token


def _without_it(history: GroupHistory, absent: tuple[int, ...], waiting: tuple[int, ...], theirs: Token) -> Alignment:
    """The repair by which the absent ranks call the function too."""
    history.members = tuple(sorted((*absent, *waiting)))
    history.tokens = {rank: history.tokens[rank] for rank in history.members}
    mine: Token = history.tokens[absent[0]][0]
    return Alignment(history, len(absent), (Gap("insert", absent, theirs, mine, theirs),), (theirs,))
