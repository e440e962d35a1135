"""Which lines of the program have run in another process, read from its memory without stopping it.

See ``counters``. The user's code objects are those of the running frames, then those of the functions that the user's
modules hold, by their classes and wrappers, and what is nested in them. The code of a module's body is on a frame only
while it runs: afterwards nothing holds it.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from hangdoc.capture.read.counters import CALLED, KNOWN, NotCodeError, read_counters
from hangdoc.capture.read.interpreter_state import Interpreter
from hangdoc.capture.read.python_memory import ODD, OddError, python_version
from hangdoc.capture.safe.text import clean
from hangdoc.model.frames import is_library_file
from hangdoc.model.process import ProcessState
from hangdoc.model.ran import RanCode

# Bounds, chosen by hand: a program of the user's has some hundred functions in some ten modules.
_MOST_CODES = 400
_MOST_BYTES = 1 << 17
_MOST_PAGES = 4000
_MOST_CONSTANTS = 4096
_MOST_VALUES = 20_000
_LONGEST_FILE = 4096
_LONGEST_NAME = 300
_SECONDS = 0.5
"""Of processor time, for finding the code of one process: 0.04 s of 3,000 modules (measured)."""
_COUNTING = 0.3
"""Seconds more for its counters."""
_FIRST_GLOBALS = 24
_DEEP = 6
"""Wrappers around a function."""

_HEAD = 16
_BYTES, _TUPLE = 32, 24
"""Where the contents of these begin."""
_CODE_OF, _CLOSURE, _DICT_OF = 48, 72, 88
"""``func_code``, ``func_closure``, ``func_dict``."""
_CONSTANTS, _NAMES, _WARMUP, _FIRST_LINE, _FILE, _NAME, _TABLE = 24, 32, 52, 68, 112, 120, 136
_MONITORING, _BYTECODE = {12: 168, 13: 176, 14: 176}, {11: 184, 12: 192, 13: 200, 14: 208}
_FIRST_LINE_OF_11 = 72
_INSIDE = {"staticmethod": 1, "classmethod": 1, "property": 3, "partial": 1, "method": 1, "cell": 1}
"""Builtin wrapper → how many objects it holds from byte 16 on."""
_WRAPPED = ("__wrapped__", "func", "fn", "function", "f", "_fn", "_func", "__func__")
"""Attributes by which decorators keep what they wrap."""
_PLAIN = frozenset(
    {"str", "int", "float", "bool", "NoneType", "bytes", "tuple", "list", "dict", "set", "module", "Tensor"}
    | {"builtin_function_or_method", "ellipsis", "Parameter", "dtype", "device", "Logger", "PosixPath"}
)


@dataclass(frozen=True, slots=True)
class Layout:
    """What tells a code object from that of an edited source."""

    table: bytes
    """``co_linetable``: the lines and columns of each instruction."""
    bytecode: bytes
    """``co_code_adaptive``: of an instruction, the interpreter changes the first byte and what it caches, and never the
    second byte."""
    numbers: tuple[str, ...]
    """The numbers, truth values and None in ``co_consts``, as Python shows them; '' for anything else."""
    names: tuple[str, ...]
    """``co_names``; '' for one that is not ASCII."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a process's own code objects say about the files that they were compiled from."""

    minor: int = 0
    """The minor version of its CPython; 0 where that is not known."""
    layouts: Mapping[str, frozenset[Layout]] = field(default_factory=dict)
    """By file."""
    files: tuple[str, ...] = ()
    """Of the user's modules that it has imported."""


@dataclass
class _Reader(Interpreter):
    """The code of one process. The methods of the base class raise one of ``ODD``."""

    until: float = 0.0
    """In the reading thread's own processor time: on a busy machine the clock runs on without it."""
    early: bool = False
    """The probe has CPython 3.11 count from a function's first call on."""
    _file_key: int = 0
    _names: dict[int, tuple[str, str]] = field(default_factory=dict)
    """Code → file, function; those of libraries and what is no code have no file."""
    _codes: dict[int, None] = field(default_factory=dict)
    _running: set[int] = field(default_factory=set)
    """Those of them that are on a frame."""
    _seen: set[int] = field(default_factory=set)
    _libraries: dict[str, bool] = field(default_factory=dict)
    """Packages and modules → whether they are of a library."""
    layouts: dict[str, set[Layout]] = field(default_factory=dict)
    """See ``Compiled``."""
    module_files: dict[str, None] = field(default_factory=dict)
    """Those of the user's modules."""

    def all_ran(self, pid: int, files: Collection[str]) -> Iterator[RanCode]:
        """What has run of the user's; ``files`` are those on the stacks, whose modules are read first."""
        with suppress(*ODD):
            self._find(pid, files)
        for code in list(self._codes)[:_MOST_CODES]:
            if time.thread_time() > self.until + _COUNTING:
                return
            try:
                yield self._counted(code)
            except (*ODD, NotCodeError):
                continue

    def _find(self, pid: int, files: Collection[str]) -> None:
        state, offsets = self.state(pid)
        if self.is_traced(state, offsets):
            raise OddError
        running: dict[int, None] = {}
        for code, names in self.frames(state, offsets):
            self._add_code(code)
            if code in self._codes:
                running[names] = None
                self._running.add(code)
        first: list[int] = []
        last: list[int] = []
        # Packages before what is in them, of which a library has hundreds.
        for name, module in sorted(self.modules(state, offsets), key=lambda found: "." in found[0]):
            if self._is_over() or self._left < _MOST_PAGES // 2:
                break
            with suppress(*ODD):
                file, names = self._of_module(name, module)
                (first if file in files else last).extend([names] if names else [])
                if names and file:
                    self.module_files[clean(file)] = None
        for names in (*running, *first, *last):
            self._add_module(names)

    def _of_module(self, name: str, module: int) -> tuple[str, int]:
        """File and globals of a module of the user's; 0 for another."""
        top = name.partition(".")[0]
        if self._libraries.get(top):
            return "", 0
        names = self._pointer(module + _HEAD)  # whatever its type: lazy modules of libraries have their own
        file = self._file_of(names)
        if name == top:
            self._libraries[top] = bool(file) and is_library_file(file)
        users = name == "__main__" or (bool(file) and not is_library_file(file))
        return file, names if users else 0

    def _file_of(self, names: int) -> str:
        """A module's file, which is among its first globals; '' where it has none.

        The key is one interned string, the same in all modules: known once, it is found by its address.
        """
        for _, (key, value) in zip(range(_FIRST_GLOBALS), self.pairs(names), strict=False):
            if not self._file_key and self.kind(key) == "str" and self.text(key) == "__file__":
                self._file_key = key
            if key == self._file_key:
                return self._long_text(value, _LONGEST_FILE) if self.kind(value) == "str" else ""
        return ""

    def _add_module(self, names: int) -> None:
        if names in self._seen:
            return
        self._seen.add(names)
        with suppress(*ODD):
            for _, value in self.entries(names):
                with suppress(*ODD):
                    self._add(value, _DEEP)

    def _add(self, at: int, steps: int) -> None:
        """Add the functions in what a module or a class of the user's holds."""
        if at in self._seen or steps <= 0 or self._is_over():
            return
        kind = self.kind(at)
        if kind in _PLAIN:
            return
        self._seen.add(at)
        inside: Iterable[int]
        if kind == "function":
            code = self._pointer(at + _CODE_OF)
            self._add_code(code)
            if code in self._codes and steps == _DEEP:
                return
            inside = [*self._of_tuple(self._pointer(at + _CLOSURE)), *self._wrapped_by(self._pointer(at + _DICT_OF))]
        elif kind in _INSIDE:
            inside = struct.unpack(f"<{_INSIDE[kind]}Q", self._read(at + _HEAD, 8 * _INSIDE[kind]))
        elif self.is_type(at):
            inside = self._of_class(at)
        else:
            inside = [value for name, value in self.names(at) if name in _WRAPPED]
        for value in inside:
            if value:
                with suppress(*ODD):
                    self._add(value, steps if self.is_type(at) else steps - 1)

    def _wrapped_by(self, names: int) -> list[int]:
        return [value for name, value in self.entries(names) if name in _WRAPPED] if names else []

    def _of_class(self, at: int) -> list[int]:
        """What a class holds, if it was made in Python outside of the libraries."""
        values = dict(self.members(at))
        module = values.get("__module__", 0)
        if not module or self._libraries.get(self._long_text(module, _LONGEST_NAME).partition(".")[0]):
            return []
        return list(values.values())

    def _add_code(self, code: int) -> None:
        """Add a code object of the user's with those that are nested in it."""
        pending = [code]
        while pending and len(self._codes) < _MOST_CODES:
            code = pending.pop()
            if code in self._codes or not self._name_of(code)[0]:
                continue
            self._codes[code] = None
            with suppress(*ODD):
                pending += [each for each in self._of_tuple(self._pointer(code + _CONSTANTS)) if self._is_code(each)]

    def _is_code(self, at: int) -> bool:
        with suppress(*ODD):
            return self.kind(at) == "code"
        return False

    def _name_of(self, code: int) -> tuple[str, str]:
        if code not in self._names:
            self._names[code] = "", ""
            with suppress(*ODD):
                if self.kind(code) == "code":
                    file = self._long_text(self._pointer(code + _FILE), _LONGEST_FILE)
                    name = self._long_text(self._pointer(code + _NAME), _LONGEST_NAME)
                    if not is_library_file(file) and name.strip("<>").isidentifier():
                        self._names[code] = file, name
        return self._names[code]

    def _counted(self, code: int) -> RanCode:
        file, function = self._name_of(code)
        if self.minor >= 12 and self._number(code + _MONITORING[self.minor]):
            raise OddError  # a debugger or coverage has been at it, which makes the counters anew
        at_line = _FIRST_LINE_OF_11 if self.minor == 11 else _FIRST_LINE
        (first,) = struct.unpack("<i", self._read(code + at_line, 4))
        warmup = struct.unpack("<h", self._read(code + _WARMUP, 2))[0] if self.minor == 11 else 0
        units = self._number(code + _HEAD)
        if not 0 < units <= _MOST_BYTES // 2:
            raise OddError
        table = self._pointer(code + _TABLE)
        if self.kind(table) != "bytes":
            raise OddError
        places = self._read(table + _BYTES, self._number(table + _HEAD))
        bytecode = self._read(code + _BYTECODE[self.minor], 2 * units)
        if warmup < 0 and code in self._running:
            warmup = CALLED  # since before the probe came, whatever is left of its count
        found = read_counters(self.minor, bytecode, places, first, warmup, early=self.early)
        return RanCode(
            clean(file), clean(function, _LONGEST_NAME), first, found.called, found.ran, found.idle,
            found.since_warm, found.tests,
        )  # fmt: skip

    def add_layouts(self) -> None:
        """Read the layouts of the code that was found: after what has run, which counts more."""
        for code in list(self._codes)[:_MOST_CODES]:
            if time.thread_time() > self.until + _COUNTING:
                return
            with suppress(*ODD):
                table, units = self._pointer(code + _TABLE), self._number(code + _HEAD)
                if self.kind(table) != "bytes" or not 0 < units <= _MOST_BYTES // 2:
                    continue
                layout = Layout(
                    self._read(table + _BYTES, self._number(table + _HEAD)),
                    self._read(code + _BYTECODE[self.minor], 2 * units),
                    tuple(map(self._shown, self._of_tuple(self._pointer(code + _CONSTANTS)))),
                    tuple(map(self.text, self._of_tuple(self._pointer(code + _NAMES)))),
                )
                self.layouts.setdefault(clean(self._name_of(code)[0]), set()).add(layout)

    def _shown(self, at: int) -> str:
        with suppress(*ODD):
            return self.plain(at)
        return ""

    def _of_tuple(self, at: int) -> list[int]:
        if not at:
            return []
        count = self._number(at + _HEAD)
        if self.kind(at) != "tuple" or not 0 <= count <= _MOST_CONSTANTS:
            raise OddError
        return list(struct.unpack(f"<{count}Q", self._read(at + _TUPLE, 8 * count)))

    def _is_over(self) -> bool:
        return len(self._codes) >= _MOST_CODES or len(self._seen) > _MOST_VALUES or time.thread_time() > self.until


def ran_code(
    pid: int, files: Collection[str], seconds: float = _SECONDS, *, early: bool = False
) -> tuple[tuple[RanCode, ...], Compiled]:
    """What has run of the user's code in a process; () where that cannot be told. ``files``: of its frames.

    ``early``: its probe has CPython 3.11 count from a function's first call on.
    """
    minor = python_version(pid, files)
    if minor is None or minor not in KNOWN:
        return (), Compiled()
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return (), Compiled()
    reader = _Reader(minor, descriptor, _left=_MOST_PAGES, until=time.thread_time() + seconds, early=early)
    with reader:
        codes = dict.fromkeys(reader.all_ran(pid, files))
        reader.add_layouts()
    ran = tuple(sorted(codes, key=lambda code: (code.file, code.first_line, code.function)))
    layouts = {file: frozenset(found) for file, found in reader.layouts.items()}
    return ran, Compiled(minor, layouts, tuple(reader.module_files))


def of_processes(
    states: Mapping[int, ProcessState], pids: Iterable[int], early: Collection[int], until: float
) -> dict[int, tuple[tuple[RanCode, ...], Compiled]]:
    """By pid, of the processes that run code of the user's, while time is left; ``pids`` by their worth.

    ``early``: those whose probes have CPython 3.11 count from a function's first call on.
    """
    found = {}
    for pid in pids:
        left = until - time.monotonic()
        if left <= 0:
            break
        files = {frame.file for thread in states[pid].threads for frame in thread.frames}
        if not all(map(is_library_file, files)):
            found[pid] = ran_code(pid, files, min(left, _SECONDS), early=pid in early)
    return found
