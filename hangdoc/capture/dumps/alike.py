"""Dumps that are the same, byte for byte, but for the times and the threads in them: these need not be unpickled.

Ranks that do the same in groups of the same names write pickles of one length: a time takes 8 bytes whatever it is. So
of a dump whose calls are known already a template is made. A file that differs from it only where times and threads
are has the same calls, and what is left to read are the times.

Example: ``… "time_created_ns" LONG1 8 <8 bytes> "state" "completed" …`` → these 8 bytes may differ, and no others.
"""

from __future__ import annotations

import pickletools
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, compress
from typing import Any

from hangdoc.capture.dumps.digest import when_begun

_CREATED, _STARTED, _COMPLETED = "time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"
_TIMES = (_CREATED, _STARTED, _COMPLETED)
_THREAD = "thread_id"
_MOST_BYTES = 4 << 20
"""Of a file that a template is made of: it takes as much memory."""
_MANY = 16
"""Files of one length with the same calls, before a template is made of the next: that takes as long as to unpickle
some of them."""
_MOST_TEMPLATES = 8
"""Of one worker; chosen by hand."""
_LONGEST_THREAD = 19
"""Digits, which make less than 1 << 64."""
_STRUCTURE = frozenset({
    "PROTO", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "MARK", "SETITEM", "SETITEMS", "APPEND", "APPENDS", "TUPLE",
    "TUPLE1", "TUPLE2", "TUPLE3", "BININT", "BININT1", "BININT2", "LONG1", "NONE", "NEWTRUE", "NEWFALSE", "BINFLOAT",
    "STOP",
})  # fmt: skip
"""What c10d's pickler writes, and Python's with protocol 2, besides texts. What else a pickle does is not followed."""


@dataclass(frozen=True, slots=True)
class _Span:
    """Bytes that may differ, and the key that they are under."""

    at: int
    size: int
    key: str


class Alike:
    """The templates of a worker."""

    def __init__(self) -> None:
        self._templates: dict[int, list[_Template]] = {}
        """By the length of the files."""
        self._seen: Counter[tuple[int, int]] = Counter()
        """(length, number of the body) → how many such files there were."""
        self._tried = 0

    def digest(self, data: bytes) -> dict[str, Any] | None:
        """The digest of a file that is like an earlier one; None for any other."""
        templates = self._templates.get(len(data), ())
        return next((found for each in templates if (found := each.digest(data)) is not None), None)

    def learn(self, data: bytes, entries: Any, digest: dict[str, Any], own: list[int]) -> None:
        """Make a template of a file, if many had the same calls. ``entries``, ``digest``: what it holds; ``own``: the
        entries whose times the digest has."""
        key = len(data), digest["body"]
        self._seen[key] += 1
        if self._seen[key] != _MANY or self._tried >= _MOST_TEMPLATES or len(data) > _MOST_BYTES:
            return
        self._tried += 1
        spans = _spans(data)
        if spans and _are_under_their_keys(data, spans, entries):
            template = _Template(data, spans, entries, digest, own)
            # What it does not understand, it must not answer.
            if template.digest(data) == digest:
                self._templates.setdefault(len(data), []).append(template)


class _Template:
    def __init__(
        self, data: bytes, spans: list[_Span], entries: list[dict[Any, Any]], digest: dict[str, Any], own: list[int]
    ) -> None:
        self._digest, self._own = digest, own
        layout, end = ["<"], 0
        for span in spans:
            layout.append(f"{span.at - end}s{'q' if span.key in _TIMES else f'{span.size}s'}")
            end = span.at + span.size
        # Between the values lies what has to be the same.
        self._layout = struct.Struct("".join(layout) + f"{len(data) - end}s")
        found = self._layout.unpack(data)
        self._same = found[::2]
        self._under = {key: [span.key == key for span in spans] for key in (*_TIMES, _THREAD)}
        self._retired = [entry.get("retired") is True for entry in entries if type(entry.get(_COMPLETED)) is int]
        self._threads = _as_they_appear(compress(found[1::2], self._under[_THREAD]))
        self._begun = when_begun(list(compress(found[1::2], self._under[_CREATED])))

    def digest(self, data: bytes) -> dict[str, Any] | None:
        """The digest of a file of that length, if it is like this one."""
        found = self._layout.unpack(data)
        if found[::2] != self._same:
            return None
        values = found[1::2]
        created, started, completed = (list(compress(values, self._under[key])) for key in _TIMES)
        if min(chain(created, started, completed)) <= 0 or when_begun(created) != self._begun:
            return None
        if self._threads is None or _as_they_appear(compress(values, self._under[_THREAD])) != self._threads:
            return None
        issued = max(created)
        return {
            **self._digest,
            "first": min(created),
            "latest": max(issued, max(started, default=0), max(completed, default=0)),
            "moved": max(issued, max(compress(completed, self._retired), default=0)),
            "own": [created[place] for place in self._own],
        }


def _as_they_appear(threads: Iterable[bytes]) -> list[int] | None:
    """The threads, numbered as they appear; None where one is no plain number."""
    numbers: dict[bytes, int] = {}
    found = [numbers.setdefault(thread, len(numbers)) for thread in threads]
    plain = all(thread.isdigit() and not thread.startswith(b"0") for thread in numbers)
    return found if plain else None


def _spans(data: bytes) -> list[_Span] | None:
    """Where the times and threads are in a pickle; None where it is of another kind, or uses them elsewhere as well."""
    # One loop in spite of its branches: each is an opcode of the pickle.
    found: list[_Span] = []
    texts: dict[int, str | None] = {}
    threads: set[int] = set()
    key: str | None = None
    last: _Span | None = None
    opcodes: Iterable[tuple[pickletools.OpcodeInfo, Any, int | None]] = pickletools.genops(data)
    for opcode, arg, at in opcodes:
        name, place = opcode.name, at if at is not None else 0
        if name in ("BINPUT", "LONG_BINPUT"):
            if last is not None and last.key in _TIMES:
                return None  # a time with a name may be anywhere
            texts[arg] = key
            if last is not None:
                threads.add(arg)
            continue
        under, key, last = key, None, None
        if name == "BINUNICODE":
            key = arg
            if under == _THREAD and arg.isascii() and len(arg) <= _LONGEST_THREAD:
                last = _Span(place + 5, len(arg), _THREAD)
        elif name in ("BINGET", "LONG_BINGET"):
            key = texts.get(arg)
            if arg in threads and under != _THREAD:
                return None
        elif name == "LONG1" and under in _TIMES and data[place + 1] == 8:
            last = _Span(place + 2, 8, under)
        elif name not in _STRUCTURE:
            return None
        if last is not None:
            found.append(last)
    return found


def _are_under_their_keys(data: bytes, spans: list[_Span], entries: Any) -> bool:
    """True if these are just the times of the entries, in their order, and each entry has been created."""
    if not isinstance(entries, list) or not entries or not all(type(entry) is dict for entry in entries):
        return False
    for key in _TIMES:
        values = [int.from_bytes(data[s.at : s.at + 8], "little", signed=True) for s in spans if s.key == key]
        if values != [value for entry in entries if type(value := entry.get(key)) is int]:
            return False
    return all(type(entry.get(_CREATED)) is int for entry in entries)
