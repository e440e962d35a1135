"""The process groups of a recorder's dump (``pg_config``), and how far each has come (``pg_status``)."""

from __future__ import annotations

import contextlib
import itertools
import json
from typing import Any

from hangdoc.capture.read.recorder_values import text, whole
from hangdoc.model.journal import ProcessGroup

_MOST_GROUPS = 16_384
"""Of a rank; chosen by hand."""
MOST_RANKS = 1 << 17
"""Of a job: more than any job has, and less than a date such as 20251120 at the end of a file's name."""
_MOST_MEMBERS = 1 << 20
"""Of all groups that the dumps of a folder name, together; chosen by hand."""


def counters(status: Any, names: dict[str, str]) -> tuple[tuple[str, int, int], ...]:
    """``pg_status`` → (group, enqueued, completed). Its keys are numbers, which ``names`` translates."""
    if not isinstance(status, dict):
        return ()
    found = []
    for number, values in itertools.islice(status.items(), _MOST_GROUPS):
        if isinstance(values, dict):
            with contextlib.suppress(ValueError):  # no number at all
                enqueued = whole(values.get("last_enqueued_collective"))
                completed = whole(values.get("last_completed_collective"))
                found.append((names.get(text(number), text(number)), enqueued, completed))
    return tuple(found)


def _numbered(groups: tuple[ProcessGroup, ...]) -> dict[str, str]:
    """``pg_id`` → group, for a dump whose entries do not say it: the ids count a rank's groups as their names do."""
    names = [group.name for group in groups]
    if not all(name.isdigit() for name in names):
        return {}
    return {str(number): name for number, name in enumerate(sorted(names, key=int))}


def status_of(
    status: Any, names: dict[str, str], groups: tuple[ProcessGroup, ...]
) -> tuple[tuple[str, int, int, int], ...]:
    """``pg_status`` → (group, enqueued, started, completed), -1 for what it does not say."""
    if not isinstance(status, dict):
        return ()
    names = _numbered(groups) | names
    keys = ("last_enqueued_collective", "last_started_collective", "last_completed_collective")
    found = []
    for number, values in itertools.islice(status.items(), _MOST_GROUPS):
        if isinstance(values, dict):
            with contextlib.suppress(ValueError):  # no number at all
                enqueued, started, completed = (whole(values[k]) if k in values else -1 for k in keys)
                found.append((names.get(text(number), text(number)), enqueued, started, completed))
    return tuple(found)


def groups_of(config: Any, members_of: Members) -> tuple[ProcessGroup, ...]:
    """Groups of ``pg_config``; not gloo's, which has one entry without a name."""
    if not isinstance(config, dict):
        return ()
    found = []
    for name, values in itertools.islice(config.items(), _MOST_GROUPS):
        if isinstance(values, dict) and name:
            members = members_of.read(text(name), values.get("ranks"))
            found.append(ProcessGroup(text(name), members, text(values.get("desc") or "")))
    return tuple(found)


class Members:
    """The lists of members in the dumps of a folder. Every dump has the same few, thousands of numbers each: read
    once, and of all groups together no more than so many numbers."""

    def __init__(self) -> None:
        self._known: dict[str | tuple[int, ...], tuple[int, ...]] = {}
        self._groups: set[tuple[str, int]] = set()
        self._left = _MOST_MEMBERS

    def read(self, group: str, ranks: Any) -> tuple[int, ...]:
        """The global ranks; empty where the list makes no sense, or too much of it is there."""
        members = self._known.get(ranks) if isinstance(ranks, str) else None
        if members is None:
            members = _ranks_in(ranks)
            if len(members) > self._left:
                return ()
            members = self._known.setdefault(members, members)
            if isinstance(ranks, str):
                self._known[ranks] = members
        if (group, id(members)) not in self._groups:
            if len(members) > self._left:
                return ()
            self._left -= len(members)
            self._groups.add((group, id(members)))
        return members


def _ranks_in(ranks: Any) -> tuple[int, ...]:
    if isinstance(ranks, str):
        try:
            ranks = json.loads(ranks) if len(ranks) < 16 * MOST_RANKS else ()
        except (ValueError, RecursionError):
            return ()
    if not isinstance(ranks, (list, tuple)) or len(ranks) > MOST_RANKS:
        return ()
    return tuple(rank for rank in ranks if type(rank) is int and 0 <= rank < MOST_RANKS)
