"""Who does what: the rows of a report that show each behavior once, with its ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import NamedTuple

from hangdoc.model.diagnosis import Activity, Diagnosis, Side
from hangdoc.model.process import Frame
from hangdoc.model.wording import fold_ranks, name_ranks
from hangdoc.report.layout import Piece, Row

MAX_ROWS = 12
MAX_PIDS = 4
"""Most rows of each kind: a report fits on one screen. Chosen by hand; the JSON document has everything."""
_MOST_STACKS = 40
_MOST_FRAMES = 60
_CHILDREN = {"dataloader-worker": "DataLoader worker", "child": "child process"}
"""Roles of the processes that a rank has started, in words."""


class FileNames:
    """The names that the diagnosis' sentences call its files by."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._names = dict(diagnosis.file_names)

    def short(self, file: str) -> str:
        """'train.py', or more of the path where the diagnosis does so."""
        return self._names.get(file) or (file if file.startswith("<") else PurePosixPath(file).name or file)


def behavior_rows(diagnosis: Diagnosis, paths: FileNames, most: int = MAX_ROWS) -> Iterator[Row]:
    """The sides of the divergence, culprits first, and below them who is elsewhere by now. ``most`` rows of each."""
    if diagnosis.divergence is None or not diagnosis.divergence.sides:
        yield from _activities(diagnosis, paths, most=most)
        return
    sides = sorted(
        diagnosis.divergence.sides,
        key=lambda side: (not set(side.ranks) & set(diagnosis.culprits), len(side.ranks), side.ranks),
    )
    at_divergence = {(side.frame.file, side.frame.line) for side in sides if side.frame}
    elsewhere = [
        activity
        for activity in diagnosis.ranks
        if activity.where is None or (activity.where.file, activity.where.line) not in at_divergence
    ]
    if elsewhere and _are_there_now(sides, diagnosis):
        yield from _activities(diagnosis, paths, most=most)
        return
    for index, side in enumerate(sides[:most]):
        last = index == len(sides) - 1 and len(side.ranks) > 1
        guilty = bool(set(side.ranks) & set(diagnosis.culprits))
        others = last and not guilty and _covers_everyone(sides, diagnosis)
        yield Row(
            "others" if others else label_ranks(side.ranks),
            (_place(side.frame, paths), *_called(side, diagnosis, together=bool(elsewhere))),
            "bold red" if guilty else "",
            aligned=True,
        )
    if len(sides) > most:
        yield Row("", (Piece(f"… and {len(sides) - most} more behaviors"),))
    if elsewhere:
        yield Row("", ())
        yield from _activities(diagnosis, paths, now="now: ", most=most)


def _are_there_now(sides: Iterable[Side], diagnosis: Diagnosis) -> bool:
    """True if every rank of the sides is still in the call at which they diverged: then who does what says it all."""
    now = {activity.rank: activity for activity in diagnosis.ranks}
    return all(
        side.sequence is not None
        and rank in now
        and (now[rank].op, now[rank].sequence, now[rank].where) == (side.op, side.sequence, side.frame)
        for side in sides
        for rank in side.ranks
    )


def _covers_everyone(sides: Iterable[Side], diagnosis: Diagnosis) -> bool:
    everyone = {activity.rank for activity in diagnosis.ranks}
    return bool(everyone) and everyone <= {rank for side in sides for rank in side.ranks}


def _activities(diagnosis: Diagnosis, paths: FileNames, *, now: str = "", most: int) -> Iterator[Row]:
    """Ranks that do the same thing at the same place are one row; culprits first."""
    found = _folded(diagnosis)
    rest = len(found) == 2 and found[0].guilty and not found[1].guilty and len(found[1].ranks) > 1
    for index, each in enumerate(found[:most]):
        label = now + ("others" if rest and index else label_ranks(each.ranks))
        yield Row(label, tuple(_doing(each, diagnosis, paths)), "bold red" if each.guilty else "", aligned=True)
    if len(found) > most:
        yield Row("", (Piece(f"… and {len(found) - most} more behaviors"),))


def _is_said(label: str, diagnosis: Diagnosis) -> bool:
    """True if the sentences above the rows name what a library does: once is enough."""
    return label in diagnosis.verdict or label.casefold() in diagnosis.why.casefold()


def _doing(behavior: _Behavior, diagnosis: Diagnosis, paths: FileNames) -> Iterator[Piece]:
    activity = behavior.first
    yield _place(activity.where, paths)
    yield Piece(activity.text, "bold")
    if activity.landmark and activity.landmark not in activity.text and not _is_said(activity.landmark, diagnosis):
        yield Piece(f"({activity.landmark})")
    if behavior.waits_for and not behavior.guilty:
        yield Piece(f"waits for {name_ranks(behavior.waits_for)}")


class _Behavior(NamedTuple):
    """Ranks that do the same thing at the same place and wait for the same culprits. ``first``: of one of them."""

    guilty: bool
    first: Activity
    ranks: tuple[int, ...]
    waits_for: frozenset[int]


def _folded(diagnosis: Diagnosis) -> list[_Behavior]:
    """The behaviors of all ranks, those of culprits first."""
    culprits = frozenset(diagnosis.culprits)
    waits: dict[int, set[int]] = {}
    for wait in diagnosis.waits:
        waits.setdefault(wait.waiter, set()).update(wait.on)
    folded: dict[tuple[bool, object, frozenset[int]], list[Activity]] = {}
    for activity in diagnosis.ranks:
        where = activity.where
        place = (where.file, where.line, where.function) if where else None
        doing = (place, activity.text, activity.landmark)
        # Members of one group wait for each other: what they have in common is which culprits they wait for.
        outside = culprits.intersection(waits.get(activity.rank, ()))
        folded.setdefault((activity.rank in culprits, doing, outside), []).append(activity)
    found = [
        _Behavior(guilty, members[0], tuple(member.rank for member in members), waits_for)
        for (guilty, _, waits_for), members in folded.items()
    ]
    return sorted(found, key=lambda each: (not each.guilty, each.first.rank))


def stack_rows(diagnosis: Diagnosis, paths: FileNames) -> Iterator[Row]:
    """The stack of each behavior, the innermost call first, culprits first; equal stacks once."""
    culprits = frozenset(diagnosis.culprits)
    folded: dict[tuple[tuple[str, int, str], ...], list[int]] = {}
    for activity in sorted(diagnosis.ranks, key=lambda each: each.rank not in culprits):
        if activity.stack:
            places = tuple((frame.file, frame.line, frame.function) for frame in activity.stack)
            folded.setdefault(places, []).append(activity.rank)
    for places, ranks in list(folded.items())[:_MOST_STACKS]:
        yield Row("", ())
        label = label_ranks(tuple(ranks))
        for file, line, function in places[:_MOST_FRAMES]:
            yield Row(label, (Piece(f"{function}  {paths.short(file)}:{line}", place=(file, line)),))
            label = ""
        if len(places) > _MOST_FRAMES:
            yield Row("", (Piece(f"… and {len(places) - _MOST_FRAMES} calls further out"),))


def process_rows(diagnosis: Diagnosis) -> Iterator[Row]:
    """Where to look at the culprits: their process ids and hosts."""
    own, children = _pids_by_host(diagnosis)
    shown = []
    for host, pids in own.items():
        more = f" and {len(pids) - MAX_PIDS} more" if len(pids) > MAX_PIDS else ""
        named = f"pid{'s' if len(pids) > 1 else ''} {', '.join(pids[:MAX_PIDS])}{more}"
        shown.append("; ".join([named + (f" on {host}" if host else ""), *children.get(host, [])[:MAX_PIDS]]))
    if shown:
        yield Row("", ())
        yield Row("process", (Piece("; ".join(shown[:MAX_PIDS]) + ("; …" if len(shown) > MAX_PIDS else "")),))


def _pids_by_host(diagnosis: Diagnosis) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Host → the culprits' own processes ('4711 (rank 1)'), and host → their children ("its child process 4712")."""
    own: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    several = sum(item.role not in _CHILDREN for item in diagnosis.culprit_processes) > 1
    for item in diagnosis.culprit_processes:
        if item.pid is None:
            continue
        whose = f"rank {item.rank}" if item.rank is not None and several else ""
        if item.role in _CHILDREN:
            owner = f"{whose}'s" if whose else "its"
            children.setdefault(item.host, []).append(f"{owner} {_CHILDREN[item.role]} {item.pid}")
        else:
            own.setdefault(item.host, []).append(f"{item.pid} ({whose})" if whose else str(item.pid))
    return own, children


def label_ranks(ranks: tuple[int, ...]) -> str:
    """'rank 1', 'ranks 0, 2-5', or the count where they are many."""
    named = name_ranks(ranks)
    return named if "(" in named else f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(ranks)}"


def _members(ranks: tuple[int, ...]) -> str:
    """As they are named elsewhere, without the word: '0-3', '64 ranks (3,67,131 … 4035; list in the JSON)'."""
    named = name_ranks(ranks)
    return named if "(" in named else fold_ranks(ranks)


def _place(frame: Frame | None, paths: FileNames) -> Piece:
    if frame is None:
        return Piece("")
    function = frame.function if frame.function.startswith("<") else f"{frame.function}()"
    text = f"{paths.short(frame.file)}:{frame.line} {function}"
    return Piece(text, shorten=True, place=(frame.file, frame.line))


def _called(side: Side, diagnosis: Diagnosis, *, together: bool) -> Iterator[Piece]:
    """The call of a side. ``together``: as one piece, as the rows of what ranks do now have it: they share columns."""
    size = diagnosis.world_size or len(diagnosis.ranks)
    members = f"[{_members(side.members)}]" if side.members and len(side.members) < size else ""
    number = f" #{side.sequence}" if side.sequence is not None else ""
    group = f"{side.group}{members}{number}".strip()
    yield Piece(f"{side.op}  {group}" if together and group else side.op, "bold")
    if group and not together:
        yield Piece(group)
    if side.note and not _is_said(side.note, diagnosis):
        yield Piece(f"({side.note})")
