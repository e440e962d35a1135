"""Ranks of the job that the snapshot does not show: where they probably are, and how the report names them.

Unseen is not gone: such a rank may run on another host, in another container or under another watch.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.state.activity import UNSEEN
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.launch import is_loopback, meets_on_loopback, on_many_hosts, on_one_host
from hangdoc.model.process import Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_ranks


def hidden_ranks(job: JobSnapshot, completed: Iterable[int]) -> frozenset[int]:
    """Ranks that the snapshot does not show and that nothing proves to be missing.

    ``completed``: the ranks that have completed a call with others. Example: ranks 2 and 3 run on another host →
    {2, 3}; torchrun --standalone has started only three of four ranks → {}.
    """
    # A local rank is given where the launcher starts it on a host that was looked at.
    hidden = {rank.rank for rank in job.ranks if _left_no_trace(rank) and not _is_of_a_seen_host(rank)}
    if not hidden:
        return frozenset()
    here = {rank.rank for rank in job.ranks if rank.identity == "expected"}
    if all_on_this_host(job):
        return frozenset(hidden - here)
    if _meets_here(job):
        # No process has these ranks, and all ranks must run here: they never started. Ranks that completed a call did
        # start, and their end was not seen.
        return frozenset(hidden - (here - set(completed)))
    return frozenset(hidden)


def all_on_this_host(job: JobSnapshot) -> bool:
    """True if the launcher says that it starts all ranks on this host."""
    return any(on_one_host(dict(rank.environment)) for rank in job.ranks)


def _meets_here(job: JobSnapshot) -> bool:
    if any(meets_on_loopback(dict(rank.environment)) for rank in job.ranks):
        return True
    return started_by_program(job) is not None or _started_below_program(job)


def started_by_program(job: JobSnapshot) -> Process | None:
    """The program that started all seen ranks as its own children, which meet on loopback; None where none did.

    Its ranks have nothing in their environment that says so. Example: `for part in parts: ⏎ Process(target=train, …)
    .start()`, and the ranks are connected to a store at 127.0.0.1.
    """
    launchers = job.launchers
    if len(launchers) != 1 or not _meets_at_loopback_store(job):
        return None
    launcher = launchers[0][1]
    return launcher if _parents(job) == {launcher.pid} else None


def _started_below_program(job: JobSnapshot) -> bool:
    """True if one process has started several ranks in turn, which meet on loopback, and serves no other host.

    It serves none where the watched program has started it, so that the ranks inherited the probe, or where the ranks
    wait for their peers on loopback as well. Example: Ray's raylet, after `ray.init(address="local")`.
    """
    started = [rank for rank in job.ranks if rank.process is not None]
    if len(started) < 2 or len(_parents(job)) != 1 or not _meets_at_loopback_store(job):
        return False
    inherited = job.mode == "watch" and all(rank.identity == "probe" for rank in started)
    return inherited or _awaits_peers_on_loopback(job)


def _awaits_peers_on_loopback(job: JobSnapshot) -> bool:
    """True if several ranks listen on loopback, which no process of another host reaches.

    Example: gloo of ranks 1 and 2 has opened 127.0.0.1:36171 and 127.0.0.1:36623 for its peers.
    """
    ranks = {rank.process.pid for rank in job.ranks if rank.process is not None}
    ports = [port for host in job.hosts for port in host.listening if port.pid in ranks]
    return len({port.pid for port in ports if is_loopback(port.address)}) > 1


def _meets_at_loopback_store(job: JobSnapshot) -> bool:
    """True if only processes of this host reach the job's store, and nothing tells of other hosts."""
    # 127.0.1.1 may be a host's own name, by which other hosts reach it.
    if job.store is None or not is_loopback(job.store.address) or job.store.address == "127.0.1.1":
        return False
    return not any(on_many_hosts(dict(rank.environment)) for rank in job.ranks)


def _parents(job: JobSnapshot) -> set[int]:
    return {rank.process.ppid for rank in job.ranks if rank.process is not None}


def _is_of_a_seen_host(rank: RankSnapshot) -> bool:
    return rank.identity == "expected" and rank.local_rank is not None


def _left_no_trace(rank: RankSnapshot) -> bool:
    """True if no process, exit or journal shows the rank. 'unseen' (some process of the job may be it) is a trace."""
    return rank.process is None and rank.exit is None and rank.journal is None and rank.identity != UNSEEN


def activity_of_hidden(rank: RankSnapshot, where: str) -> Activity:
    """The activity of a rank that was not seen; ``where`` is the answer of ``whereabouts``."""
    texts = {"dump": "its dump is missing", "host": "runs on another host", "log": "its stack is not here"}
    text = texts.get(where, "not seen")
    return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, text)


def hidden_text(job: JobSnapshot, ranks: tuple[int, ...]) -> str:
    """'ranks 2 and 3 run on another host, which this hangdoc does not see'; '' for no rank."""
    if not ranks:
        return ""
    one = len(ranks) == 1
    where = whereabouts(job)
    if where == "dump":
        return f"the dump{'' if one else 's'} of {name_ranks(ranks)} {'is' if one else 'are'} missing"
    if where == "log":
        return f"the stack{'' if one else 's'} of {name_ranks(ranks)} {'is' if one else 'are'} not here"
    if where == "host":
        return f"{name_ranks(ranks)} {'runs' if one else 'run'} on another host, which this hangdoc does not see"
    return (
        f"{name_ranks(ranks)} {'was' if one else 'were'} not seen: no process that this hangdoc may read carries "
        f"{'it' if one else 'them'}"
    )


def note_hidden(job: JobSnapshot, ranks: tuple[int, ...]) -> tuple[Unavailable, ...]:
    """``hidden_text`` as an entry for the list of what could not be seen; () for no rank."""
    if not ranks or whereabouts(job) == "dump":
        return ()  # the list already has each dump that is missing
    if whereabouts(job) == "log":
        return (Unavailable("ranks", hidden_text(job, ranks), "take them too: `py-spy dump --pid PID` on each rank"),)
    remedy = "" if whereabouts(job) == "host" else "run hangdoc as root, or in the container that the others run in"
    return (Unavailable("ranks", hidden_text(job, ranks), remedy),)


def whereabouts(job: JobSnapshot) -> str:
    """Where the unseen ranks are: 'host' (another host), 'dump' or 'log' (a dump file, a stack that is missing) or ''
    (unknown)."""
    if job.mode in ("dump", "log"):
        return job.mode
    many = any(on_many_hosts(dict(rank.environment), job.world_size or 0) for rank in job.ranks)
    return "host" if many else ""
