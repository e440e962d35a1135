"""Files named by the rank on their host alone: every host of a job then leaves a ``trace_0``.

The groups in the dumps say how many ranks the job has, and which of them a dump may be of. Where they leave more than
one order of the hosts, the numbers in the hosts' names decide (``node0``, ``node1``), or nothing does: a rank that is
named wrongly is worse than none.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace

from hangdoc.capture.dumps.membership import Member, possible_ranks

_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, slots=True)
class Told:
    """The dumps with the ranks that they are of in the job."""

    members: list[Member]
    unclear: list[Member]
    """Those whose host has no known place among the hosts."""
    by_name: bool = False
    """The hosts' names alone gave them their places."""


# One branch for each way to tell which host a file is of, the surest first.
def with_ranks_in_job(members: list[Member]) -> Told:
    """The dumps of one run; where their names are those on the hosts, with the ranks of the job.

    Example: a/trace_0 to a/trace_3 and b/trace_0 to b/trace_3 of a job of 8, and b/trace_1 has calls in a group of
    ranks 5 and 7 → those in b are ranks 4 to 7.
    """
    hosts = _hosts(members)
    size = max((len(group.members) for member in members for group in member.dump.groups), default=0)
    each = 1 + max((member.number for ranks in hosts.values() for member in ranks), default=0)
    count = -(-size // each)
    dumps = sum(map(len, hosts.values()))  # of replicas there are more than their job has ranks
    if not 1 < len(hosts) <= count or dumps > size or not _are_of_hosts(hosts):
        return Told(members, [])
    sets: dict[int, frozenset[int]] = {}
    open_ = {
        host: {at for at in range(count) if all(_may_be(member, at * each + member.number, sets) for member in ranks)}
        for host, ranks in hosts.items()
    }
    places = _by_elimination(open_)
    by_name = len(places) < len(hosts)
    if by_name:
        places = _by_names(open_)
    found = [m for m in members if m.number < 0]
    found += [replace(m, rank=places[host] * each + m.number) for host in places for m in hosts[host]]
    unclear = [m for host in hosts.keys() - places.keys() for m in hosts[host]]
    return Told(found, unclear, by_name and bool(places))


def _hosts(members: list[Member]) -> dict[str, list[Member]]:
    """The dumps whose ranks only their names say, by host: by folder, or by what else is in the name."""
    named = [member for member in members if member.number >= 0]

    def of(host: Callable[[Member], str]) -> dict[str, list[Member]]:
        found: dict[str, list[Member]] = {}
        for member in named:
            found.setdefault(host(member), []).append(member)
        return found

    def folder(member: Member) -> str:
        return member.file.path.rpartition("/")[0]

    folders = of(folder)
    unique = all(max(Counter(m.number for m in ranks).values()) == 1 for ranks in folders.values())
    return (
        folders if len(folders) > 1 and unique else of(lambda member: without_number(member.file.path, member.number))
    )


def without_number(path: str, number: int) -> str:
    """The path without the number that is taken for the rank: trace_hostb_3 → trace_hostb_."""
    found = [m for m in _NUMBER.finditer(path) if int(m[0]) == number]
    return f"{path[: found[-1].start()]}{path[found[-1].end() :]}" if found else path


def _are_of_hosts(hosts: dict[str, list[Member]]) -> bool:
    """True if files of one number lie in several places and none of them is a copy of another."""
    by_number: dict[int, list[Member]] = {}
    for member in (member for ranks in hosts.values() for member in ranks):
        by_number.setdefault(member.number, []).append(member)
    several = [ranks for ranks in by_number.values() if len(ranks) > 1]
    marks = [[(m.dump.first_ns, m.dump.latest_ns, m.dump.own, m.dump.groups) for m in ranks] for ranks in several]
    return bool(several) and all(len(set(of_number)) == len(of_number) for of_number in marks)


def _may_be(member: Member, rank: int, sets: dict[int, frozenset[int]]) -> bool:
    possible = possible_ranks(member.dump, sets)
    return not possible or rank in possible


def _by_elimination(open_: dict[str, set[int]]) -> dict[str, int]:
    """Host → its place, for hosts that have one place left once those of the others are taken."""
    left = {host: set(places) for host, places in open_.items()}
    found: dict[str, int] = {}
    while True:
        single = next((host for host, places in left.items() if len(places) == 1), None)
        if single is None:
            return found
        (place,) = left.pop(single)
        found[single] = place
        for places in left.values():
            places.discard(place)


def _by_names(open_: dict[str, set[int]]) -> dict[str, int]:
    """Host → its place, by the last number in which the names differ, counted from 0 or from 1; {} where that
    cannot be, or both can."""
    numbers = _numbers_of(list(open_))
    fitting = []
    for first in (0, 1):
        places = {host: number - first for host, number in numbers.items()}
        if numbers and all(place in open_[host] for host, place in places.items()):
            fitting.append(places)
    return fitting[0] if len(fitting) == 1 else {}


def _numbers_of(hosts: list[str]) -> dict[str, int]:
    """Host → the last number in which the names differ; {} where they have no such number.

    Example: run7/gpu0/3, run7/gpu1/3 → 0, 1.
    """
    rows = [[int(number) for number in _NUMBER.findall(host)][::-1] for host in hosts]
    for column in zip(*rows, strict=False):
        if len(set(column)) == len(hosts):
            return dict(zip(hosts, column, strict=True))
    return {}
