"""Whether the snapshots of several hosts show one job, and what they lack of being taken at one moment.

The snapshots come from files that a person named, or from hosts that were asked. Each has an origin, by which messages
name it: a file, or a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from hangdoc.model.clocks import with_one_clock
from hangdoc.model.launch import MEETING_NAMES, NAMES_OF_A_JOB, shared_variables
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_duration, name_ranks

_ONE_MOMENT = 60.0
"""Seconds that looks at one frozen job may be apart without a word: asking many hosts takes some. Judgement."""
HOSTS = "hosts"
"""``Unavailable.what`` of everything that is said about whole hosts."""
OTHER_HOSTS = "other hosts"
"""The same of a look at one host, which a merge with others makes obsolete."""


@dataclass(frozen=True, slots=True)
class Part:
    """A snapshot of one host, or of several that were merged. ``origin``: the file or the host that it came from."""

    origin: str
    snapshot: JobSnapshot


@dataclass(frozen=True, slots=True)
class Foreign:
    """A part that does not fit the others, and why: 'MASTER_PORT is 29501, and 29500 on a'."""

    part: Part
    why: str


def fitting(parts: Sequence[Part]) -> tuple[list[Part], list[Foreign], list[Unavailable]]:
    """(the parts that show the job of the first one, the parts that do not, notes about the former).

    Of several looks at the same ranks of a host only the latest is kept. Example: two files of host a, one of host b
    and one of another job's host c → ([the later of a, b], [c], [the note that names the earlier of a]).
    """
    latest, notes = _latest_of_each_host(parts)
    kept: list[Part] = []
    foreign: list[Foreign] = []
    for part in latest:
        why = _conflict(kept, part, latest)
        if why:
            foreign.append(Foreign(part, why))
        else:
            kept.append(part)
    aligned = with_one_clock([_alone_no_more(part.snapshot) if len(kept) > 1 else part.snapshot for part in kept])
    kept = [Part(part.origin, snapshot) for part, snapshot in zip(kept, aligned, strict=True)]
    return kept, foreign, [*notes, *_apart(kept)]


def _alone_no_more(snapshot: JobSnapshot) -> JobSnapshot:
    notes = tuple(note for note in snapshot.unavailable if note.what != OTHER_HOSTS)
    return snapshot if len(notes) == len(snapshot.unavailable) else replace(snapshot, unavailable=notes)


def with_notes(snapshot: JobSnapshot, notes: Iterable[Unavailable]) -> JobSnapshot:
    """``snapshot`` with ``notes`` before what it lacks already."""
    return replace(snapshot, unavailable=tuple(dict.fromkeys((*notes, *snapshot.unavailable))))


# --- which host ---------------------------------------------------------------------------------------------------


def _latest_of_each_host(parts: Sequence[Part]) -> tuple[list[Part], list[Unavailable]]:
    """``parts`` without those all of whose ranks a later part shows on the same host; a note for each left out."""
    kept: list[Part] = []
    notes = []
    for part in sorted(parts, key=lambda part: (-part.snapshot.taken, part.origin)):
        places = set(_places(part.snapshot))
        later = next((other for other in kept if places <= set(_places(other.snapshot)) and _alike(part, other)), None)
        if later is None:
            kept.append(part)
        elif later.snapshot.taken - part.snapshot.taken > _ONE_MOMENT:
            age = name_duration(later.snapshot.taken - part.snapshot.taken)
            why = f"{part.origin} is left out: {later.origin} shows the same ranks on the same host {age} later"
            notes.append(Unavailable(HOSTS, why))
    order = {id(part.snapshot): number for number, part in enumerate(parts)}
    return sorted(kept, key=lambda part: order[id(part.snapshot)]), notes


def _alike(part: Part, other: Part) -> bool:
    """True if both show ranks, and nothing says that they are of two jobs."""
    theirs = variables_of(other.snapshot)
    differs = any(theirs.get(name, value) != value for name, value in variables_of(part.snapshot).items())
    return not differs and any(map(_is_seen, part.snapshot.ranks))


def _places(snapshot: JobSnapshot) -> Iterator[tuple[int, str]]:
    """(rank, host) of every rank that was seen; the host's identity, where it has one, else its name."""
    identity = {host.name: host.identity or host.name for host in snapshot.hosts}
    return ((rank.rank, identity.get(rank.host, rank.host)) for rank in snapshot.ranks if _is_seen(rank))


def _is_seen(rank: RankSnapshot) -> bool:
    return rank.process is not None or rank.exit is not None


# --- which job ----------------------------------------------------------------------------------------------------


def _conflict(kept: Sequence[Part], part: Part, every: Sequence[Part]) -> str:
    """Why ``part`` cannot be of the job that ``kept`` shows; '' where it can."""
    if not kept:
        return ""
    own = variables_of(part.snapshot)
    differing = {
        name: (value, other[name], kept_part.origin)
        for kept_part in reversed(kept)  # the first one is named
        for other in [variables_of(kept_part.snapshot)]
        for name, value in own.items()
        if name in other and other[name] != value
    }
    for name, (value, theirs, origin) in differing.items():
        if name in NAMES_OF_A_JOB:
            return f"its {name} is {value}, and {theirs} in {origin}"
    # One job whose hosts were given different meeting places: that is the fault to report, if no rank is left over.
    for name, (value, theirs, origin) in differing.items():
        if not _only_together_complete(every):
            return f"its {name} is {value}, and {theirs} in {origin}"
    return _rank_on_two_hosts(kept, part)


def _rank_on_two_hosts(kept: Sequence[Part], part: Part) -> str:
    mine = {rank: host for rank, host in _places(part.snapshot) if _runs(part.snapshot, rank)}
    for other in kept:
        theirs = {rank: host for rank, host in _places(other.snapshot) if _runs(other.snapshot, rank)}
        twice = sorted(rank for rank in mine.keys() & theirs.keys() if mine[rank] != theirs[rank])
        if twice:
            verb = "runs" if len(twice) == 1 else "run"
            return f"{name_ranks(twice)} {verb} there and also, on another host, in {other.origin}"
    return ""


def _runs(snapshot: JobSnapshot, number: int) -> bool:
    return any(rank.rank == number and rank.process is not None and rank.exit is None for rank in snapshot.ranks)


def _only_together_complete(parts: Sequence[Part]) -> bool:
    """True if the parts have every rank of one world size exactly once."""
    ranks = sorted(rank for part in parts for rank, _ in _places(part.snapshot))
    worlds = {part.snapshot.world_size for part in parts}
    return len(worlds) == 1 and ranks == list(range(worlds.pop() or 0))


def variables_of(snapshot: JobSnapshot) -> Mapping[str, str]:
    """The variables that all ranks of the snapshot agree on and by which one job differs from another."""
    found: dict[str, set[str]] = {}
    for rank in snapshot.ranks:
        for name, value in shared_variables(dict(rank.environment)).items():
            found.setdefault(name, set()).add(value)
    agreed = {name: values.pop() for name, values in found.items() if len(values) == 1}
    if snapshot.world_size and "WORLD_SIZE" not in agreed:
        agreed["WORLD_SIZE"] = str(snapshot.world_size)
    return {name: agreed[name] for name in (*NAMES_OF_A_JOB, *MEETING_NAMES) if name in agreed}


# --- which moment -------------------------------------------------------------------------------------------------


def _apart(parts: Sequence[Part]) -> list[Unavailable]:
    """A note where the looks were not taken at about one moment."""
    if len(parts) < 2:
        return []
    first, last = (choose(parts, key=lambda part: part.snapshot.taken) for choose in (min, max))
    apart = last.snapshot.taken - first.snapshot.taken
    if apart <= _ONE_MOMENT:
        return []
    why = f"{first.origin} was taken {name_duration(apart)} before {last.origin}, or the hosts' clocks differ by that"
    return [Unavailable(HOSTS, why, "if anything moved in between, look again at all hosts at once")]
