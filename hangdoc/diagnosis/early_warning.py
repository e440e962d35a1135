"""Finds ranks that have diverged for good while the job still moves: it will hang, or already mixes up data.

Only what the journals prove: one side has a call that the other has not, and everything since then matches when
that one call is left out, and only then.
"""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.calls.alignment import Gap, repairs
from hangdoc.diagnosis.calls.history import GroupHistory
from hangdoc.diagnosis.causes.finding import telling
from hangdoc.diagnosis.causes.phrases import call_name, place
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.library import with_library_frames
from hangdoc.diagnosis.frames.naming import file_names
from hangdoc.model.message import Message, Ranks, joined
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.wording import name_duration
from hangdoc.model.writing import Writer


@dataclass(frozen=True, slots=True)
class Lead:
    """A divergence that has not hung the job yet. ``key`` names the group."""

    key: tuple[object, ...]
    text: str


def proved_divergence(job: JobSnapshot) -> Lead | None:
    """The first proved divergence in the journals; None where there is none."""
    job = with_library_frames(job)
    case = Case(job)
    for history in case.histories:
        if history.inferred or history.blind or len(history.members) < 2:
            continue
        candidates = repairs(history)
        if not candidates or len(candidates[0].gaps) > LISTED:
            continue
        gap = candidates[0].first
        if gap is not None and gap.mine is not None and gap.theirs is not None and _crossed(history, gap):
            # The key is the group: which of two equal repairs comes first may change from look to look.
            return Lead(history.key, Writer(file_names(job)).write(_tell(case, history, gap)))
    return None


def _crossed(history: GroupHistory, gap: Gap) -> bool:
    """True if the backend has paired calls from different lines since the gap, although each side runs both lines.

    Example: rank 0 issues B A B A …, rank 1 A B A B …: from the gap on each A is paired with a B.
    """
    assert gap.mine is not None
    assert gap.theirs is not None
    mine, theirs = gap.mine.rank, gap.theirs.rank
    end = min(history.issued(mine), history.issued(theirs))
    known = [{t.site for t in history.tokens[rank]} for rank in (mine, theirs)]
    crossed = 0
    for number in range(gap.token.sequence, end + 1):
        a, b = history.at(mine, number), history.at(theirs, number)
        if a is None or b is None or a.site == b.site:
            continue
        if a.site in known[1] and b.site in known[0]:
            crossed += 1
    return crossed >= LISTED


def _tell(case: Case, history: GroupHistory, gap: Gap) -> Message:
    mine, theirs = telling(gap)
    others = tuple(r for r in history.members if r not in gap.ranks)
    since = max(0.0, case.job.taken - gap.token.created_ns / 1e9) if gap.token.created_ns else 0.0
    ago = f" {name_duration(since)} ago" if since >= 1 else ""
    return joined(
        [
            [Ranks(gap.ranks), " and ", Ranks(others), f" diverged{ago} at call #{gap.token.sequence} of "],
            [f"{history.label}: {call_name(gap.mine)} at ", place(mine)],
            [f", {call_name(gap.theirs)} at ", place(theirs)],
        ],
        "this will hang or corrupt data",
    )
