"""Whose dump is a file, and which dumps are of one run? What the dumps say counts first, then the files' names."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.capture.dumps.find_files import DumpFile
from hangdoc.capture.dumps.fold import Dump
from hangdoc.capture.read.recorder_groups import MOST_RANKS

_SLACK_NS = 60 * 10**9
"""Between the last call of one dump and the first one of another of the same run, where both may be of one rank: a rank
may be slow to start. A job that is started again begins later, as its dumps were written after a time-out."""
_CLOCKS_NS = 600 * 10**9
"""The same of a rank that has no other dump: the hosts' clocks differ by minutes. A run that is started again after a
hang begins at least a time-out after the last call of the one before (10 min by default)."""
_LONGEST_WAIT_NS = 3600 * 10**9
"""From the last call to the dump: twice the longer of torch's default time-outs. A file that is younger was copied."""


@dataclass(frozen=True, slots=True)
class Member:
    """A dump, and the rank that it is of."""

    rank: int
    dump: Dump
    file: DumpFile
    number: int = -1
    """The likeliest number of the name, where nothing but the name says the rank; else -1."""


_Lists = frozenset[int]


def member_of(dump: Dump, file: DumpFile, sets: dict[int, _Lists]) -> Member | None:
    """The dump with its rank; None where neither its contents nor its name say.

    A rank is in all lists of members of its dump, and a point-to-point call shows its place in one of them. ``sets``
    remembers those lists, by identity.
    """
    lists = {group.name: group.members for group in dump.groups if group.members}
    shown = {lists[name][place] for name, place in dump.places if place < len(lists.get(name, ()))}
    if len(shown) == 1:
        return Member(shown.pop(), dump, file)
    possible = possible_ranks(dump, sets)
    if len(possible) == 1:
        return Member(next(iter(possible)), dump, file)
    numbers = [number for number in file.numbers() if number < MOST_RANKS]
    rank = next((n for n in numbers if not possible or n in possible), numbers[0] if numbers else None)
    return Member(rank, dump, file, numbers[0]) if rank is not None else None


def possible_ranks(dump: Dump, sets: dict[int, _Lists]) -> _Lists:
    """The ranks that are in all lists of members of the dump; empty where it has none."""
    possible: _Lists = frozenset()
    for group in sorted((group for group in dump.groups if group.members), key=lambda group: len(group.members)):
        own = sets.get(id(group.members))
        if own is None:
            own = sets[id(group.members)] = frozenset(group.members)
        possible = possible & own if possible else own
    return possible


def _was_written_after(member: Member, moment: int) -> bool:
    """True if the file was written by the job itself, and after that time (Unix ns)."""
    written = int(member.file.written * 1e9)
    return moment < written < end_of(member) + _LONGEST_WAIT_NS


# One branch for each sign that two dumps are of different runs.
def newest_run(members: list[Member]) -> tuple[list[Member], list[Member]]:
    """Those whose times are joined to the newest by others' times, and the rest: dumps of one run were recorded at the
    same time.

    A rank may have stood still for longer than the others' rings reach back. So where they have forgotten how the run
    began, an old dump is of an earlier run only if its rank has a newer one, or if its file is old too. Hosts' clocks
    may be minutes apart; but a run that is started again begins after the dumps of the one before were written. A dump
    without any call is of a rank at which nothing was under way, and only its file has a time.
    """
    found: list[Member] = []
    earlier: list[Member] = []
    apart: list[Member] = []
    ranks: set[int] = set()
    begun, written, remembered = 0, 0.0, True
    for member in sorted(members, key=lambda one: (bool(one.dump.first_ns), end_of(one)), reverse=True):
        if found and end_of(member) + _SLACK_NS < begun:
            old = member.file.written + _SLACK_NS / 1e9 < written
            if member.rank in ranks:
                earlier.append(member)
                continue
            if (remembered or old) and not _was_written_after(member, begun):
                if end_of(member) + _CLOCKS_NS < begun or not can_be_of_one_run(member, found):
                    earlier.append(member)
                else:
                    apart.append(member)
                continue
        if member.dump.first_ns or not found:
            begun = min(begun, _begin(member)) if found else _begin(member)
        written = min(written, member.file.written) if found else member.file.written
        remembered = remembered and not member.dump.forgotten
        ranks.add(member.rank)
        found.append(member)
    return _of_the_job_that_waited(*_with_hosts_apart(found, apart, earlier), begun)


def _of_the_job_that_waited(
    found: list[Member], earlier: list[Member], begun: int
) -> tuple[list[Member], list[Member]]:
    """Of two jobs that ran at one time, the one whose dumps were written last: its last call may be the older one, as a
    job that hangs makes none.

    A run that is started again begins after the dumps of the one before were written; so dumps that a job wrote after
    the newest one had begun are of a job beside it.
    """
    beside = [member for member in earlier if _was_written_after(member, begun)]
    if not beside or not all(_was_written_after(member, begun) for member in found):
        return found, earlier
    if max(m.file.written for m in beside) <= max(m.file.written for m in found):
        return found, earlier
    chosen, rest = newest_run(beside)
    taken = {id(member) for member in beside}
    return chosen, [*found, *rest, *(member for member in earlier if id(member) not in taken)]


def _with_hosts_apart(
    found: list[Member], apart: list[Member], earlier: list[Member]
) -> tuple[list[Member], list[Member]]:
    """The run and the earlier ones, where dumps lie ``apart`` by no more than clocks may: a run that has left nothing
    else in their folder is theirs, unless it shows there that they are of an earlier one."""
    here = {member.file.series for member in found}
    before = {member.file.series for member in earlier}
    ranks = {member.rank for member in found}
    for member in apart:
        of_earlier = member.file.series in before and member.file.series not in here
        if of_earlier or member.rank in ranks:
            earlier.append(member)
        else:
            ranks.add(member.rank)
            found.append(member)
    return found, earlier


def can_be_of_one_run(member: Member, others: list[Member]) -> bool:
    """False if the rank completed a call that needs all ranks of a group and that another had not issued in the end, or
    the other way round.

    Example: one completed all_reduce #50 of the default group, the others have issued 20 → False.
    """
    mine = numbers_of(member)
    seen: set[int] = set()
    for other in others:
        if id(other.dump.body) in seen:
            continue
        seen.add(id(other.dump.body))
        theirs = numbers_of(other)
        for group in mine.keys() & theirs.keys():
            if mine[group][0] > theirs[group][1] or theirs[group][0] > mine[group][1]:
                return False
    return True


def numbers_of(member: Member) -> dict[tuple[str, tuple[int, ...]], tuple[int, int]]:
    """Group → (number of the last completed call that needs all, number of the last call)."""
    lists = {group.name: group.members for group in member.dump.groups}
    return {
        (name, lists[name]): member.dump.body.numbers[group]
        for group, name in enumerate(member.dump.names)
        if group in member.dump.body.numbers and lists.get(name)
    }


def _begin(member: Member) -> int:
    return member.dump.first_ns or int(member.file.written * 1e9)


def end_of(member: Member) -> int:
    """When its last call was issued or seen to end, or else its file written, in Unix ns."""
    return member.dump.latest_ns or int(member.file.written * 1e9)
