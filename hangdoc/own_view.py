"""Whether what one host sees of its own ranks fits the word of another host's watch that the job hangs."""

from __future__ import annotations

from hangdoc.diagnosis import diagnose
from hangdoc.model.kinds import BY_ITSELF, COMMUNICATING, GONE, ActivityKind, Outcome
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.wording import name_ranks


def doubt(snapshot: JobSnapshot) -> str:
    """What ``snapshot``, of one host, shows that does not fit a hang of the whole job; '' if all fits.

    Example: rank 2 sleeps, and rank 3 waits for it in a barrier: 'on this host, rank 2 does not wait for another rank
    (sleeping)'. If rank 2 waits for rank 0 of another host instead, in a recv, all fits.
    """
    here = {rank.rank for rank in snapshot.ranks if rank.process is not None and rank.exit is None}
    if not here:
        return ""
    try:
        own = diagnose(snapshot)
    except Exception as error:  # a bug in hangdoc must not end a job
        return f"hangdoc could not diagnose what this host shows ({type(error).__name__}: {error})"
    if own.outcome == Outcome.HANG:
        return ""
    seen = [rank for rank in own.ranks if rank.rank in here and rank.kind not in (*GONE, ActivityKind.NOT_VISIBLE)]
    if not seen:
        return "no rank on this host could be looked at"
    # Those that the others on this host wait for, where some are.
    first = [rank for rank in seen if rank.rank in own.culprits] or seen
    if any(rank.kind in COMMUNICATING or not (rank.moving or rank.kind in BY_ITSELF) for rank in first):
        return ""
    what = ", ".join(sorted({rank.kind.in_words for rank in first}))
    names = name_ranks(sorted(rank.rank for rank in first))
    return f"on this host, {names} {'does' if len(first) == 1 else 'do'} not wait for another rank ({what})"
