"""Where CPython keeps its modules and running frames in another process, by the exported symbol `_PyRuntime`.

The symbol is looked up in the memory of the process itself, as the dynamic linker does: no file is read. The offsets
are those of CPython's headers (Include/internal/pycore_runtime.h, pycore_interp.h, pycore_frame.h) on 64-bit machines,
3.11 and 3.12; 3.13 and 3.14 tell their own at the beginning of `_PyRuntime`
(pycore_debug_offsets.h). What lies there is checked.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from hangdoc.capture.read.python_memory import ODD, Memory, OddError
from hangdoc.capture.safe.text import read_link, read_text

# Bounds, chosen by hand.
_MOST_MAPS = 8 << 20
_MOST_THREADS = 256
_MOST_FRAMES = 512
_MOST_SYMBOLS = 64
"""Of one chain in a hash table."""

_SYMBOL = b"_PyRuntime"
_PYTHON = re.compile(r"/(?:lib)?python3[^/]*$")
_MAPPING = re.compile(r"([0-9a-f]+)-[0-9a-f]+ r\S+ 0+ \S+ [1-9]\d* +(/.*)", re.ASCII)
_LOADED, _DYNAMIC = 1, 2
_STRINGS, _SYMBOLS, _HASH = 5, 6, 0x6FFFFEF5
"""DT_STRTAB, DT_SYMTAB, DT_GNU_HASH."""
_COOKIE = b"xdebugpy"


@dataclass(frozen=True, slots=True)
class _Offsets:
    """Of the runtime, an interpreter, a thread and a frame, what is used."""

    interpreters: int
    modules: int
    threads: int
    next_thread: int
    frame: tuple[int, ...]
    """The way from a thread to its innermost frame, pointer by pointer."""
    code: int
    module_globals: int
    previous: int


_KNOWN = {
    11: _Offsets(40, 888, 16, 8, (56, 8), 32, 8, 48),
    12: _Offsets(40, 944, 72, 8, (56, 0), 0, 24, 8),
}
_TOLD = {13: (5, 9, 11, 21, 23, 29, 30), 14: (5, 9, 12, 24, 26, 32, 33)}
"""Which number of `_Py_DebugOffsets` is that of the interpreters, an interpreter's threads and modules, a thread's
next one and its frame, a frame's previous one and its code."""
_MARK = 1
"""A bit of a frame's pointer to its code that says how it is counted (3.14)."""


class Interpreter(Memory):
    """The memory of one process, by way of its interpreter's state. Its methods raise one of ``ODD``."""

    _most_entries: ClassVar[int] = 8192  # of `sys.modules`; the largest jobs have some 5,000 modules

    def state(self, pid: int) -> tuple[int, _Offsets]:
        """The address of the main interpreter's state."""
        runtime = self._runtime(pid)
        offsets = _KNOWN.get(self.minor) or self._told_offsets(runtime)
        return self._pointer(runtime + offsets.interpreters), offsets

    def modules(self, state: int, offsets: _Offsets) -> Iterator[tuple[str, int]]:
        """`sys.modules`: name and address."""
        yield from self.entries(self._pointer(state + offsets.modules))

    def frames(self, state: int, offsets: _Offsets) -> Iterator[tuple[int, int]]:
        """Code and globals of the frames of all threads, each thread's innermost first; odd threads are left out."""
        for thread in self._threads(state, offsets):
            with suppress(*ODD):
                yield from self._of_thread(thread, offsets)

    def is_traced(self, state: int, offsets: _Offsets) -> bool:
        """True while 3.11 runs a profiler or debugger (``c_profilefunc``, ``c_tracefunc``): it then counts nothing."""
        functions = (64, 72) if self.minor == 11 else ()
        return any(self._number(thread + at) for thread in self._threads(state, offsets) for at in functions)

    def _threads(self, state: int, offsets: _Offsets) -> Iterator[int]:
        thread = self._pointer(state + offsets.threads)
        for _ in range(_MOST_THREADS):
            if not thread:
                return
            yield thread
            thread = self._pointer(thread + offsets.next_thread)

    def _of_thread(self, thread: int, offsets: _Offsets) -> Iterator[tuple[int, int]]:
        at = thread
        for offset in offsets.frame:
            at = self._pointer(at + offset)
        for _ in range(_MOST_FRAMES):
            if not at:
                return
            code = self._address(self._number(at + offsets.code) & ~_MARK)
            if self.kind(code) == "code":
                yield code, self._number(at + offsets.module_globals)
            at = self._pointer(at + offsets.previous)

    def _told_offsets(self, runtime: int) -> _Offsets:
        """From `_Py_DebugOffsets`."""
        version = self._number(runtime + 8) >> 16
        if self.minor not in _TOLD or self._read(runtime, 8) != _COOKIE or version != 0x0300 | self.minor:
            raise OddError
        numbers = struct.unpack("<34Q", self._read(runtime, 34 * 8))
        interpreters, threads, modules, *of_threads = (numbers[place] for place in _TOLD[self.minor])
        if max(interpreters, threads, modules) > 1 << 20 or max(of_threads) > 1 << 10:
            raise OddError
        next_thread, frame, previous, code = of_threads
        return _Offsets(interpreters, modules, threads, next_thread, (frame,), code, 24, previous)

    # --- the symbol ----------------------------------------------------------------------------------------------

    def _runtime(self, pid: int) -> int:
        own = read_link(f"/proc/{pid}/exe")
        for line in (read_text(f"/proc/{pid}/maps", _MOST_MAPS) or "").splitlines():
            found = _MAPPING.fullmatch(line)
            if found is not None and (found[2] == own or _PYTHON.search(found[2])):
                try:
                    at = self._symbol(int(found[1], 16))
                except ODD:
                    continue
                if at:
                    return at
        raise OddError

    def _symbol(self, base: int) -> int:
        """The address of `_PyRuntime` in the ELF file that is mapped at ``base``; 0 where that has none."""
        if self._read(base, 6) != b"\x7fELF\x02\x01":
            raise OddError
        start, count = self._number(base + 32), int.from_bytes(self._read(base + 56, 2), "little")
        headers = [struct.unpack("<IIQQQQQQ", self._read(base + start + 56 * n, 56)) for n in range(min(count, 64))]
        bias = base - min((header[3] & ~0xFFF for header in headers if header[0] == _LOADED), default=0)
        table = next((header for header in headers if header[0] == _DYNAMIC), None)
        if table is None:
            return 0
        entries = self._read(bias + table[3], min(table[6], 4096) & ~15)
        found = dict(struct.iter_unpack("<qQ", entries))
        # glibc writes the final addresses into the table, others leave those of the file.
        strings, symbols, hashes = (
            at if at >= base else bias + at
            for at in (found.get(_STRINGS, 0), found.get(_SYMBOLS, 0), found.get(_HASH, 0))
        )
        if _HASH not in found:
            return 0
        return self._looked_up(hashes, symbols, strings, bias)

    def _looked_up(self, hashes: int, symbols: int, strings: int, bias: int) -> int:
        """As the dynamic linker does in a table of DT_GNU_HASH."""
        wanted = 5381
        for byte in _SYMBOL:
            wanted = (wanted * 33 + byte) & 0xFFFFFFFF
        buckets, first, bloom, _ = struct.unpack("<IIII", self._read(hashes, 16))
        if not buckets:
            return 0
        in_buckets = hashes + 16 + 8 * bloom
        index = self._small(in_buckets + 4 * (wanted % buckets))
        for _ in range(_MOST_SYMBOLS):
            if index < first:
                return 0
            here = self._small(in_buckets + 4 * buckets + 4 * (index - first))
            if here | 1 == wanted | 1:
                name, _, _, section, value, _ = struct.unpack("<IBBHQQ", self._read(symbols + 24 * index, 24))
                if section and self._read(strings + name, len(_SYMBOL) + 1) == _SYMBOL + b"\0":
                    return int(bias + value)
            if here & 1:
                return 0
            index += 1
        return 0

    def _small(self, at: int) -> int:
        return int.from_bytes(self._read(at, 4), "little")
