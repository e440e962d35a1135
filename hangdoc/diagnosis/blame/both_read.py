"""Two ranks that each wait for data from the other, over a connection of the program's own.

Stacks show the same on both sides, and no journal counts what they have sent. But the source says which of them always
sends before it waits: that one has asked, and the other one has come to its wait without an answer.

Example: rank 1 is in `conn.send(request) ⏎ return conn.recv()`, rank 0 in `request = conn.recv()` of its loop, where
`if request.version < version: ⏎ continue` comes before the answer → rank 0, by that `if`.

Where the one that waits for requests has served others, who are past that, it serves in correct code: then the one that
it does not get on with has sent something else than they have.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.blame.shared_by_processes import is_past_them
from hangdoc.diagnosis.condition.around_message import leave_out_the_next, sent_before
from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.message_calls import passes_message
from hangdoc.diagnosis.source.queries import calls_in
from hangdoc.diagnosis.source.syntax import LOOPS, enclosing_function, holds, walk
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.message import Condition
from hangdoc.model.process import Frame

_SENDS = "sends_data"
_MOST_CONDITIONS = 3
"""That a sentence names; more of them say nothing. Chosen by hand."""


@dataclass(frozen=True, slots=True)
class BothRead(Explanation):
    """``asker`` has sent something ``at`` a line and waits for the answer; ``server`` waits for more from it, and has
    given the ``served`` what they asked for. ``by``: what decides whether the culprit sends what the other one awaits.
    """

    asker: int
    server: int
    at: Frame
    served: tuple[int, ...] = ()
    by: tuple[Condition, ...] = ()


def both_read(case: Case) -> Blame[BothRead] | None:
    """The blame of one of such a pair, where all other stuck ranks only wait for these; None where the source does not
    tell them apart."""
    pair = next((p for r in sorted(case.graph.stuck) if (p := _pair(case, r)) is not None), None)
    if pair is None or case.hidden or not case.graph.dissolves(pair):
        return None
    asking = {rank: at for rank in pair if (at := sent_before(case.sources, case.activities[rank].stack, _SENDS))}
    if len(asking) != 1:
        return None
    ((asker, at),) = asking.items()
    (server,) = (rank for rank in pair if rank != asker)
    served = tuple(r for r in sorted(case.seen - set(pair)) if is_past_them(case, r, asker))
    sure = f"ranks {pair[0]} and {pair[1]} each wait for data from the other, and rank {asker} alone always sends first"
    if served:
        found = BothRead(asker, server, at, served, _sent_otherwise(case, asker))
        sure = f"{sure}; others have been served there"
        return Blame(found, (asker,), proved=True, confidence=Confidence.LIKELY, sure=sure)
    found = BothRead(asker, server, at, (), _left_unanswered(case, server))
    return Blame(found, (server,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _pair(case: Case, rank: int) -> tuple[int, int] | None:
    on = case.graph.on(rank)
    other = next(iter(on), rank)
    if len(on) != 1 or other == rank or case.graph.on(other) != {rank} or other < rank:
        return None
    return (rank, other) if _reads(case, rank) and _reads(case, other) else None


def _reads(case: Case, rank: int) -> bool:
    process = case.ranks[rank].process if rank in case.ranks else None
    kind = case.activities[rank].kind
    files = process.blocking_files if process is not None and kind in (ActivityKind.IO, ActivityKind.PIPE) else ()
    return bool(files) and all(file.operation in names("reads_data", of="kernel") for file in files)


def _left_unanswered(case: Case, rank: int) -> tuple[Condition, ...]:
    """The conditions by which a round of the rank's loop ends without an answer, else those around its answers."""
    stack = case.activities[rank].stack
    return _few(leave_out_the_next(case.sources, stack, _SENDS) or _around_sends(case, rank, before=False))


def _sent_otherwise(case: Case, rank: int) -> tuple[Condition, ...]:
    """The conditions around what the rank sends before it waits."""
    return _few(_around_sends(case, rank, before=True))


def _around_sends(case: Case, rank: int, *, before: bool) -> list[Condition]:
    """The conditions around the calls that send, in the innermost of the rank's functions that has any: those before
    the line at which it waits, or those anywhere in the loop around it."""
    for frame in user_stack(case.activities[rank].stack):
        tree = case.sources.function(frame.file, frame.line)
        function = enclosing_function(tree, frame.line) if tree is not None else None
        if function is None:
            continue
        loops = [n for n in walk(function) if isinstance(n, LOOPS) and holds(n, frame.line)]
        within = function if before or not loops else loops[0]
        calls = calls_in([n for n in getattr(within, "body", []) if isinstance(n, ast.stmt)])
        sends = [call for call in calls if passes_message(case.sources, call, names(_SENDS))]
        sends = [call for call in sends if not before or call.lineno < frame.line]
        found: dict[Condition, None] = {}
        for call in sends:
            around = (g for g in guards(function, call.lineno) if g.kind in CONDITIONS and not g.holds(frame.line))
            own = (g for g in around if not any(map(is_rank_name, g.names)))
            found |= dict.fromkeys(Condition(g.condition, frame.file, g.line) for g in own)
        if found:
            return list(found)
    return []


def _few(conditions: list[Condition]) -> tuple[Condition, ...]:
    return tuple(conditions) if len(conditions) <= _MOST_CONDITIONS else ()
