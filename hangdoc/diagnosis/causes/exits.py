"""HD4xx: a rank is gone or stopped."""

from __future__ import annotations

import signal

from hangdoc.diagnosis.blame.arguments import arguments_text
from hangdoc.diagnosis.blame.launcher import StoppedLauncher
from hangdoc.diagnosis.blame.message_blame import MissingPartner
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.deciding import what_decided
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.launching import launch_stack
from hangdoc.diagnosis.causes.left_program import early_end
from hangdoc.diagnosis.causes.phrases import at, last_issued, one_place, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.caught import only_handler
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import (
    Blame,
    Diverged,
    EndedFirst,
    EndedMeanwhile,
    Explanation,
    Gone,
    OutsideWait,
    Refused,
)
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.queries import leaves_for_good
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.diagnosis.state.endings import exit_text, is_echo, origin, own_words, refused_piece
from hangdoc.model.kinds import GONE, ActivityKind
from hangdoc.model.message import Condition, Does, Message, Ranks, Verb, joined, sentence
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import RankSnapshot
from hangdoc.model.wording import name_duration

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
    return Finding(
        "HD403",
        sentence([Does(held, "is", "are"), f" {first.text}", at(first.where)], where_they_wait(case, others)),
        "a debugger holds the process" if traced else "a signal stopped it (SIGSTOP, or ctrl-Z)",
        f"detach the debugger from {pids}" if traced else f"`kill -CONT {pids}` lets the job go on",
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
        sentence(
            [Does(dead, "was", "were"), f" {exit_text(case.ranks[dead[0]])} while exiting: the program had ended"],
        ),
        "Python was shutting down; a native thread that then still touches a Python object is ended by force, which "
        "C++ code may answer with abort",
        "let what runs in native threads end before Python does: wait for every asynchronous call and its callbacks, "
        "drop what holds on to the process group (a wrapped model, say), then destroy_process_group()",
    )


@cause("HD401", explains=EndedMeanwhile, order=35)
def ended_meanwhile(case: Case, blame: Blame[EndedMeanwhile]) -> Finding:
    """HD401: its launcher ended it in its own clean-up, or at whatever else it did; the others had failed for it."""
    error, rank = blame.found.error, blame.culprits[0]
    where = next(iter(user_stack(error.stack)), None) if error is not None else None
    raised: Message = (
        "was in none of the calls that the others waited in," if blame.found.timed_out else "left its peers"
    )
    if error is not None:
        raised = [f"raised {error.exception}", at(where)]
    words = own_words(error) if error is not None else ""
    last = _last_place(case, rank)
    return Finding(
        "HD401",
        sentence(
            [Ranks(blame.culprits), " ", raised, " and had not come to an end when its launcher ended it"],
            _where_the_others_were(case, blame.found.others),
        ),
        joined(
            f"the {error.exception} says: {words}" if error is not None and words else "",
            ["its last call was ", last] if last else "",
            "the others' wait for it timed out"
            if blame.found.timed_out
            else "the others failed because it had closed its connections",
        ),
        "mend the failure of that rank"
        if error is not None
        else "find out what that rank did meanwhile: with --stall-after below the group's timeout, `hangdoc watch` "
        "looks at it while the others still wait",
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
    memory = end.for_memory
    how = exit_text(case.ranks[dead[0]])
    by_itself = end.signal in _BY_ITSELF
    where = one_place(case, dead)
    from_outside = end.signal == signal.SIGKILL
    killer = "the kernel's out-of-memory killer sends signal 9, and so do schedulers" if from_outside else ""
    return Finding(
        "HD402",
        sentence(
            [Does(dead, "was", "were"), f" {how}", at(where)],
            _where_the_others_were(case, others) if case.job.ended else where_they_wait(case, others),
        ),
        joined(
            "its own native code raised that signal" if by_itself else "",
            f"the control group counted {end.oom_kills} out-of-memory kills" if memory else killer,
        ),
        "give the job more memory or make it use less (batch size, DataLoader workers)"
        if memory
        else "read its last lines; the native code below that line is in a core file: `ulimit -c unlimited`, then "
        "`gdb python CORE`"
        if by_itself and where is not None
        else "read its last lines, and run it with `python -X faulthandler` to see where it was"
        if by_itself
        else "find out who sent the signal: `dmesg` shows out-of-memory kills, the scheduler's log its own"
        if from_outside
        else "find out who sent the signal: a scheduler's log shows its own, the launcher's output the launcher's",
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
    several = sum(each.exit is not None and each.exit.signal == signal.SIGABRT for each in case.ranks.values()) > 1
    piece = refused_piece(said)
    refused = blame.found if isinstance(blame.found, Refused) else None
    theirs: Message = _where_the_others_were(case, others)
    if refused is not None:
        call = refused.call
        theirs = [Does(refused.others, "gave", "gave"), f" {call.op} the tensor {arguments_text(call)}", at(call.frame)]
    return Finding(
        "HD104",
        sentence(
            [
                [Ranks(dead), " aborted", at(one_place(case, dead))],
                " in a collective that the ranks entered with different sizes or dtypes",
                f", where it {piece}" if piece and not several else "",
            ],
            theirs,
        ),
        f"gloo ends a rank that receives more bytes than its own tensor has: {said}; either the tensors differ, or one "
        "side is one call late and two different calls were paired",
        "give every rank tensors of the same shape and dtype (pad, or gather the sizes first), and the same calls in "
        "the same order",
    )


def _where_the_others_were(case: Case, others: tuple[int, ...]) -> Message:
    """The line of its peers: a rank that was killed, or left at once, leaves no line of its own."""
    places = {rank: place(where) for rank in others if (where := case.activities[rank].where) is not None}
    if not places:
        return ""
    first = next(iter(places.values()))
    return [Does(tuple(rank for rank, at in places.items() if at == first), "was", "were"), " at ", first]


@cause("HD401", explains=EndedFirst, order=95)
def ended_first(case: Case, blame: Blame[EndedFirst]) -> Finding:
    """HD401: the ranks wrote their dumps as they ended; the others' are from their time-out."""
    ranks = blame.culprits
    long = name_duration(blame.found.seconds)
    one = len(ranks) == 1
    return Finding(
        "HD401",
        sentence(
            [
                [Does(ranks, "stopped", "stopped"), " first: ", "its dump was" if one else "their dumps were"],
                f" written {long} before the others'",
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            f"nothing had timed out in {'it' if one else 'them'} yet, and the others waited until they timed out",
            last_issued(case, ranks[0]),
        ),
        ["read the last lines of ", Ranks(ranks), f" in the job's log: they say why {'it' if one else 'they'} ended"],
        "no process was seen: only the times of the dumps tell that it ended",
    )


@cause("HD401", explains=(Diverged, Gone, OutsideWait, MissingPartner), order=90)
def exited(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """HD401: the process ended by itself, with status 0 or not, while others wait."""
    if not blame.culprits or not _kinds(case, blame) <= {ActivityKind.EXITED, ActivityKind.ZOMBIE}:
        return None
    if _had_diverged(blame) or _made_a_call_more(blame):
        return None
    rank = case.ranks[blame.culprits[0]]
    failed = rank.exit is not None and (rank.exit.exception or rank.exit.status)
    raised, last = _raised_at(case, rank.rank), _last_place(case, rank.rank)
    where: Message = at(raised) or ([" after ", last] if last else "")
    early = early_end(case, blame) if not failed else None
    handler = _caught_by(case, blame) if not failed else None
    return Finding(
        "HD401",
        sentence(
            [Ranks(blame.culprits), f" {exit_text(rank)}", where],
            _where_the_others_are(case, others_of(case, blame), ended_early=not failed and not last),
        ),
        joined(
            _led_out(blame, handler)
            if handler
            else what_decided(case, blame) or _how_it_ended(case, rank, raised, last),
            "" if last or raised else _never_joined(case),
            [early, " ends it before the line where the others wait"] if early is not None else "",
        ),
        ["mend that failure", _what_the_others_do(case, blame)]
        if failed
        else "let the exception end the process with another status than 0, or make all ranks agree on it (all_reduce "
        "a flag) before any of them ends"
        if handler
        else _fix_early_end(case, blame, early),
        decided_at=handler or early,
    )


def _fix_early_end(case: Case, blame: Blame[Explanation], early: Condition | None) -> Message:
    """What lets a rank end with the others that has ended well: it left the program early, or ran to its end with fewer
    calls, or never joined."""
    others = [case.activities[rank] for rank in others_of(case, blame)]
    who, ends = Ranks(blame.culprits), Verb(blame.culprits, "it ends", "they end")
    if any(map(waits_for_a_key, others)):
        return ["let ", who, " do what the others wait for before ", ends]
    if others and all(each.kind == ActivityKind.STORE_WAIT for each in others):
        return ["let ", who, " come to the line where the others wait before ", ends, ", or start fewer ranks"]
    point = blame.diverged.branch_point if blame.diverged is not None else None
    if early is not None or (point is not None and _leaves_there(case, point)):
        return "let every rank run to the same end: no early return or exit before the last collective"
    return "let every rank make the calls that the others make before it ends"


def _leaves_there(case: Case, point: BranchPoint) -> bool:
    tree = case.sources.function(point.file, point.guard.line) if point.guard.kind == "return" else None
    return tree is not None and leaves_for_good(tree, point.guard.line)


def _what_the_others_do(case: Case, blame: Blame[Explanation]) -> Message:
    """'; the others only wait for it', 'failed because it was gone', or '' where they ended in some other way."""
    others = others_of(case, blame)
    if not others:
        return ", which every rank raised"
    waiting = tuple(rank for rank in others if case.activities[rank].kind not in GONE)
    if waiting:
        return f"; {'the others' if len(waiting) == len(others) else 'those that are left'} only wait for it"
    ends = [case.ranks[rank].exit for rank in others]
    lost = all(end is not None and is_echo(end) for end in ends)
    return "; the others failed because it was gone" if lost else ""


def _caught_by(case: Case, blame: Blame[Explanation]) -> Condition | None:
    """The handler by which the culprits can have left the block that the others are in, and come to their end.

    Example: `try: ⏎ train() ⏎ except BadRecord as e: ⏎ log.error(e)`, and the others are in train() → the `except`.
    """
    found = blame.diverged
    point = found.branch_point if found is not None else None
    return only_handler(case.sources, found.gap, point) if found is not None and found.gap and point else None


def _led_out(blame: Blame[Explanation], handler: Condition) -> Message:
    return ["an exception that ", handler, " caught may have led ", Ranks(blame.culprits), " past the others' calls"]


def _where_the_others_are(case: Case, others: tuple[int, ...], *, ended_early: bool) -> Message:
    """Where they wait. In a job that is over nobody waits: their last line, where the rank left none of its own
    (``ended_early``)."""
    if not case.job.ended:
        return where_they_wait(case, others)
    return _where_the_others_were(case, others) if ended_early else ""


def _how_it_ended(case: Case, rank: RankSnapshot, raised: Frame | None, last: Message) -> Message:
    """What its end and its log say, where no condition explains it."""
    said = case.last_words(rank.rank)
    log = f"its log ends with: {said}" if said else ""
    began = origin(rank.exit) if rank.exit is not None else None
    if raised is not None and rank.exit is not None and began is not None:
        words = own_words(began)
        first = "nothing caught" if began.stack == rank.exit.stack else "it began with"
        thrown: Message = [f"{first} the {began.exception} of ", place(raised)]
        return joined([thrown, f", which says: {words}" if words else ""], "" if words and words in log else log)
    return joined(f"the process {exit_text(rank)}", ["its last call was ", last] if last else "", log)


def _never_joined(case: Case) -> Message:
    """Where a launch in the middle of the program runs it again for the other ranks; '' where there is none."""
    launch = launch_stack(case)
    if not launch:
        return ""
    return [
        ["it never joined: the launch at ", place(launch[0]), " runs this program again for the other ranks, "],
        "from its first line, when rank 0 may already have changed what it depends on",
    ]


def _had_diverged(blame: Blame[Explanation]) -> bool:
    """True if the sides diverged before the culprits ended: both issued a call there, each from a line of its own."""
    gap = blame.diverged.gap if blame.diverged is not None else None
    calls = (gap.mine, gap.theirs) if gap is not None else ()
    sides = [token for token in calls if token is not None and token.op != END]
    return len(sides) == 2 and sides[0].site != sides[1].site


def _made_a_call_more(blame: Blame[Explanation]) -> bool:
    """True if the culprits' own call is the divergence, where the others had come to their end."""
    gap = blame.diverged.gap if blame.diverged is not None else None
    if gap is None or gap.theirs is None or gap.theirs.op != END:
        return False
    return gap.kind == "delete" and gap.token.op != END


def _raised_at(case: Case, rank: int) -> Frame | None:
    """Where its uncaught exception came from; None where none was seen."""
    end = case.ranks[rank].exit
    began = origin(end) if end is not None else None
    if began is None or not began.stack:
        return None
    return case.activities[rank].where or began.stack[0]


def _last_place(case: Case, rank: int) -> Message:
    program = case.programs.get(rank)
    if program is None or not program.tokens:
        return ""
    token = program.tokens[-1]
    return [token.op, at(token.frame)]
