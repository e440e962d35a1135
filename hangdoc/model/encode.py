"""Snapshots to bytes, with the standard library alone: `hangdoc capture` runs where pydantic is not installed."""

from __future__ import annotations

import dataclasses
import gzip
import json
import re
from functools import cache
from typing import Any

from hangdoc.errors import HangdocError
from hangdoc.model.interned import interned, size
from hangdoc.model.process import Process
from hangdoc.model.shared_calls import SharedCalls
from hangdoc.model.snapshot import JobSnapshot

_COMPRESSION = 3  # measured: a third of the time of level 6 for a tenth more bytes
_DEEPEST = 90
"""Processes below each other. The reader's parser (jiter) accepts 200 levels, of which each takes two."""
_LARGE = 50_000
"""Calls and stacks of all ranks together: where they are more, those that ranks have in common are written once. Below,
files can also be read by versions that know the first schema alone."""
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def snapshot_to_bytes(snapshot: JobSnapshot) -> bytes:
    """The snapshot as compressed JSON. Text that is not valid Unicode (file names) becomes backslash-escaped.

    Raises ``HangdocError`` for a process tree nested deeper than JSON parsers accept (90 levels).
    """
    refuse_too_deep(snapshot)
    return value_to_bytes(interned(snapshot) if size(snapshot) > _LARGE else snapshot)


def refuse_too_deep(snapshot: JobSnapshot) -> None:
    """Raise ``HangdocError`` for a process tree nested deeper than JSON parsers accept."""
    roots = [snapshot.launcher, *(host.launcher for host in snapshot.hosts), *(rank.process for rank in snapshot.ranks)]
    if any(root is not None and _is_too_deep(root) for root in roots):
        raise HangdocError(
            "cannot save the snapshot: its process tree is nested too deeply",
            "Look at the job's process tree: it seems to fork without end.",
        )


def value_to_bytes(value: object, *, sparse: bool = False) -> bytes:
    """A dataclass as compressed JSON, of which ``codec.value_from_bytes`` makes one again; ``sparse``: without what is
    as it is by default, which takes half the time to read."""
    # Infinity (`--give-up-after inf`) is written by that name, which the reader takes.
    way = _unusual_fields if sparse else _fields
    text = json.dumps(value, default=way, ensure_ascii=False, check_circular=False, separators=(",", ":"))
    try:
        data = text.encode()
    except UnicodeEncodeError:
        # A lone surrogate is an undecodable byte of a file name.
        data = _LONE_SURROGATE.sub(lambda found: f"\\\\u{ord(found[0]):04x}", text).encode()
    return gzip.compress(data, compresslevel=_COMPRESSION, mtime=0)


def _is_too_deep(root: Process) -> bool:
    level = [root]
    for _ in range(_DEEPEST):
        level = [child for process in level for child in process.children]
        if not level:
            return False
    return True


def _fields(value: Any) -> dict[str, Any] | list[Any]:
    """One dataclass as its fields by name, calls that ranks share as a list; the encoder asks again for those
    inside."""
    if isinstance(value, SharedCalls):
        return list(value)
    kind: Any = type(value)
    return {name: getattr(value, name) for name in _names(kind)}


def _unusual_fields(value: Any) -> dict[str, Any]:
    kind: Any = type(value)
    return {name: found for name, usual in _defaults(kind) if (found := getattr(value, name)) is not usual}


@cache
def _defaults(kind: Any) -> tuple[tuple[str, Any], ...]:
    """(field, its default, or what is no value of any field)."""
    return tuple((field.name, field.default) for field in dataclasses.fields(kind))


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in dataclasses.fields(kind))
