"""Objects of CPython in another process, read from its memory without stopping it.

The offsets are those of CPython's headers on 64-bit machines (Include/cpython/object.h, Objects/dict-common.h,
Include/internal/pycore_dict.h), 3.8 to 3.14. Everything read may be torn or made up: each address is checked by what
lies there, and one odd byte ends the reading of that object.
"""

from __future__ import annotations

import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import ClassVar

from hangdoc.capture.safe.text import read_link

OLDEST, NEWEST = 8, 14
"""Minor versions of Python whose layout is known."""

# Bounds, chosen by hand: the globals of torch's largest modules have some thousand names.
_PAGE = 4096
_MOST_PAGES = 4000
_MOST_READS = 300_000
_MOST_ITEMS = 64
_MOST_BYTES = 1 << 17
_LONGEST_NAME = 80

# PyObject, PyTypeObject and PyDictObject; the same in all these versions.
_TYPE = 8
_SIZE, _ITEM = 16, 24
# ``ob_size``, or ``ma_used`` of a dictionary; a set counts the keys that were ever in it first.
_OF_DICT = frozenset({"OrderedDict", "Counter", "defaultdict"})
_COUNTED = _OF_DICT | {"list", "deque", "dict", "set"}
_SET_USED = 24
_TP_NAME, _TP_BASICSIZE, _TP_FLAGS, _TP_BASE, _TP_DICT, _TP_DICTOFFSET = 24, 32, 168, 256, 264, 288
_MA_KEYS, _MA_VALUES = 32, 40
_INLINE_VALUES, _MANAGED_DICT, _HEAP_TYPE, _TYPE_SUBCLASS = 1 << 2, 1 << 4, 1 << 9, 1 << 31
_MODULE_DICT = 16
_SMALLEST_ADDRESS, _LARGEST_ADDRESS = 1 << 12, 1 << 47

_VERSION = re.compile(r"python3\.(\d{1,2})(t?)(?![\d.]*\w)")


class OddError(Exception):
    """What lies there is not what was expected."""


ODD = (OddError, OSError, struct.error, OverflowError, UnicodeDecodeError)
"""What the reading of an object raises."""


@dataclass
class Memory:
    """The memory of one process. Its methods raise one of ``ODD``."""

    minor: int
    _descriptor: int
    _left: int = _MOST_PAGES
    _reads: int = _MOST_READS
    _types: dict[int, str] = field(default_factory=dict)
    _pages: dict[int, bytes] = field(default_factory=dict)
    _most_entries: ClassVar[int] = 4096

    def __enter__(self) -> Memory:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._descriptor)

    def globals_of_methods(self, at: int) -> Iterator[int]:
        """The globals of a function of the object's type, then of its base types."""
        own = self._pointer(at + _TYPE)
        for _ in range(8):
            if not own or not self._number(own + _TP_FLAGS) & _HEAP_TYPE:
                return
            for _, value in self.entries(self._pointer(own + _TP_DICT)):
                if self.kind(value) == "function":
                    yield self._pointer(value + (24 if self.minor <= 10 else 16))
                    break
            own = self._pointer(own + _TP_BASE)

    def members(self, own: int) -> Iterator[tuple[str, int]]:
        """What a class made in Python holds by itself: name and address."""
        if self._number(own + _TP_FLAGS) & _HEAP_TYPE:
            yield from self.entries(self._pointer(own + _TP_DICT))

    def is_type(self, at: int) -> bool:
        """True for a class, whatever its metaclass."""
        return bool(self._number(self._pointer(self._address(at) + _TYPE) + _TP_FLAGS) & _TYPE_SUBCLASS)

    def function_name(self, at: int) -> str:
        """The name of a function; '' for another object."""
        return self.text(self._pointer(at + (64 if self.minor <= 10 else 32))) if self.kind(at) == "function" else ""

    def module(self, at: int, *wanted: str) -> dict[str, int]:
        """The globals of these names of a module; {} for another object."""
        if not at or self.kind(at) != "module":
            return {}
        return self.find(self._pointer(at + _MODULE_DICT), *wanted)

    def find(self, names: int, *wanted: str) -> dict[str, int]:
        """The entries of these names, as far as the dictionary has them."""
        found: dict[str, int] = {}
        for name, value in self.entries(names):
            if name in wanted:
                found[name] = value
                if len(found) == len(wanted):
                    break
        return found

    def names(self, at: int) -> Iterator[tuple[str, int]]:
        """An instance's attributes: name and address, from its dictionary or from the values beside it."""
        own = self._pointer(at + _TYPE)
        flags, offset = self._number(own + _TP_FLAGS), self._number(own + _TP_DICTOFFSET)
        if self.minor < 11 or not flags & _MANAGED_DICT:
            if not 0 < offset < _MOST_BYTES:
                return
            names = self._pointer(at + offset)
            if names:
                yield from self.entries(names)
            return
        names = self._number(at - 24)
        values = 0
        if self.minor == 11:
            values = self._number(at - 32)
        elif self.minor == 12:
            values, names = (names + 1, 0) if names & 1 else (0, names)
        elif not names and flags & _INLINE_VALUES:
            values = at + self._number(own + _TP_BASICSIZE)
        if names:
            yield from self.entries(self._address(names))
        elif values:
            yield from self._split(self._cached_keys(own), self._address(values))

    def _cached_keys(self, own: int) -> int:
        """``ht_cached_keys``: after the type and its tables of 4, 36, 3, 10 and 2 functions, and three names."""
        return self._pointer(own + (408 if self.minor <= 11 else 416) + (4 + 36 + 3 + 10 + 2 + 3) * 8)

    def _split(self, keys: int, values: int) -> Iterator[tuple[str, int]]:
        """Attributes whose names the type keeps, and whose values lie in an array; from 3.13 on after 8 bytes."""
        start = values + (8 if self.minor >= 13 else 0)
        for index, (name, _) in enumerate(self._of_keys(keys, split=True)):
            value = self._number(start + 8 * index)
            if value:
                yield self.text(name), self._checked(value)

    def entries(self, names: int) -> Iterator[tuple[str, int]]:
        """The entries of a dictionary with strings as keys; others are left out."""
        for key, value in self.pairs(names):
            if self.kind(key) == "str":
                yield self.text(key), value

    def pairs(self, names: int) -> Iterator[tuple[int, int]]:
        """The addresses of the keys and values of a dictionary."""
        if self.kind(names) not in ("dict", "OrderedDict"):
            raise OddError
        keys, values = self._pointer(names + _MA_KEYS), self._number(names + _MA_VALUES)
        if not values:
            yield from self._of_keys(keys, split=False)
            return
        start = self._address(values) + (8 if self.minor >= 13 else 0)
        for index, (key, _) in enumerate(self._of_keys(keys, split=True)):
            value = self._number(start + 8 * index)
            if value:
                yield key, value

    def _of_keys(self, keys: int, *, split: bool) -> Iterator[tuple[int, int]]:
        """(key, value) of a PyDictKeysObject; the value is 0 in a split one."""
        if self.minor <= 10:
            size, count = self._number(keys + 8), self._number(keys + 32)
            width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4
            first, step, at_key = keys + 40 + size * width, 24, 8
        else:
            head = self._read(keys + 8, 3)
            count = self._number(keys + 24)
            if head[1] > 24 or head[2] > 2:
                raise OddError
            first = keys + 32 + (1 << head[1])
            step, at_key = (24, 8) if head[2] == 0 else (16, 0)
        if not 0 <= count <= self._most_entries:
            raise OddError
        table = self._read(first, count * step)
        for index in range(count):
            key, value = struct.unpack_from("<QQ", table, index * step + at_key)
            if key and (split or value):
                yield key, value

    def plain(self, at: int) -> str:
        """A number, truth value or None as Python shows it; '' for anything else."""
        kind = self.kind(at) if at else ""
        if kind == "NoneType":
            return "None"
        if kind == "bool":
            return str(bool(self.whole(at)))
        if kind == "int":
            return str(self.whole(at))
        if kind == "float":
            return repr(struct.unpack("<d", self._read(at + 16, 8))[0])
        return ""

    def whole(self, at: int) -> int:
        """A whole number of up to 60 bits."""
        if self.kind(at) not in ("int", "bool"):
            raise OddError
        head = self._number(at + 16)
        if self.minor >= 12:
            digits, sign = head >> 3, -1 if head & 3 == 2 else 0 if head & 3 == 1 else 1
        else:
            digits, sign = abs(head), -1 if head < 0 else 1
        if digits > 2:
            raise OddError
        data = self._read(at + 24, 4 * digits)
        low, high = (int.from_bytes(data[begin : begin + 4], "little") for begin in (0, 4))
        return sign * (low + (high << 30))

    def text(self, at: int) -> str:
        """A short ASCII string, such as a name, whose state says that it is compact; '' for any other string."""
        if self.kind(at) not in ("str", "GroupName"):
            raise OddError
        length, state = self._number(at + 16), self._number(at + 32) & 0xFFFFFFFF
        # interned: 2 bits (3.12: 3 bits with its fourth state), kind: 3 bits, compact, ascii.
        compact_ascii = 0b11 << 5
        if not 0 <= length <= _LONGEST_NAME or state & compact_ascii != compact_ascii:
            return ""
        return self._read(at + (48 if self.minor <= 11 else 40), length).decode("ascii")

    def _long_text(self, at: int, most: int) -> str:
        """A string of any characters with at most ``most`` of them, such as the name of a file."""
        if self.kind(at) != "str":
            raise OddError
        length, state = self._number(at + 16), self._number(at + 32)
        width, compact, plain = state >> 2 & 7, state >> 5 & 1, state >> 6 & 1
        if not 0 <= length <= most or width not in (1, 2, 4) or not compact:
            raise OddError
        before = 48 if self.minor <= 11 else 40
        start = before if plain else before + (24 if self.minor <= 11 else 16)
        data = self._read(at + start, length * width)
        return data.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[width], "surrogatepass")

    def items(self, at: int) -> list[int]:
        """The addresses of the items of a short list."""
        count = self._number(at + _SIZE)
        if not 0 <= count <= _MOST_ITEMS:
            raise OddError
        return list(struct.unpack(f"<{count}Q", self._read(self._pointer(at + _ITEM), 8 * count))) if count else []

    def length(self, at: int) -> int:
        """How many items a builtin container has; -1 for any other object."""
        kind = self.kind(at)
        if kind not in _COUNTED or (kind in _OF_DICT and self._base(at) != "dict"):
            return -1
        count = self._number(at + (_SET_USED if kind == "set" else _SIZE))
        return count if 0 <= count < _LARGEST_ADDRESS else -1

    def _base(self, at: int) -> str:
        """The name of the type that an object's type is made of."""
        own = self._pointer(self._pointer(self._address(at) + _TYPE) + _TP_BASE)
        return self._read(self._number(own + _TP_NAME), _LONGEST_NAME).partition(b"\0")[0].decode("ascii")

    def kind(self, at: int) -> str:
        """The name of an object's type."""
        own = self._pointer(self._address(at) + _TYPE)
        if own not in self._types:
            name = self._read(self._number(own + _TP_NAME), _LONGEST_NAME).partition(b"\0")[0].decode("ascii")
            if not name.replace(".", "").isidentifier():
                raise OddError
            self._types[own] = name.rpartition(".")[2]
        return self._types[own]

    def _checked(self, at: int) -> int:
        """``at``, where an object lies."""
        self.kind(at)
        return at

    def _pointer(self, at: int) -> int:
        found = self._number(at)
        return self._address(found) if found else 0

    def _address(self, at: int) -> int:
        if not _SMALLEST_ADDRESS <= at < _LARGEST_ADDRESS or at % 8:
            raise OddError
        return at

    def _number(self, at: int) -> int:
        return int.from_bytes(self._read(at, 8), "little", signed=True)

    def _read(self, at: int, size: int) -> bytes:
        self._reads -= 1
        if self._reads < 0 or not 0 <= size <= _MOST_BYTES or not _SMALLEST_ADDRESS <= at < _LARGEST_ADDRESS:
            raise OddError
        first, last = at // _PAGE, (at + max(size, 1) - 1) // _PAGE
        data = self._page(first) if first == last else b"".join(map(self._page, range(first, last + 1)))
        return data[at - first * _PAGE : at - first * _PAGE + size]

    def _page(self, number: int) -> bytes:
        found = self._pages.get(number)
        if found is None:
            self._left -= 1
            found = os.pread(self._descriptor, _PAGE, number * _PAGE) if self._left >= 0 else b""
            if len(found) != _PAGE:
                raise OddError
            self._pages[number] = found
        return found


def python_version(pid: int, files: Iterable[str]) -> int | None:
    """The minor version of the CPython that a process runs; None where its layout is not known.

    ``files``: those of its frames, which name the version where the interpreter's own name does not.
    """
    for name in (read_link(f"/proc/{pid}/exe") or "", *files):
        found = _VERSION.search(name)
        if found is not None:
            minor = int(found[1])
            # Without a lock of the interpreter, objects begin otherwise.
            known = OLDEST <= minor <= NEWEST and not found[2]
            return minor if known and sys.byteorder == "little" and sys.maxsize > 1 << 32 else None
    return None
