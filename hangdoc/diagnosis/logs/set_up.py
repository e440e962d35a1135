"""Readings of ranks that did not come, as the rendezvous, monitored_barrier and NCCL's own service tell it."""

from __future__ import annotations

from collections.abc import Iterator

from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.reading import (
    NO_CAUSE,
    Reading,
    Strength,
    last_words,
)
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.message import Does, Ranks, joined, sentence


def rendezvous(known: Known) -> Iterator[Reading]:
    """Ranks that waited for the rendezvous, or for a communicator's id, in vain."""
    if any(meeting.key.numbered for meeting in known.meetings):
        return
    by_kind = {
        kind: [s for s in known.logged.set_ups if s.kind == kind] for kind in ("unique id", "clients", "connect")
    }
    ids = by_kind["unique id"]
    if ids:
        waiting = tuple(sorted({each.joined for each in ids if each.joined >= 0}))
        first = int(ids[0].target) if ids[0].target.isdigit() else 0
        named = (first,) if first not in waiting else ()
        if named:
            yield Reading(
                Strength.SET_UP,
                Outcome.HANG,
                sentence(
                    [Ranks(named), " has not come to the first call of the group, whose ncclUniqueId it provides"],
                    [Does(waiting, "waits", "wait"), " for it"],
                ),
                NO_CAUSE,
                named,
                Confidence.LIKELY,
                why=last_words(known, named),
                fix=["look at what ", Ranks(named), " does before its first collective"],
                sure="the others' errors name it; the numbers are those of the group",
                sources=tuple(each.place for each in ids[:2]),
            )
    if by_kind["clients"]:
        said = max(by_kind["clients"], key=lambda each: each.joined)
        seen = {each.rank for each in by_kind["clients"] if each.rank is not None}
        absent = said.expected - said.joined
        elsewhere = tuple(sorted({e.rank for e in by_kind["connect"] if e.rank is not None} - seen))
        told = seen | set(known.streams) | {each.rank for each in known.logged.raised}
        gone = elsewhere or tuple(r for r in known.ranks if r not in told)
        yield Reading(
            Strength.SET_UP,
            Outcome.HANG,
            sentence(f"{said.joined} of {said.expected} ranks came to the rendezvous, {absent} did not"),
            "HD302" if elsewhere and len(gone) == absent else "HD301",
            gone if len(gone) == absent else (),
            Confidence.LIKELY,
            why=[Does(gone, "tried", "tried"), f" to connect to {by_kind['connect'][0].target} in vain"]
            if elsewhere and len(gone) == absent
            else [Ranks(gone), " alone", " is" if len(gone) == 1 else " are", " in no line of the logs"]
            if len(gone) == absent
            else "the log does not say which",
            fix="look at whether these ranks were started, and whether they reach the master's address and port",
            sure="the rendezvous counts them",
            sources=(said.place,),
        )
    if by_kind["connect"]:
        said = by_kind["connect"][0]
        ranks = tuple(sorted({each.rank for each in by_kind["connect"] if each.rank is not None}))
        yield Reading(
            Strength.SET_UP,
            Outcome.HANG,
            sentence(
                [Does(ranks, "could not connect", "could not connect"), f" to the rendezvous at {said.target}"]
                if ranks
                else f"the rendezvous at {said.target} could not be reached"
            ),
            "HD302",
            (),
            Confidence.POSSIBLE,
            why="nobody listened there, or the network let nothing through",
            fix="check MASTER_ADDR and MASTER_PORT, and that rank 0 was running then",
            sure="the error names the address; a log does not show why",
            sources=(said.place,),
        )


def barrier_victims(known: Known) -> Iterator[Reading]:
    """Ranks that came to monitored_barrier and waited there for rank 0."""
    if any(each.place.kind == "monitored_barrier" for each in known.logged.behind):
        return
    sends = [each for each in known.logged.barriers if each.direction == "send" and each.rank is not None]
    if not sends:
        return
    peer = sends[0].peer
    waiting = tuple(sorted({each.rank for each in sends if each.rank is not None}))
    yield Reading(
        Strength.BEHIND,
        Outcome.HANG,
        sentence(
            [f"rank {peer} has not come to monitored_barrier"],
            [Does(waiting, "waits", "wait"), " in it for rank ", str(peer)],
        ),
        NO_CAUSE,
        (peer,),
        Confidence.LIKELY,
        why=joined("their sends to it timed out, so it was not in the barrier", last_words(known, (peer,))),
        fix=["look at what ", Ranks((peer,)), " does while the others are in the barrier"],
        sure="the others' own errors show it",
        sources=tuple(each.place for each in sends[:2]),
    )


def ras(known: Known) -> Iterator[Reading]:
    """Ranks behind by NCCL's own counts. RAS lists the fewer members, whether they are ahead or behind."""
    status = known.job.nccl
    for communicator in status.communicators if status is not None else ():
        silent = tuple(sorted(each.number for each in communicator.silent))
        if silent:
            yield Reading(
                Strength.BEHIND,
                Outcome.HANG,
                sentence([Does(silent, "does", "do"), " not answer NCCL's own service any more"]),
                NO_CAUSE,
                silent,
                Confidence.LIKELY,
                fix=["look at whether the processes of ", Ranks(silent), " still live, and at `dmesg` of their hosts"],
                sure="NCCL's service says so; its ranks are those of one communicator",
            )
            continue
        for op in dict.fromkeys(each.operation for each in communicator.counts):
            counts = sorted((c for c in communicator.counts if c.operation == op), key=lambda c: c.count)
            if len(counts) < 2:
                continue
            low, high = counts[0], counts[-1]
            ahead = [m.number for m in high.members]
            behind = [m.number for m in low.members]
            every = set(range(communicator.size)) if communicator.size else set()
            if (
                not behind
                and len(counts) == 2
                and len(ahead) == high.how_many
                and len(every) == low.how_many + high.how_many
            ):
                behind = sorted(every - set(ahead))
            few = low.how_many < high.how_many and len(behind) == low.how_many
            sides = tuple(tuple(sorted(side)) for side in (behind, ahead) if side)
            yield Reading(
                Strength.BEHIND if few else Strength.FACTS,
                Outcome.HANG,
                sentence(
                    f"{low.how_many} ranks have launched {op or 'their calls'} up to #{low.count}, "
                    f"{high.how_many} up to #{high.count}",
                    [Does(tuple(behind), "is", "are"), " behind"] if behind else "",
                ),
                NO_CAUSE,
                tuple(behind) if few else (),
                Confidence.LIKELY if few else Confidence.POSSIBLE,
                () if few else sides,
                why="" if few else "the fewer may have made a call too many, or the others may have left one out",
                fix="compare the stacks of the two sides (`py-spy dump`, or `hangdoc attach` while it still runs)",
                sure="NCCL's own counts show who is behind; whose fault that is, they do not",
            )
