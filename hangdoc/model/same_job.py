"""Whether the snapshots of several hosts show one job, and what they lack of being taken at one moment.

The snapshots come from files that a person named, or from hosts that were asked. Each has an origin, by which messages
name it: a file, or a host.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hangdoc.model.clocks import with_one_clock
from hangdoc.model.launch import MEETING_NAMES, NAMES_OF_A_JOB, shared_variables
from hangdoc.model.snapshot import JobSnapshot, Unavailable
from hangdoc.model.wording import name_duration, name_ranks

_SIZE = "WORLD_SIZE"
_ONE_MOMENT = 60.0
"""Seconds that looks at one frozen job may be apart without a word: asking many hosts takes some. Judgement."""
HOSTS = "hosts"
"""``Unavailable.what`` of everything that is said about whole hosts."""
MOMENT = "moment"
"""The same where the hosts were not looked at at one moment: a difference between them may then be none."""
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


def fitting(parts: Sequence[Part], *, clocks: bool = True) -> tuple[list[Part], list[Foreign], list[Unavailable]]:
    """(the parts that show the job of the first one, the parts that do not, notes about the former).

    Of several looks at the same ranks of a host only the latest is kept. With ``clocks`` all get the first one's.

    Example: two files of host a, one of host b
    and one of another job's host c → ([the later of a, b], [c], [the note that names the earlier of a]).
    """
    latest, notes = _latest_of_each_host([_Facts.of(part) for part in parts])
    together = _Together(complete=_only_together_complete(latest))
    foreign: list[Foreign] = []
    kept: list[Part] = []
    for facts in latest:
        why = together.conflict(facts)
        if why:
            foreign.append(Foreign(facts.part, why))
        else:
            together.add(facts)
            kept.append(facts.part)
    shown = [_alone_no_more(part.snapshot) if len(kept) > 1 else part.snapshot for part in kept]
    aligned = with_one_clock(shown) if clocks else shown
    aligned = [_with_its_launcher(snapshot) if len(kept) > 1 else snapshot for snapshot in aligned]
    kept = [Part(part.origin, snapshot) for part, snapshot in zip(kept, aligned, strict=True)]
    return kept, foreign, [*notes, *_apart(kept)]


@dataclass(frozen=True, slots=True)
class _Facts:
    """What decides about a part. ``hosts``: rank → the host that shows it, by its identity or else its name.
    ``running``: those of the ranks that live. ``sizes``: of the job, by its launcher and by its program, which may be
    wrong about it."""

    part: Part
    variables: Mapping[str, str]
    sizes: frozenset[str]
    hosts: Mapping[int, str]
    running: frozenset[int]

    @staticmethod
    def of(part: Part) -> _Facts:
        """Of one part."""
        identity = {host.name: host.identity or host.name for host in part.snapshot.hosts}
        seen = [rank for rank in part.snapshot.ranks if rank.process is not None or rank.exit is not None]
        variables = _variables_of_ranks(part.snapshot)
        return _Facts(
            part,
            variables,
            frozenset(filter(None, (variables.get(_SIZE), str(part.snapshot.world_size or "")))),
            {rank.rank: identity.get(rank.host, rank.host) for rank in seen},
            frozenset(rank.rank for rank in seen if rank.exit is None),
        )

    def is_covered_by(self, other: _Facts) -> bool:
        """True if ``other`` shows all ranks that this part shows, on the same host, and they may be one job's."""
        same = bool(self.hosts) and self.hosts.items() <= other.hosts.items()
        same = same and (_SIZE in self.variables or self.sizes <= other.sizes)
        return same and all(other.variables.get(name, value) == value for name, value in self.variables.items())


def _with_its_launcher(snapshot: JobSnapshot) -> JobSnapshot:
    """A snapshot of one host, with its launcher noted there: of several hosts' one alone is the job's."""
    if len(snapshot.hosts) != 1 or snapshot.launcher is None or snapshot.hosts[0].launcher is not None:
        return snapshot
    return replace(snapshot, hosts=(replace(snapshot.hosts[0], launcher=snapshot.launcher),))


def _alone_no_more(snapshot: JobSnapshot) -> JobSnapshot:
    notes = tuple(note for note in snapshot.unavailable if note.what != OTHER_HOSTS)
    return snapshot if len(notes) == len(snapshot.unavailable) else replace(snapshot, unavailable=notes)


def with_notes(snapshot: JobSnapshot, notes: Iterable[Unavailable]) -> JobSnapshot:
    """``snapshot`` with ``notes`` before what it lacks already."""
    return replace(snapshot, unavailable=tuple(dict.fromkeys((*notes, *snapshot.unavailable))))


# --- which host ---------------------------------------------------------------------------------------------------


def _latest_of_each_host(parts: Sequence[_Facts]) -> tuple[list[_Facts], list[Unavailable]]:
    """``parts`` without those all of whose ranks a later part shows on the same host; a note for each left out."""
    left_out: set[int] = set()
    notes = []
    by_place: dict[tuple[int, str], list[_Facts]] = {}
    newest_first = sorted(range(len(parts)), key=lambda number: -parts[number].part.snapshot.taken)
    for number in newest_first:
        facts = parts[number]
        place = next(iter(facts.hosts.items()), (-1, ""))
        later = next((other for other in by_place.get(place, ()) if facts.is_covered_by(other)), None)
        if later is None:
            for each in facts.hosts.items():
                by_place.setdefault(each, []).append(facts)
            continue
        left_out.add(number)
        age = later.part.snapshot.taken - facts.part.snapshot.taken
        if age > _ONE_MOMENT:
            shows = f"{later.part.origin} shows the same ranks on the same host {name_duration(age)} later"
            notes.append(Unavailable(HOSTS, f"{facts.part.origin} is left out: {shows}"))
    return [facts for number, facts in enumerate(parts) if number not in left_out], notes


# --- which job ----------------------------------------------------------------------------------------------------


class _Together:
    """What the parts that fit show together; ``conflict`` compares another part with them."""

    def __init__(self, *, complete: bool) -> None:
        self._complete = complete
        self._variables: dict[str, tuple[str, str]] = {}
        """Name → (value, origin of the first part that has it)."""
        self._sizes: dict[str, str] = {}
        """Size of the job → origin of the first part that tells it."""
        self._running: dict[int, tuple[str, str]] = {}
        """Rank → (host, origin)."""

    def add(self, facts: _Facts) -> None:
        """Take a part in that fits."""
        for name, value in facts.variables.items():
            self._variables.setdefault(name, (value, facts.part.origin))
        for size in facts.sizes:
            self._sizes.setdefault(size, facts.part.origin)
        for rank in facts.running:
            self._running.setdefault(rank, (facts.hosts[rank], facts.part.origin))

    def conflict(self, facts: _Facts) -> str:
        """Why a part cannot be of the same job; '' where it can.

        Hosts that were told to meet in different places may be one job, and that its fault, if no rank is left over.
        """
        for name, value in facts.variables.items():
            theirs, origin = self._variables.get(name, (value, ""))
            if theirs != value and (name in NAMES_OF_A_JOB or not self._complete):
                return f"its {name} is {value}, and {theirs} in {origin}"
        # A host without processes of ranks knows the size by one of the two words alone, the launcher's or the
        # program's.
        one_word = not (_SIZE in facts.variables and _SIZE in self._variables)
        if one_word and facts.sizes and self._sizes and facts.sizes.isdisjoint(self._sizes):
            (size, *_), ((other, origin), *_) = sorted(facts.sizes), sorted(self._sizes.items())
            return f"its {_SIZE} is {size}, and {other} in {origin}"
        twice = sorted(r for r in facts.running if self._running.get(r, (facts.hosts[r],))[0] != facts.hosts[r])
        if twice:
            verb = "runs" if len(twice) == 1 else "run"
            origin = self._running[twice[0]][1]
            return f"{name_ranks(twice)} {verb} there and also, on another host, in {origin}"
        return ""


def _only_together_complete(parts: Sequence[_Facts]) -> bool:
    """True if the parts have every rank of one world size exactly once."""
    ranks = sorted(rank for facts in parts for rank in facts.hosts)
    worlds = {facts.part.snapshot.world_size or 0 for facts in parts}
    # Anybody can write any size into a process's environment: nothing is made that is so large.
    return worlds == {len(ranks)} and ranks == list(range(len(ranks)))


def variables_of(snapshot: JobSnapshot) -> Mapping[str, str]:
    """The variables that all ranks of the snapshot agree on and by which one job differs from another."""
    agreed = _variables_of_ranks(snapshot)
    if snapshot.world_size and _SIZE not in agreed:
        agreed[_SIZE] = str(snapshot.world_size)
    return _in_order(agreed)


def _variables_of_ranks(snapshot: JobSnapshot) -> dict[str, str]:
    found: dict[str, set[str]] = {}
    for rank in snapshot.ranks:
        for name, value in shared_variables(dict(rank.environment)).items():
            found.setdefault(name, set()).add(value)
    return _in_order({name: values.pop() for name, values in found.items() if len(values) == 1})


def _in_order(variables: Mapping[str, str]) -> dict[str, str]:
    return {name: variables[name] for name in (*NAMES_OF_A_JOB, *MEETING_NAMES) if name in variables}


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
    return [Unavailable(MOMENT, why, "if anything moved in between, look again at all hosts at once")]
