"""Ranks of the job that the snapshot does not show: where they are, as far as anything tells, and what is said then.

Unseen is not gone: such a rank may run on another host, in another container or under another watch.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.state.activity import UNSEEN
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.launch import meets_on_loopback, on_many_hosts, on_one_host
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_ranks


def hidden_ranks(job: JobSnapshot, met: Iterable[int]) -> frozenset[int]:
    """Ranks that the snapshot does not show and that nothing proves to be missing. ``met``: those with which others
    have completed a call."""
    hidden = {rank.rank for rank in job.ranks if _left_no_trace(rank)}
    if not hidden:
        return frozenset()
    here = {rank.rank for rank in job.ranks if rank.identity == "expected"}
    if all_on_this_host(job):
        return frozenset(hidden - here)
    if _meets_here(job):
        # Nobody carries them where they have to be: they never came. Those that did come left no sign of their end.
        return frozenset(hidden - (here - set(met)))
    return frozenset(hidden)


def all_on_this_host(job: JobSnapshot) -> bool:
    """Does the launcher say that it starts all ranks on this host?"""
    return any(on_one_host(dict(rank.environment)) for rank in job.ranks)


def _meets_here(job: JobSnapshot) -> bool:
    return any(meets_on_loopback(dict(rank.environment)) for rank in job.ranks)


def _left_no_trace(rank: RankSnapshot) -> bool:
    """A process of the job that does not say which rank it is ('unseen') is a trace."""
    return rank.process is None and rank.exit is None and rank.journal is None and rank.identity != UNSEEN


def activity_of_hidden(rank: RankSnapshot, where: str) -> Activity:
    """What is known of a rank that was not seen; ``where`` as ``whereabouts`` tells."""
    text = {"dump": "its dump is missing", "host": "runs on another host"}.get(where, "not seen")
    return Activity(rank.rank, rank.host, None, ActivityKind.NOT_VISIBLE, text)


def hidden_text(job: JobSnapshot, ranks: tuple[int, ...]) -> str:
    """'ranks 2 and 3 run on another host, which this hangdoc does not see'; '' for no rank."""
    if not ranks:
        return ""
    one = len(ranks) == 1
    where = whereabouts(job)
    if where == "dump":
        return f"the dump{'' if one else 's'} of {name_ranks(ranks)} {'is' if one else 'are'} missing"
    if where == "host":
        return f"{name_ranks(ranks)} {'runs' if one else 'run'} on another host, which this hangdoc does not see"
    return (
        f"{name_ranks(ranks)} {'was' if one else 'were'} not seen: no process that this hangdoc may read carries "
        f"{'it' if one else 'them'}"
    )


def note_hidden(job: JobSnapshot, ranks: tuple[int, ...]) -> tuple[Unavailable, ...]:
    """The same for the list of what could not be seen."""
    if not ranks or whereabouts(job) == "dump":
        return ()  # of dumps each that is missing is in the list already
    remedy = "" if whereabouts(job) == "host" else "run hangdoc as root, or in the container that the others run in"
    return (Unavailable("ranks", hidden_text(job, ranks), remedy),)


def whereabouts(job: JobSnapshot) -> str:
    """Where the ranks are that were not seen: 'host', another one; 'dump', in a file that is missing; '' unknown."""
    if job.mode == "dump":
        return "dump"
    many = any(on_many_hosts(dict(rank.environment), job.world_size or 0) for rank in job.ranks)
    return "host" if many else ""
