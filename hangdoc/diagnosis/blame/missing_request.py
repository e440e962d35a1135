"""A function that ranks call on another one, and that answers only when a further rank has called it too.

Example: three trainers push gradients to a server, whose `push` waits until all three have come. Trainers 1 and 3 wait
for its answer; trainer 2 has skipped its push and is in the barrier after the loop, with the server → trainer 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.calls.stack_calls import from_stacks
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.state.threads import Chain, End, runs_remote_call
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True)
class MissingRequest(Diverged):
    """``waiting`` called a function whose answer takes one more call of it, which the culprits have not made."""

    waiting: tuple[int, ...] = ()
    chain: Chain | None = None
    """From the first of them to the thread that runs the function."""


def missing_request(case: Case) -> Blame[MissingRequest] | None:
    """The blame of the ranks that neither called the function nor run it, and that wait for those who did.

    None where a rank does anything else: it may still be on its way to the call.
    """
    asked = {rank: chain for rank, chain in sorted(case.chains.items()) if _waits_for_a_request(case, rank, chain)}
    servers = {chain.last.rank for chain in asked.values()}
    if not asked or len(servers) != 1 or len({chain.last.where for chain in asked.values()}) != 1:
        return None
    waiting, chain = tuple(asked), asked[min(asked)]
    rest = tuple(r for r in sorted(case.seen) if r not in asked)
    absent = tuple(r for r in rest if r not in servers)
    if case.hidden or not absent or not all(case.graph.on(r) & set(asked) for r in rest):
        return None
    history = from_stacks(case.activities, tuple({case.activities[r].kind for r in (*waiting, *rest)}))
    if not history or not history[0].tokens.keys() >= {*waiting, *absent}:
        return None  # one of them moves
    called = plain(user_stack(chain.last.thread.frames)[-1].function)
    alignment = _without_it(history[0], absent, waiting, called)
    found = MissingRequest(alignment, tuple(branch_points_of(case, alignment)), None, waiting, chain)
    proved = chain.last.thread.wakes_in is None
    sure = f"{called}() waits for a further call, which {ranks_text(absent)} alone could make"
    if len(absent) < len(waiting):
        return Blame(found, absent, proved=proved, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, absent, (waiting,), proved=proved, sure=f"{sure}; or {ranks_text(waiting)} made one too many")


def _waits_for_a_request(case: Case, rank: int, chain: Chain) -> bool:
    """True if the rank called a function that runs on another one and waits there for a further call of it."""
    if case.activities[rank].kind != ActivityKind.REMOTE_CALL or chain.end is not End.REQUEST:
        return False
    return len(chain.hops) == 2 and chain.last.rank != rank and runs_remote_call(chain.last.thread)


def _without_it(history: GroupHistory, absent: tuple[int, ...], waiting: tuple[int, ...], called: str) -> Alignment:
    """The repair by which the absent ranks call the function too."""
    history.members = tuple(sorted((*absent, *waiting)))
    history.tokens = {rank: history.tokens[rank] for rank in history.members}
    theirs: Token = replace(history.tokens[waiting[0]][0], op=called)
    mine: Token = history.tokens[absent[0]][0]
    return Alignment(history, len(absent), (Gap("insert", absent, theirs, mine, theirs),), (theirs,))
