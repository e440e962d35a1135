"""The facts a reader may check: each with the source it came from."""

from __future__ import annotations

import time
from collections import Counter

from hangdoc.diagnosis.blame.launcher import WaitingForNodes
from hangdoc.diagnosis.calls.history import END
from hangdoc.diagnosis.causes.phrases import doing
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.model.diagnosis import Evidence
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind
from hangdoc.model.process import ProcessKey
from hangdoc.model.wording import name_duration, name_ranks, single_spaced
from hangdoc.model.writing import Writer


def gather(case: Case, found: Blame[Explanation], writer: Writer) -> tuple[Evidence, ...]:
    """All evidence, the most telling first."""
    return (
        *_launcher(found),
        *_processes(case, found),
        *_journal(case, found),
        *_stacks(case, found, writer),
        *_ports(case),
        *timed_out(case, found.culprits),
        *_timeout(case),
        *_logs(case, found),
    )


def _launcher(found: Blame[Explanation]) -> list[Evidence]:
    if not isinstance(found.found, WaitingForNodes):
        return []
    told = f"the agent (process {found.found.agent}) waits in torchrun's rendezvous"
    return [Evidence("stack", (), told)]


def _processes(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    lines = []
    for rank in found.culprits:
        activity = case.activities[rank]
        if activity.kind in GONE or activity.kind in (
            ActivityKind.STOPPED,
            ActivityKind.DEBUGGER,
            ActivityKind.UNINTERRUPTIBLE,
            ActivityKind.SLEEPING,
        ):
            lines.append(Evidence("process", (rank,), f"rank {rank}: {activity.text}"))
    return lines[:8]


def _journal(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    diverged = found.diverged
    if diverged is None or diverged.alignment.history.inferred:
        return []
    history, gap = diverged.alignment.history, diverged.gap
    issued: dict[int, list[int]] = {}
    blind = frozenset(history.blind)
    for rank in history.members:
        if rank not in blind:
            issued.setdefault(history.issued(rank), []).append(rank)
    # Calls of several groups in one order have numbers that nobody else knows.
    joined = all(known.key != history.key for known in case.histories)
    mark, what = ("", "calls issued in") if joined else ("#", "last call issued in")
    text = ", ".join(f"{mark}{number} on {name_ranks(ranks)}" for number, ranks in sorted(issued.items()))
    if joined and gap is not None and gap.token.op == "new_group":
        return []
    text = f"{what} {history.label}{' together' if joined else ''}: {text}"
    # One number everywhere is the number that the rows of the report show already.
    lines = [Evidence("journal", history.members, text, decides=joined or len(issued) > 1)]
    if gap is not None and gap.token.op != END:
        now = max(history.issued(r) for r in gap.ranks) if gap.ranks else 0
        since = now - gap.token.sequence
        then = "end" if case.job.ended else "hang"
        if since > 0:
            where = "" if joined else f"at call #{gap.token.sequence}, "
            ago = f"{since} call{'s' if since > 1 else ''} before the {then}"
            lines.append(Evidence("journal", gap.ranks, f"the ranks diverged {where}{ago}"))
    return lines


def _ports(case: Case) -> list[Evidence]:
    """Listening ports against what the groups need: one for each rank and gloo group, and the store's."""
    owners = [(host.name, port.pid) for host in case.job.hosts for port in host.listening]
    listening = Counter(ProcessKey(host, pid) for host, pid in owners if pid is not None)
    if case.hidden:
        return []  # their ports are not ours to count, nor need the store be here
    if not listening or not any(a.kind in COMMUNICATING for a in case.activities.values()):
        return []
    members = {r: ProcessKey(s.host, s.process.pid) for r, s in case.ranks.items() if s.process is not None}
    needed = {r: max(_gloo_groups(case, r), 1) for r in case.ranks}
    if not any(_gloo_groups(case, r) for r in case.ranks) and not any(
        a.kind == ActivityKind.STORE_WAIT for a in case.activities.values()
    ):
        return []  # another backend: nothing is known about its ports
    launcher = case.job.launcher.pid if case.job.launcher else None
    store_inside = not any(key.pid == launcher for key in listening.keys() - members.values())
    needs = sum(needed.values()) + (1 if store_inside else 0)
    has = sum(listening[key] for key in members.values())
    short = [r for r in sorted(case.ranks) if r not in members or listening[members[r]] < needed[r]]
    if store_inside and not short and has == needs - 1:
        store_inside, needs = False, has  # no rank lacks one: the store is in a process that was not looked at
    sockets = f"{has} listening socket{'' if has == 1 else 's'}"
    if has >= needs and not short:
        joining = any(a.kind == ActivityKind.STORE_WAIT for a in case.activities.values())
        means = "no rank is missing" if joining else "every rank has set up its process groups"
        return [Evidence("port", tuple(case.ranks), f"{sockets}, {needs} needed: {means}", decides=False)]
    own = "its own" if len(short) == 1 else "all of theirs"
    means = f": {name_ranks(short)} never opened {own}, or ended" if short else ""
    return [Evidence("port", tuple(short), f"{sockets} where {needs} are needed{means}")]


def _gloo_groups(case: Case, rank: int) -> int:
    journal = case.ranks[rank].journal
    if journal is None:
        return 0
    return sum(1 for g in journal.groups if "gloo" in g.backend and (not g.members or rank in g.members))


def _stacks(case: Case, found: Blame[Explanation], writer: Writer) -> list[Evidence]:
    """Where everybody stands now, folded: the stacks often show correct code, steps after the divergence."""
    if found.diverged is None or case.job.mode == "dump":
        return []
    folded: dict[str, list[int]] = {}
    for rank, activity in case.activities.items():
        if rank in case.hidden:
            continue
        folded.setdefault(writer.write(doing(activity)), []).append(rank)
    return [Evidence("stack", tuple(ranks), f"{name_ranks(ranks)} now: {text}") for text, ranks in folded.items()][:6]


def timed_out(case: Case, culprits: tuple[int, ...]) -> list[Evidence]:
    """Who timed out first, in which call, and that it is not the reason."""
    first = case.times.first_out if case.job.mode == "dump" else None
    if first is None:
        return []
    activity = case.activities[first.rank]
    where = f" in {single_spaced(activity.text)}" if activity.kind in COMMUNICATING else ""
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
    left, rank = min(ends)
    # By the clock as well: "in 29 min" alone would be wrong of a snapshot that is read again the next morning.
    then = time.strftime("%H:%M:%S", time.gmtime(case.job.taken + left))
    return [Evidence("journal", (rank,), f"PyTorch times out at {then} UTC, {name_duration(left)} after this look")]


def _logs(case: Case, found: Blame[Explanation]) -> list[Evidence]:
    lines = []
    for rank in found.culprits[:4]:
        said = case.last_words(rank)
        if said:
            lines.append(Evidence("log", (rank,), f"rank {rank} last wrote: {said}"))
    return lines
