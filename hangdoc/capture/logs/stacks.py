"""The stacks in a log, or that somebody pasted: of py-spy, faulthandler, gdb and pystack, of many processes one after
the other. ``stack_lines`` knows the lines, ``stack_ranks`` whose stacks they are.

A process is read up to where another one begins: a heading with a rank, py-spy's 'Process 39:', faulthandler's
'Timeout', a thread that was there before, or a long way without a line of any stack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from hangdoc.capture.logs.lines import Line
from hangdoc.capture.logs.sift import Marker
from hangdoc.capture.logs.stack_lines import (
    FAULTHANDLER,
    GDB,
    PY_SPY,
    PYSTACK,
    FrameLine,
    ThreadLine,
    begins_dump,
    first_gdb_frame,
    frame_line,
    full_name,
    is_locals_heading,
    local_line,
    process_line,
    thread_line,
    version_line,
)
from hangdoc.capture.logs.stack_ranks import (
    rank_in_environment,
    rank_in_heading,
    ranks_by_name,
    world_in_environment,
)
from hangdoc.capture.read.stacks import PythonThread, shown_local, threads_of
from hangdoc.model.logged import LogStack, Place
from hangdoc.model.process import Frame, Local, Stack

_ABOVE = 8
"""Lines above the first one of a process in which its heading is sought, and the marker keeps. Chosen by hand."""
_FRAMES_AFTER = 160
"""Lines kept of each thread: faulthandler prints 100 frames at most, trainers nest some 80 deep."""

MARKERS: tuple[Marker, ...] = (
    Marker(b"Python v", before=_ABOVE + 1, after=2),
    Marker(b" (idle)", after=_FRAMES_AFTER),
    Marker(b" (active", after=_FRAMES_AFTER),
    Marker(b"+gil)", after=_FRAMES_AFTER),
    Marker(b"(most recent call first):", before=_ABOVE, after=_FRAMES_AFTER),
    Marker(b" (LWP ", before=_ABOVE, after=_FRAMES_AFTER),
    Marker(b"#0  ", before=_ABOVE, after=_FRAMES_AFTER),
    Marker(b"Traceback for thread ", before=_ABOVE, after=_FRAMES_AFTER),
    Marker(b"Timeout (", after=2),
    Marker(b"WORLD_SIZE="),
)
"""What the lines of stacks have; ``Sifted.kept`` then holds whole stacks."""

_MOST_FRAMES = 512
_MOST_THREADS = 512
_MOST_PROCESSES = 16_384
_MOST_LOCALS = 60
_MOST_JSON = 64 << 20
_FAR = 60
"""Lines without one of a stack, after which a thread belongs to another process; chosen by hand."""
_STARTED = "_bootstrap"
"""The outermost function of a thread that Python started."""


@dataclass(slots=True)
class _Thread:
    line: ThreadLine
    number: int
    frames: list[Frame] = field(default_factory=list)
    native: list[Frame] = field(default_factory=list)
    """C's, below the innermost Python frame, or all there are."""
    seen: int = 0
    """Lines of frames, those included that were left out."""


@dataclass(slots=True)
class _Dump:
    """What was seen of one process."""

    kind: str
    file: str
    number: int
    pid: int = 0
    rank: int | None = None
    world: int = 0
    version: str = "3.0"
    threads: list[_Thread] = field(default_factory=list)
    tids: set[int] = field(default_factory=set)
    has_main: bool = False


def stacks_in(lines: Sequence[Line], ranks: Mapping[str, int] | None = None) -> list[LogStack]:
    """The threads of all processes in ``lines``, in their order.

    The rank of each is that of its heading, of the line's own '[rankN]:' or of the environment that was printed above;
    else that of its file, if that has one process alone: by ``ranks`` (file → rank), or by its name; else None.
    """
    dumps: list[_Dump] = []
    for file, of_file in groupby(lines, key=lambda line: line.file):
        streams: dict[tuple[str, int | None], list[Line]] = {}
        for line in of_file:
            streams.setdefault((line.label, line.rank), []).append(line)
        for (label, rank), stream in streams.items():
            dumps += _Reader(file, label, rank).read(stream)
    _number_by_file(dumps, ranks or {})
    return [stack for dump in dumps[:_MOST_PROCESSES] for stack in _stacks_of(dump)]


def stacks_in_json(file: str, data: bytes) -> list[LogStack]:
    """The threads in the answers of ``py-spy dump --json``, one or several. The rank is that of the file's name.

    [] where it is none, or more than 64 MiB.
    """
    if len(data) > _MOST_JSON:
        return []
    found: list[tuple[int, PythonThread]] = []
    parents: dict[int, int] = {}
    try:
        for document in _documents(data.decode("utf-8", "replace")):
            found += zip((_pid_of(item, parents) for item in document), threads_of(document), strict=False)
    except (ValueError, RecursionError, AttributeError, TypeError):
        pass
    # With --subprocesses: the rank is the process above the others.
    roots = {pid for pid, _ in found if parents.get(pid) not in {p for p, _ in found}}
    rank = ranks_by_name({file: min(roots)}).get(file) if len(roots) == 1 else None
    return [
        LogStack(
            place=Place(file, 1, PY_SPY),
            rank=rank if pid in roots else None,
            pid=pid,
            thread=thread.name or "",
            frames=thread.frames,
            main=thread.name == "MainThread" or thread.tid == pid,
            idle=None if thread.active is None else not thread.active,
            tid=thread.tid or 0,
            gil=thread.owns_gil,
        )
        for pid, thread in found[: _MOST_THREADS * _MOST_PROCESSES]
    ]


def _documents(text: str) -> Iterator[list[Any]]:
    """The lists in a text of several JSON documents, one after the other. Raises ValueError at what is none."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        while at < len(text) and text[at] in " \t\r\n\ufeff":
            at += 1
        if at < len(text):
            document, at = decoder.raw_decode(text, at)
            if not isinstance(document, list):
                raise ValueError("not a list of threads")
            yield document


def _pid_of(item: Any, parents: dict[int, int]) -> int:
    pid = item.get("pid")
    about = item.get("process_info")
    parent = about.get("parent") if isinstance(about, dict) else None
    if isinstance(parent, dict) and isinstance(parent.get("pid"), int):
        parents[pid] = parent["pid"]
    return pid if isinstance(pid, int) and 0 < pid < 1 << 31 else 0


class _Reader:
    """Reads one stream: the lines of a file that have one label and one rank."""

    def __init__(self, file: str, label: str, rank: int | None) -> None:
        self._file = file
        self._rank = rank
        name, _, rest = label.partition(" ")
        self._pid = int(number) if name == "pid" and (number := rest.partition(" ")[0]).isdecimal() else 0
        if rank is None and name == "task" and rest.isdecimal():
            self._rank = int(rest)  # srun numbers the tasks of the whole job
        self._dumps: list[_Dump] = []
        self._dump: _Dump | None = None
        self._thread: _Thread | None = None
        self._heading: tuple[int, int] | None = None
        """(rank, line) of the last heading with a rank."""
        self._last = 0
        self._environment: set[int] = set()
        self._worlds: set[int] = set()

    def read(self, lines: Sequence[Line]) -> list[_Dump]:
        """The processes in these lines."""
        for line in lines:
            text = line.body.rstrip()
            if text.strip():
                self._line(line.number, text)
        own = next(iter(self._environment)) if len(self._environment) == 1 else None
        world = next(iter(self._worlds)) if len(self._worlds) == 1 else 0
        kept = [dump for dump in self._dumps if dump.threads]
        for dump in kept:
            if dump.rank is None:
                dump.rank = self._rank if self._rank is not None else own
            dump.world = world
        return kept

    def _line(self, number: int, text: str) -> None:
        thread, dump = self._thread, self._dump
        if thread is not None and dump is not None:
            frame = frame_line(dump.kind, text)
            if frame is not None:
                self._last = number
                _add(thread, frame)
                return
            if dump.kind == PY_SPY and (is_locals_heading(text) or self._local(thread, text)):
                self._last = number
                return
        opened = thread_line(text)
        if opened is not None:
            self._begin_thread(number, opened)
        elif (pid := process_line(text)) is not None:
            self._begin_dump(PY_SPY, number, pid)
            assert self._dump is not None  # it has just begun
            self._dump.rank = rank_in_heading(text) if self._dump.rank is None and "=" not in text else self._dump.rank
        elif (version := version_line(text)) is not None and dump is not None and dump.kind == PY_SPY:
            dump.version = version
        elif begins_dump(text):
            self._dump = self._thread = None
        elif first_gdb_frame(text):
            self._begin_thread(number, ThreadLine(GDB, 0))
            self._line(number, text)
        else:
            self._other(number, text)

    def _other(self, number: int, text: str) -> None:
        """A line of no stack: it may say whose the next one is."""
        rank = rank_in_heading(text)
        if rank is not None:
            self._heading = (rank, number)
            self._dump = self._thread = None
        if "RANK" in text and (told := rank_in_environment(text)) is not None:
            self._environment.add(told)
        if "WORLD_SIZE" in text and (size := world_in_environment(text)):
            self._worlds.add(size)

    def _begin_dump(self, kind: str, number: int, pid: int = 0) -> None:
        rank = self._rank
        if self._heading is not None and number - self._heading[1] <= _ABOVE:
            rank = self._heading[0]
        self._heading = None
        self._dump = _Dump(kind, self._file, number, pid or self._pid, rank)
        self._dumps.append(self._dump)
        self._thread = None
        self._last = number

    def _begin_thread(self, number: int, opened: ThreadLine) -> None:
        dump = self._dump
        # gdb's bare `bt` has no thread's number: each is a process of its own.
        again = dump is not None and (opened.tid in dump.tids or (opened.main and dump.has_main))
        if dump is None or dump.kind != opened.kind or again or number - self._last > _FAR:
            self._begin_dump(opened.kind, number)
        assert self._dump is not None  # one has begun
        self._last = number
        self._thread = _Thread(opened, number)
        self._dump.has_main |= opened.main
        if opened.tid or opened.kind == GDB:
            self._dump.tids.add(opened.tid)
        if len(self._dump.threads) < _MOST_THREADS:
            self._dump.threads.append(self._thread)

    def _local(self, thread: _Thread, text: str) -> bool:
        """True for a local variable of the last frame, which then has it."""
        found = local_line(text)
        if found is None or not thread.frames or thread.seen > _MOST_FRAMES:
            return False
        frame = thread.frames[-1]
        local: Local | None = shown_local(frame.file, frame.function, *found, argument=False)
        if local is not None and len(frame.locals) < _MOST_LOCALS:
            thread.frames[-1] = replace(frame, locals=(*frame.locals, local))
        return True


def _add(thread: _Thread, line: FrameLine) -> None:
    """Put a frame into its thread: C's only below the innermost Python frame (pystack prints the outermost first)."""
    thread.seen += 1
    frames = thread.native if line.native else thread.frames
    if thread.line.kind == PYSTACK:
        frames.append(line.frame)
        if not line.native:
            thread.native.clear()
        del frames[:-_MOST_FRAMES]
    elif len(frames) < _MOST_FRAMES and not (line.native and thread.frames):
        frames.append(line.frame)


def _number_by_file(dumps: Sequence[_Dump], ranks: Mapping[str, int]) -> None:
    """Give a process the rank of its file, where it has none and is alone there."""
    by_file: dict[str, list[_Dump]] = {}
    for dump in dumps:
        by_file.setdefault(dump.file, []).append(dump)
    alone = {file: of_file for file, of_file in by_file.items() if len({_identity(each) for each in of_file}) == 1}
    named = {**ranks_by_name({file: of_file[0].pid for file, of_file in alone.items()}), **ranks}
    for file, of_file in alone.items():
        for dump in of_file:
            dump.rank = named.get(file) if dump.rank is None else dump.rank


def _identity(dump: _Dump) -> tuple[int, int]:
    """What tells a process from others of its file: its pid, else the address of its oldest thread."""
    return dump.pid, 0 if dump.pid or dump.kind == PY_SPY else dump.threads[-1].line.tid


def _stacks_of(dump: _Dump) -> Iterator[LogStack]:
    """The threads of a process. One with frames of both kinds has two stacks, the native one first."""
    own = frozenset(
        thread.frames[-1].file for thread in dump.threads if thread.frames and thread.frames[-1].function == "<module>"
    )
    main = _main_of(dump)
    pid = dump.pid or (main.line.tid if main is not None and dump.kind in (GDB, PYSTACK) else 0)
    for thread in dump.threads:
        python, native = tuple(thread.frames), tuple(thread.native)
        if dump.kind == PYSTACK:
            python, native = python[::-1], native[::-1]
        if dump.kind == PY_SPY:
            python = tuple(replace(f, file=full_name(f.file, dump.version, own)) for f in python)
        kinds: list[tuple[Stack, bool]] = [(native, True)] if native else []
        kinds += [(python, False)] if python or not native else []
        for frames, is_native in kinds:
            yield LogStack(
                place=Place(dump.file, thread.number, dump.kind),
                rank=dump.rank,
                pid=pid,
                thread=thread.line.name,
                frames=frames,
                main=thread is main,
                idle=thread.line.idle,
                native=is_native,
                tid=thread.line.tid,
                dump=dump.number,
                world_size=dump.world,
                gil=thread.line.gil,
            )


def _main_of(dump: _Dump) -> _Thread | None:
    """The main thread. faulthandler prints it last, and so does pystack, whose numbers grow with a thread's age.

    None where it cannot be known: faulthandler leaves threads out above 100, the main thread first.
    """
    said = next((thread for thread in dump.threads if thread.line.main), None)
    if said is not None:
        return said
    if dump.kind == PY_SPY:
        by_pid = [thread for thread in dump.threads if dump.pid and thread.line.tid == dump.pid]
        return next((t for t in (*by_pid, *dump.threads) if t in by_pid or _is_program(t)), None)
    if dump.kind == GDB:
        return dump.threads[0] if len(dump.threads) == 1 and not dump.threads[0].line.tid else None
    last = dump.threads[-1] if dump.kind == FAULTHANDLER else min(dump.threads, key=lambda t: t.line.tid)
    outermost = last.frames[0 if dump.kind == PYSTACK else -1] if last.frames else None
    started = outermost is not None and outermost.function.rpartition(".")[2] == _STARTED
    return None if outermost is None or (started and outermost.file.endswith("threading.py")) else last


def _is_program(thread: _Thread) -> bool:
    return bool(thread.frames) and thread.frames[-1].function == "<module>"
