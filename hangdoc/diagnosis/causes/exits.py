"""HD4xx: a rank is gone or stopped."""

from __future__ import annotations

from hangdoc.diagnosis.blame.arguments import arguments_text
from hangdoc.diagnosis.blame.launcher import StoppedLauncher
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Gone, Refused
from hangdoc.diagnosis.hypotheses.formed import has_aborted
from hangdoc.diagnosis.state.endings import refused_piece
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Does, Message, Ranks, joined, sentence


@cause("HD403", explains=Gone, order=10)
def stopped(case: Case, blame: Blame[Gone]) -> Finding | None:
    """HD403: state T, by a signal, ctrl-Z or a debugger."""
    held = tuple(r for r in blame.culprits if case.activities[r].kind == ActivityKind.STOPPED)
    if not held:
        return None
    first = case.activities[held[0]]
    pids = " ".join(str(case.activities[r].pid) for r in held if case.activities[r].pid)
    last = process.last if (process := case.ranks[held[0]].process) is not None else None
    traced = last is not None and bool(last.tracer_pid)
    others = tuple(r for r in case.activities if r not in held)
    return Finding(
        "HD403",
        sentence([Does(held, "is", "are"), f" {first.text}", at(first.where)], where_they_wait(case, others)),
        "a debugger holds the process" if traced else "a signal stopped it (SIGSTOP, or ctrl-Z)",
        f"detach the debugger from {pids}" if traced else f"`kill -CONT {pids}` lets the job go on",
    )


@cause("HD104", explains=Gone, order=20)
def refused(case: Case, blame: Blame[Gone]) -> Finding | None:
    """HD104: gloo aborts a rank that gets more bytes than it expects, and says how many."""
    said, dead = case.gloo_refused, tuple(r for r in blame.culprits if has_aborted(case, r))
    if not said or not dead:
        return None
    alone = not any(has_aborted(case, rank) for rank in case.ranks if rank != dead[0])
    piece = refused_piece(said) if alone else ""
    theirs: Message = ""
    if isinstance(blame.found, Refused):
        call = blame.found.call
        theirs = [Ranks(blame.found.others), f" gave {call.op} the tensor {arguments_text(call)}", at(call.frame)]
    entered = " in a collective that the ranks entered with different sizes or dtypes"
    return Finding(
        "HD104",
        sentence(
            [
                Ranks(dead),
                " aborted",
                at(case.activities[dead[0]].where),
                entered,
                f", where it {piece}" if piece else "",
            ],
            theirs,
        ),
        f"gloo ends a rank that receives more bytes than its own tensor has: {said}; either the tensors differ, or one "
        "side is one call late and two different calls were paired",
        "give every rank tensors of the same shape and dtype (pad, or gather the sizes first), and the same calls in "
        "the same order",
    )


@cause("HD403", explains=StoppedLauncher, order=15)
def stopped_launcher(case: Case, blame: Blame[StoppedLauncher]) -> Finding:
    """HD403: the launcher is in state T, and the ranks wait on the store that it serves."""
    found = blame.found
    who = f"the launcher (process {found.pid}), which serves the ranks' store, is"
    how = "held by a debugger" if found.traced else "stopped"
    return Finding(
        "HD403",
        sentence(f"{who} {how}", where_they_wait(case, tuple(case.activities))),
        joined(
            f"no request to the store (port {found.port}) is answered until the launcher runs again",
            "" if found.traced else "a signal stopped it (SIGSTOP, or ctrl-Z): ranks in sessions of their own run on",
        ),
        f"detach the debugger from {found.pid}" if found.traced else f"`kill -CONT {found.pid}` lets the job go on",
    )
