"""HD4xx: a rank is gone or stopped."""

from __future__ import annotations

import signal

from hangdoc.diagnosis.blame.message_blame import MissingPartner
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.finding import Finding, capital, condition_text, others_of, place, verb, wait_sentence
from hangdoc.diagnosis.causes.launching import launch_stack
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, Gone, OutsideWait
from hangdoc.diagnosis.state.activity import exit_text
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.wording import name_ranks

_BY_ITSELF = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})


def _kinds(case: Case, blame: Blame[Explanation]) -> set[str]:
    return {case.activities[r].kind for r in blame.culprits if r in case.activities}


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
    where = f" at {place(first.where)}" if first.where else ""
    waiting = wait_sentence(case, others)
    return Finding(
        "HD403",
        capital(
            f"{name_ranks(held)} {verb(held, 'is', 'are')} {first.text}{where}"
            + (f"; {waiting}" if waiting else "")
            + "."
        ),
        "a debugger holds the process" if traced else "somebody sent SIGSTOP, pressed ctrl-Z or attached a debugger",
        f"detach the debugger from {pids}" if traced else f"`kill -CONT {pids}` lets the job go on",
    )


@cause("HD703", explains=Gone, order=30)
def aborted_at_exit(case: Case, blame: Blame[Gone]) -> Finding | None:
    """HD703: its program had ended, and native code aborted while Python shut down."""
    ends = {rank: case.ranks[rank].exit for rank in blame.culprits}
    dead = tuple(
        rank for rank, end in ends.items() if end and end.signal in _BY_ITSELF and end.leaving and not end.exception
    )
    if not dead:
        return None
    return Finding(
        "HD703",
        f"{name_ranks(dead)} {verb(dead, 'was', 'were')} {exit_text(case.ranks[dead[0]])} while exiting: the program "
        "itself had ended.",
        "Python was shutting down; a native thread that then still touches a Python object is ended by force, which "
        "C++ code may answer with abort",
        "the work of the rank was done; to end well, let the group's threads end before Python does: drop the wrapped "
        "model, gc.collect(), then destroy_process_group()",
    )


@cause("HD402", explains=Gone, order=40)
def killed(case: Case, blame: Blame[Gone]) -> Finding | None:
    """HD402: ended by a signal that nobody of the job sent as a consequence."""
    dead = tuple(r for r in blame.culprits if (end := case.ranks[r].exit) is not None and end.fatal_signal)
    if not dead:
        return None
    end = case.ranks[dead[0]].exit
    assert end is not None
    others = tuple(r for r in case.activities if r not in dead)
    memory = end.signal == 9 and bool(end.oom_kills)
    how = exit_text(case.ranks[dead[0]])
    why = f"the process was {how}"
    if end.signal == 9:
        why += (
            f"; the control group counted {end.oom_kills} out-of-memory kills"
            if memory
            else "; signal 9 often is the kernel's out-of-memory killer"
        )
    by_itself = end.signal in _BY_ITSELF
    if by_itself:
        why += ", which its own native code brought about"
    waiting = _where_the_others_were(case, others) if case.job.ended else wait_sentence(case, others)
    return Finding(
        "HD402",
        capital(
            f"{name_ranks(dead)} {verb(dead, 'was', 'were')} {exit_text(case.ranks[dead[0]])}"
            + (f"; {waiting}" if waiting else "")
            + "."
        ),
        why,
        "give the job more memory or make it use less (batch size, DataLoader workers)"
        if memory
        else "read its last lines, and run it with `python -X faulthandler` to see where it was"
        if by_itself
        else "find out who sent the signal: `dmesg` shows out-of-memory kills, the scheduler's log its own",
    )


@cause("HD104", explains=Gone, order=20)
def aborted_on_sizes(case: Case, blame: Blame[Gone]) -> Finding | None:
    """HD104: gloo aborts a rank that gets more bytes than it expects, instead of hanging."""
    dead = tuple(r for r in blame.culprits if (end := case.ranks[r].exit) is not None and end.signal == signal.SIGABRT)
    if not dead:
        return None
    said = case.gloo_refused
    if not said:
        return None
    others = tuple(r for r in case.activities if r not in dead)
    where = _where_the_others_were(case, others)
    return Finding(
        "HD104",
        capital(
            f"{name_ranks(dead)} aborted in a collective that the ranks entered with different sizes or dtypes"
            + (f"; {where}." if where else ".")
        ),
        f"gloo ends a rank that receives more bytes than its own tensor has: {said}; either the tensors differ, or one "
        "side is a call behind, and two different calls have met",
        "give every rank tensors of the same shape and dtype (pad, or gather the sizes first), and the same calls in "
        "the same order",
    )


def _where_the_others_were(case: Case, others: tuple[int, ...]) -> str:
    """A rank that was killed, or left at once, leaves no line of its own; what its peers were in is the nearest."""
    places = {rank: place(where) for rank in others if (where := case.activities[rank].where) is not None}
    if not places:
        return ""
    there = tuple(rank for rank, at in places.items() if at == next(iter(places.values())))
    return f"{name_ranks(there)} {verb(there, 'was', 'were')} at {places[there[0]]}"


@cause("HD401", explains=(Diverged, Gone, OutsideWait, MissingPartner), order=90)
def exited(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """HD401: the process ended by itself, with status 0 or not, while others wait."""
    if not blame.culprits or not _kinds(case, blame) <= {ActivityKind.EXITED, ActivityKind.ZOMBIE}:
        return None
    gap = blame.diverged.gap if blame.diverged is not None else None
    if gap is not None and _two_calls_met(gap):
        return None  # they had parted before it ended
    first = case.ranks[blame.culprits[0]]
    last = _last_place(case, blame.culprits[0])
    others = others_of(case, blame)
    failed = first.exit is not None and (first.exit.exception or first.exit.status)
    waiting = wait_sentence(case, others) if not case.job.ended else ""
    if case.job.ended and not failed and not last:
        waiting = _where_the_others_were(case, others)
    why = condition_text(case, blame)
    raised = _raised_at(case, first.rank)
    if not why:
        why = f"the process {exit_text(first)}" + (f"; its last call was {last}" if last else "")
        if raised and first.exit is not None:
            why = f"nothing caught the {first.exit.exception} of {raised}"
        said = case.last_words(first.rank)
        why += f"; its log ends with: {said}" if said else ""
    launch = launch_stack(case)
    if launch and not last and not raised:
        why += (
            f"; it never joined: the launch at {place(launch[0])} runs this program again for the other ranks, from "
            "its first line, in a world that rank 0 may have changed meanwhile"
        )
    return Finding(
        "HD401",
        capital(f"{name_ranks(blame.culprits)} {exit_text(first)}"
                + (f" at {raised}" if raised else f" after {last}" if last else "")
                + (f"; {waiting}" if waiting else "") + "."),
        why,
        "mend the failure of that rank; the others only wait for it"
        if failed
        else "let every rank run to the same end: no early return or exit before the last collective",
    )  # fmt: skip


def _two_calls_met(gap: Gap) -> bool:
    """Did both sides issue a call where they parted, each from a line of its own?"""
    sides = [token for token in (gap.mine, gap.theirs) if token is not None and token.op != END]
    return len(sides) == 2 and sides[0].site != sides[1].site


def _raised_at(case: Case, rank: int) -> str:
    """Where its uncaught exception came from; '' where none was seen."""
    end = case.ranks[rank].exit
    if end is None or not end.exception or not end.stack:
        return ""
    return place(case.activities[rank].where or end.stack[0])


def _last_place(case: Case, rank: int) -> str:
    program = case.programs.get(rank)
    if program is None or not program.tokens:
        return ""
    token = program.tokens[-1]
    return f"{token.op} at {place(token.frame)}" if token.frame else token.op
