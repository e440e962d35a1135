"""Readings of ranks that failed, or were ended, without anybody's time-out.

The first end that nobody asked for counts; what the launcher ended afterwards, and what torch aborts of a job that
hangs, tells nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.reading import (
    Reading,
    Strength,
    side,
    user_frame,
)
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.logged import Ended, Raised
from hangdoc.model.message import Does, Message, Place, Ranks, joined, sentence

_SIGABRT, _SIGKILL, _SIGTERM = 6, 9, 15
_MAY_HAVE_WAITED = "without its own output it may as well have given up a wait for another rank"
_KILLED = "a lone kill comes from outside: the kernel (out of memory), a scheduler, a person"


def failures(known: Known) -> Iterator[Reading]:
    """A rank that failed by itself, or that was killed: no call was overdue (HD401, HD402)."""
    if any(meeting.key.numbered for meeting in known.meetings):
        return
    own = [each for each in known.failures if each.rank is not None and not known.went_on(each)]
    if own:
        yield _exception(known, own)
        return
    first = _first_ends(known)
    if first:
        yield _end(known, first)


def _exception(known: Known, own: list[Raised]) -> Reading:
    ended = {rank for rank, end in known.ends.items() if end.status and not end.asked}
    culprits = [each for each in own if each.rank in ended] or own
    times = [each.at for each in culprits if each.at]
    first = min(culprits, key=lambda each: (each.at or min(times, default=0.0), each.place))
    alike = {each.rank for each in culprits if each.error == first.error and each.rank is not None}
    ranks = tuple(
        sorted(alike if len(alike) < max(len(known.ranks), 2) or len(culprits) == len(alike) else {first.rank or 0})
    )
    frame = user_frame(first.stack)
    where: Message = [" at ", Place(frame.file, frame.line, frame.function)] if frame is not None else ""
    empty = {rank for call in known.logged.calls if call.empty for rank in call.ranks}
    return Reading(
        Strength.FAILURE,
        Outcome.CRASHED,
        sentence([Does(ranks, "failed", "failed"), f" with {first.error}", where]),
        "HD401",
        ranks,
        Confidence.CERTAIN if set(ranks) <= ended and len(ended) == len(ranks) else Confidence.LIKELY,
        why=joined(
            "the others were ended by the launcher" if any(end.asked for end in known.ends.values()) else "",
            [Does(tuple(sorted(empty)), "made", "made"), " no call at all when the others compared theirs"]
            if empty
            else "",
        ),
        fix="mend what raised it; what the other ranks print afterwards follows from it",
        sure="its traceback is in the log" + (", and its launcher saw it end by itself" if set(ranks) <= ended else ""),
        sides=(side(ranks, first.error, first.stack),),
        sources=(first.place,),
    )


def _first_ends(known: Known) -> list[tuple[int, Ended]]:
    """The ends that came first, of those that nobody asked for and that are no abort after another's end."""
    ends = known.ends.items()
    own = [(r, end) for r, end in ends if not end.asked and (end.signal or end.status) and r not in known.victims]
    # Who ends a job from outside sends SIGTERM to all, and torch aborts every rank of one that hangs: several of these
    # tell of none, in whatever order they came.
    alike = Counter(end.signal for _, end in own)
    own = [(r, end) for r, end in own if end.signal not in (_SIGTERM, _SIGABRT) or alike[end.signal] == 1]
    everyone = len(own) > 1 and {r for r, _ in own} == set(known.ranks) and len(alike) == 1
    if not own or (everyone and own[0][1].signal):
        return []  # all were killed alike: from outside
    timed = [end.at for _, end in own if end.at]
    earliest = min(timed, default=0.0)
    first = [(rank, end) for rank, end in own if not end.at or end.at <= earliest]
    return [each for each in first if each[1].signal != _SIGABRT] or first


def _end(known: Known, first: list[tuple[int, Ended]]) -> Reading:
    ranks = tuple(sorted(rank for rank, _ in first))
    end = first[0][1]
    how = f"by signal {end.signal}" if end.signal else f"with status {end.status}"
    killed = end.signal is not None
    told = {each.rank for each in known.logged.raised} | set(known.streams)
    silent = not killed and not told & set(ranks)
    others = tuple(sorted(rank for rank, each in known.ends.items() if each.asked))
    return Reading(
        Strength.ENDED,
        Outcome.CRASHED,
        sentence(
            [Does(ranks, "ended", "ended"), f" {how}", f" on {end.host}" if end.host else ""],
            [Does(others, "was", "were"), " ended by the launcher afterwards"] if others else "",
        ),
        "HD402" if killed else "HD401",
        ranks,
        Confidence.POSSIBLE if silent else Confidence.LIKELY,
        why=_KILLED if end.signal == _SIGKILL else _MAY_HAVE_WAITED if silent else "",
        fix="look at `dmesg` and the scheduler's log of that host at that time" if end.signal == _SIGKILL
        else ["look at the output of ", Ranks(ranks), " before its end" if len(ranks) == 1 else " before their end"],
        sure="the launcher's own times, to a second" + ("; they ended in the same one" if len(ranks) > 1 else ""),
        sources=tuple(each.place for _, each in first[:2]),
    )  # fmt: skip
