"""The facts a reader may check: each with the source it came from."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from hangdoc.diagnosis.blame.crossed_dimensions import CrossedDimensions
from hangdoc.diagnosis.blame.foreign_store import ForeignStore
from hangdoc.diagnosis.blame.group_creation import LOCAL
from hangdoc.diagnosis.blame.launcher import StoppedLauncher, WaitingForNodes
from hangdoc.diagnosis.blame.shared_number import SHARED
from hangdoc.diagnosis.blame.thread_blame import ThreadWait
from hangdoc.diagnosis.bounds import LISTED, NAMED
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token, distinct
from hangdoc.diagnosis.causes.ended_helpers import ENDED_BY_OTHERS
from hangdoc.diagnosis.causes.phrases import at, doing, place
from hangdoc.diagnosis.condition.elsewhere.written import WrittenUnder
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait
from hangdoc.diagnosis.state.endings import refused_piece
from hangdoc.diagnosis.state.missing_threads import missing_threads
from hangdoc.model.diagnosis import Evidence
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind
from hangdoc.model.message import Message
from hangdoc.model.nccl import Communicator, CommunicatorMember, OperationCount
from hangdoc.model.process import ProcessKey
from hangdoc.model.told_errors import told_errors
from hangdoc.model.wording import name_duration, name_ranks, single_spaced
from hangdoc.model.writing import Writer

_LONGEST_LINE = 160
"""Characters of a line of the job's output that is shown. Judgement."""
_SOON = 300.0
"""Seconds to PyTorch's own end of the job in which a reader must hurry. Judgement."""


def gather(case: Case, found: Blame[Explanation], writer: Writer) -> tuple[Evidence, ...]:
    """All evidence, the most telling first."""
    return (
        *_outside_of_ranks(found),
        *_lost(case, found, writer),
        *_processes(case, found, writer),
        *_refused(case, found, writer),
        *_restarts(case),
        *_journal(case, found),
        *_nccl(case, found),
        *_stacks(case, found, writer),
        *_ports(case, found),
        *timed_out(case, found.culprits),
        *_timeout(case),
        *_logs(case, found),
    )


def _outside_of_ranks(found: Blame[Explanation]) -> list[Evidence]:
    if isinstance(found.found, WaitingForNodes):
        return [Evidence("stack", (), f"the agent (process {found.found.agent}) waits in torchrun's rendezvous")]
    if isinstance(found.found, StoppedLauncher):
        return [Evidence("port", found.found.waiting, f"process {found.found.pid} listens on port {found.found.port}")]
    if isinstance(found.found, ForeignStore):
        server, ranks = found.found.server, found.found.connected
        if server is None:
            said = f"rank 0 ended: the address of port {found.found.port} was in use"
            return [Evidence("process", (0,), said)]
        pid = server.pid
        who = f"process {pid}" if pid is not None else "a process that hangdoc may not read"
        return [Evidence("port", ranks, f"{name_ranks(ranks)}: connected to port {found.found.port} of {who}")]
    return []


def _processes(case: Case, found: Blame[Explanation], writer: Writer) -> list[Evidence]:
    lines = []
    for rank in found.culprits:
        activity = case.activities[rank]
        if activity.kind in GONE or activity.kind in (
            ActivityKind.STOPPED,
            ActivityKind.DEBUGGER,
            ActivityKind.UNINTERRUPTIBLE,
            ActivityKind.SLEEPING,
        ):
            end = case.ranks[rank].exit
            unknown = end is not None and end.status is None and end.signal is None
            told = unknown and end is not None and any(each.frames == end.stack for each in case.job.tracebacks)
            met = end is not None and end.fatal_signal is not None
            text = writer.write([f"rank {rank}: {activity.text}", at(activity.where) if met else ""])
            lines.append(Evidence("log" if told else "process", (rank,), text))
    return lines[:8]


def _refused(case: Case, found: Blame[Explanation], writer: Writer) -> list[Evidence]:
    """What gloo said as it aborted a rank, where calls that differ explain it: else the cause quotes it."""
    piece = refused_piece(case.gloo_refused)
    ranks = [r for r, each in case.ranks.items() if each.exit is not None and each.exit.signal == signal.SIGABRT]
    if found.diverged is None or not piece or len(ranks) != 1:
        return []
    text: Message = [f"gloo aborted rank {ranks[0]}", at(case.activities[ranks[0]].where)]
    said = writer.write([text, f": it {piece}"])
    return [Evidence("log", tuple(ranks), said)]


def _restarts(case: Case) -> list[Evidence]:
    """That agents of the job count their restarts differently: so does what the program names after the count."""
    counts: dict[int, list[int]] = {}
    for rank, snapshot in case.ranks.items():
        if snapshot.process is not None:
            counts.setdefault(snapshot.restart, []).append(rank)
    if len(counts) < 2:
        return []
    text = ", ".join(f"{count} on {name_ranks(ranks)}" for count, ranks in sorted(counts.items()))
    said = f"TORCHELASTIC_RESTART_COUNT is {text}: each agent counts the failures of its own ranks alone"
    every = tuple(sorted(rank for ranks in counts.values() for rank in ranks))
    return [Evidence("process", every, said, decides=_waits_for_keys(case))]


def _journal(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    """How many calls each rank has issued in the group, and how long ago the ranks diverged."""
    diverged = found.diverged
    if diverged is None or diverged.alignment.history.inferred:
        return []
    history, gap = diverged.alignment.history, diverged.gap
    # Calls of several groups in one order have numbers that nobody else knows.
    together = all(known.key != history.key for known in case.histories)
    if together and gap is not None and gap.token.op == "new_group":
        return []
    crossed = isinstance(diverged, CrossedDimensions)  # they diverged now, at calls that two groups number
    diverged_ago = [] if gap is None or crossed else _diverged_ago(case, history, gap, together)
    # Of a past divergence the verdict gives the number already.
    return [_issued(history, together), *(replace(each, decides=not diverged.past) for each in diverged_ago)]


def _issued(history: GroupHistory, together: bool) -> Evidence:
    """'last call issued in default_pg: #12 on rank 0, #13 on rank 1'. ``together``: of several groups at once."""
    issued: dict[int, list[int]] = {}
    blind = set(history.blind)
    for rank in dict.fromkeys(history.members):
        if rank not in blind:
            issued.setdefault(history.issued(rank), []).append(rank)
    mark, what = ("", "calls issued in") if together else ("#", "last call issued in")
    numbers = ", ".join(f"{mark}{number} on {name_ranks(ranks)}" for number, ranks in sorted(issued.items()))
    text = f"{what} {history.label}{' together' if together else ''}: {numbers}"
    # One number everywhere is the number that the rows of the report show already.
    return Evidence("journal", history.members, text, decides=together or len(issued) > 1)


def _diverged_ago(case: Case, history: GroupHistory, gap: Gap, together: bool) -> list[Evidence]:
    """'the ranks diverged at call #6, 31 calls before the hang'; [] where the divergence is the last call."""
    then_issued = _same_call(history, gap.token) if together else gap.token
    if gap.token.op == END or then_issued is None:
        return []
    since = max((history.issued(r) for r in gap.ranks), default=0) - then_issued.sequence
    if since <= 0:
        return []
    then = "end" if case.job.ended else "hang"
    where = "" if together else f"at call #{gap.token.sequence}, "
    calls = f"{since} call{'s' if since > 1 else ''}"
    return [Evidence("journal", gap.ranks, f"the ranks diverged {where}{calls} before the {then}")]


def _same_call(history: GroupHistory, token: Token) -> Token | None:
    """The call of that token, with the number that it has among the calls of several groups; None where its time, by
    which it is known, is not."""
    calls = history.tokens.get(token.rank, ()) if token.created_ns else ()
    return next((each for each in calls if each.created_ns == token.created_ns), None)


def _ports(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    """Listening ports against what the groups need: one for each rank and gloo group, and the store's.

    Example: 2 ranks with 2 groups and the store in rank 0 need 5; 4 are open, and rank 1 has one → rank 1 is short.
    """
    gap = found.diverged.gap if found.diverged is not None else None
    if gap is not None and gap.token.group[0] == LOCAL and found.diverged and found.diverged.alignment.history.inferred:
        counts = ", ".join(f"rank {rank} listens on {case.own_ports(rank)} ports" for rank in gap.token.group[1])
        return [Evidence("port", gap.token.group[1], f"{counts}: gloo opens one for each group")]
    listening = case.listening
    if not listening or not _ports_are_known(case) or (gap is not None and gap.token.group[0] == SHARED):
        return []  # of a group that others did not make, each has its port and not its partners
    members = _process_keys(case)
    needed = {r: max(_gloo_groups(case, r), 1) for r in case.ranks}
    short = [r for r in sorted(case.ranks) if r not in members or listening[members[r]] < needed[r]]
    has, needs = sum(listening[key] for key in members.values()), sum(needed.values())
    # Where no rank lacks a port the store may be in a process that was not looked at.
    if _store_is_in_a_rank(case, listening.keys() - members.values()) and (short or has != needs):
        needs += 1
    sockets = _sockets(has)
    if short or has < needs:
        # What speaks against a rank that is not to blame supports no verdict.
        decides = bool(short) and (not found.culprits or not set(short).isdisjoint(found.culprits))
        text = (
            f"{sockets} where {needs} are needed{_who_is_short(short)}"
            if has < needs  # else others have more than they need
            else f"no listening socket of {name_ranks(short)}: never opened, or gone with the process"
        )
        return [Evidence("port", tuple(short), text, decides=decides)]
    means = "no rank is missing" if _waits_for_keys(case) else "every rank has set up its process groups"
    return [Evidence("port", tuple(case.ranks), f"{sockets}, {needs} needed: {means}", decides=False)]


def _sockets(count: int) -> str:
    return f"{count} listening socket{'' if count == 1 else 's'}"


def _who_is_short(ranks: list[int]) -> str:
    if not ranks:
        return ""
    own = "its own" if len(ranks) == 1 else "all of theirs"
    return f": {name_ranks(ranks)} never opened {own}, or ended"


def _process_keys(case: Case) -> dict[int, ProcessKey]:
    """Rank → its process."""
    return {r: ProcessKey(s.host, s.process.pid) for r, s in case.ranks.items() if s.process is not None}


def _ports_are_known(case: Case) -> bool:
    """False if ports say nothing: those of a hidden rank are not ours to count, nor need the store be here; of other
    backends than gloo nothing is known."""
    if case.hidden or not any(a.kind in COMMUNICATING for a in case.activities.values()):
        return False
    return _waits_for_keys(case) or any(_gloo_groups(case, rank) for rank in case.ranks)


def _waits_for_keys(case: Case) -> bool:
    return any(activity.kind == ActivityKind.STORE_WAIT for activity in case.activities.values())


def _store_is_in_a_rank(case: Case, strangers: set[ProcessKey]) -> bool:
    """True if no launcher listens. ``strangers``: the processes that listen and are no ranks."""
    launchers = case.job.launchers
    return not any(
        key.pid == launcher.pid and host in ("", key.host) for key in strangers for host, launcher in launchers
    )


def _gloo_groups(case: Case, rank: int) -> int:
    """The gloo groups that the rank has made and not destroyed."""
    journal = case.ranks[rank].journal
    if journal is None:
        return 0
    living = [group for group in journal.groups if not group.destroyed]
    return sum(1 for g in living if "gloo" in g.backend and (not g.members or rank in g.members))


def _nccl(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    """What NCCL itself says of its communicators; first of those with a member that is to blame. It decides nothing: in
    a job that moves, the counts differ for a moment in every call."""
    status = case.job.nccl
    communicators = status.communicators if status is not None else ()
    all_lines = (line for each in communicators for line in (*_silent_members(each), *_differing_counts(each)))
    lines = list({line.text: line for line in all_lines}.values())
    return sorted(lines, key=lambda line: not set(line.ranks) & set(found.culprits))[:LISTED]


def _silent_members(communicator: Communicator) -> Iterator[Evidence]:
    """Which members do not answer NCCL."""
    if communicator.silent_count:
        who, unnamed = _members(communicator.silent), communicator.silent_count - len(communicator.silent)
        who = f"{who} and {unnamed} more" if who and unnamed > 0 else who or f"{unnamed} ranks"
        yield Evidence("nccl", _known(communicator.silent), f"NCCL's own threads get no answer from {who}")


def _differing_counts(communicator: Communicator) -> Iterator[Evidence]:
    """How many calls of each operation the members have launched; the line is about all but the most common number."""
    by_operation: dict[str, list[OperationCount]] = {}
    for count in communicator.counts:
        by_operation.setdefault(count.operation, []).append(count)
    where = f"its communicator of {communicator.size} ranks" if communicator.size else "one of its communicators"
    for operation, counts in by_operation.items():
        shown = ", ".join(f"{each.count} on {_whose(each)}" for each in counts[:LISTED])
        shown += f" and {len(counts) - LISTED} other numbers" if len(counts) > LISTED else ""
        rarer = sorted(counts, key=lambda each: each.how_many)[:-1]
        text = f"NCCL has launched, in {where}, {operation or 'collective'} calls: {shown}"
        yield Evidence("nccl", _known([member for each in rarer for member in each.members]), text)


def _whose(count: OperationCount) -> str:
    named = len(count.members) == count.how_many
    return _members(count.members) if named else f"{count.how_many} rank{'' if count.how_many == 1 else 's'}"


def _members(members: Sequence[CommunicatorMember]) -> str:
    """'ranks 0 and 3' where the ranks are known; else 'member 3 (process 4711 on 10.0.0.2)'."""
    ranks = _known(members)
    if len(ranks) == len(members) and ranks:
        return name_ranks(ranks)
    told = [
        f"member {m.number}" + (f" (process {m.pid} on {m.node})" if m.pid is not None else "") for m in members[:4]
    ]
    return ", ".join(told) + (f" and {len(members) - 4} more" if len(members) > 4 else "")


def _known(members: Iterable[CommunicatorMember]) -> tuple[int, ...]:
    return tuple(sorted({member.rank for member in members if member.rank is not None}))


def _stacks(case: Case, found: Blame[Explanation], writer: Writer) -> list[Evidence]:
    """Where each rank is now, ranks at one place folded: stacks often show correct code, steps after the divergence."""
    if found.diverged is None or case.job.mode == "dump":
        return []
    folded: dict[str, list[int]] = {}
    for rank, activity in case.activities.items():
        if rank in case.hidden:
            continue
        folded.setdefault(writer.write(doing(activity)), []).append(rank)
    return [Evidence("stack", tuple(ranks), f"{name_ranks(ranks)} now: {text}") for text, ranks in folded.items()][:6]


def timed_out(case: Case, culprits: tuple[int, ...]) -> list[Evidence]:
    """Who timed out first, in which call, and that it is not the reason: by dumps, also those that a job left."""
    written = bool(case.programs) and all(p.journal.source == "dump" for p, _ in distinct(case.programs))
    first = case.times.first_out if written else None
    if first is None:
        return []
    activity = case.activities[first.rank]
    where = f" in {single_spaced(activity.text)}" if activity.kind in COMMUNICATING else ""
    program = case.programs[first.rank]
    if not where and program.pending:  # its process has ended since
        where = f" in {program.pending[0].op}"
    text = f"rank {first.rank} timed out first, after {name_duration(first.timeout or first.seconds)}{where}"
    if culprits and first.rank not in culprits:
        text += f"; the reason is {name_ranks(culprits)}"
    return [Evidence("journal", (first.rank,), text)]


def _timeout(case: Case) -> list[Evidence]:
    """When PyTorch itself will give up. (When a dump was written, it does not say.)"""
    if case.job.mode == "dump":
        return []
    ends = [
        (token.timeout_ms / 1000 - (case.job.taken - token.created_ns / 1e9), rank)
        for rank, program in case.programs.items()
        for token in (program.journal.calls[place] for place in program.recording.pending)
        if token.timeout_ms and token.created_ns
    ]
    ends = [end for end in ends if end[0] > 0]
    if not ends or case.job.ended:
        return []
    left, rank = min(ends, key=lambda end: (round(end[0]), end[1]))  # the first of those that are one in what is told
    # By the clock as well: "in 29 min" alone would be wrong of a snapshot that is read again the next morning.
    then = time.strftime("%H:%M:%S", time.gmtime(case.job.taken + left))
    text = f"PyTorch times out at {then} UTC, {name_duration(left)} after this look"
    return [Evidence("journal", (rank,), text, decides=left < _SOON)]


def _logs(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    lines = []
    for rank in found.culprits[:4]:
        said = case.last_words(rank)
        if said:
            lines.append(Evidence("log", (rank,), f"rank {rank} last wrote: {said}"))
    return lines


def _lost(case: Case, found: Blame[Explanation], writer: Writer) -> Iterator[Evidence]:
    """What may have ended those that a rank waits for without a call: threads that only it has not, errors in logs."""
    if not isinstance(found.found, OutsideWait | ThreadWait) or case.job.ended:
        return
    for rank in found.culprits[:LISTED]:
        if case.activities[rank].kind in ENDED_BY_OTHERS:
            for lost in missing_threads(case.ranks, rank)[:LISTED]:
                has: Message = [" have" if len(lost.others) > 1 else " has", " (", place(lost.where), ")"]
                text: Message = [f"rank {rank} has no thread `{lost.name}`, which {name_ranks(lost.others)}", has]
                yield Evidence("process", (rank,), writer.write(text))
    logs = [(r, s.log) for r, s in sorted(case.ranks.items()) if s.log is not None]
    paths = [log.path for _, log in logs]
    for rank, log in logs:
        if paths.count(log.path) == 1:
            for line in list(told_errors(log.lines))[-1:]:
                yield Evidence("log", (rank,), f"rank {rank}'s log says: {line}")
    for line in (case.job.log.lines if case.job.log is not None else ())[-NAMED:]:
        yield Evidence("log", (), f"the ranks' log says: {line}")


def written_evidence(told: list[WrittenUnder]) -> list[Evidence]:
    """'rank 3 wrote: document 9 skipped', each line once."""
    lines = {each.line: each.ranks for each in told}
    return [Evidence("log", ranks, _of_line(ranks, line.text)) for line, ranks in lines.items()]


def _of_line(ranks: tuple[int, ...], text: str) -> str:
    shown = text if len(text) <= _LONGEST_LINE else f"{text[: _LONGEST_LINE - 1]}…"
    return f"{name_ranks(ranks)} wrote: {shown}" if ranks else f"in the output: {shown}"
