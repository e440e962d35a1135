"""Python stacks of other processes, by py-spy (0.4) with ``dump --nonblocking --json --locals``.

``--nonblocking`` reads memory without stopping the process: it works on stopped, uninterruptible and
already traced processes and cannot leave one stopped. A process that moves meanwhile may give a torn stack;
a hung one does not move.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import sys
import sysconfig
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hangdoc.capture.read import procfs
from hangdoc.capture.read.frame_objects import with_attributes
from hangdoc.capture.read.permission import forbidden
from hangdoc.capture.safe.text import clean
from hangdoc.capture.safe.tool import run_tool
from hangdoc.model.frames import is_library_file, own_frames
from hangdoc.model.process import Frame, Local, ProcessState, Stack
from hangdoc.model.snapshot import Unavailable

# Limits on what is kept of one process. Judgement, except for _MAX_TID, which is the kernel's (PID_MAX_LIMIT).
_MAX_OUTPUT = 64 << 20
_MAX_THREADS = 512
_MAX_FRAMES = 512
_MAX_LOCALS = 60
_MAX_VALUE = 160
_LONGER = 4
_MAX_TID = 1 << 22
_TID_OFFSET = {"x86_64": 720, "aarch64": 208}
"""Of ``tid`` in glibc's ``struct pthread`` (nptl/descr.h, glibc 2.17 to 2.41)."""

PERMISSION = (
    "hangdoc may not read that process: run hangdoc as the job's user; under Yama (ptrace_scope 1) run hangdoc as root,"
    " or, next time, start the job with `hangdoc watch`; in a container allow CAP_SYS_PTRACE"
)
"""The remedy where the kernel forbids looking into a process."""

# (words of py-spy's message in lower case, the remedy).
_REMEDIES = (
    ("permission denied", PERMISSION),
    ("no such file or directory", "the process is gone or a zombie"),
    ("no such process", "the process is gone or a zombie"),
    ("failed to find python version", "that process is not Python; its children may be"),
    ("failed to find a python interpreter", "Python has not started in that process yet: look again"),
)


_MOVED = ("failed to get stack traces", "failed to find a python interpreter")
"""What py-spy says of a process that changes while it is read, or has only just begun."""
_MORE_TRIES = 2
_PAUSE = 0.1
"""Seconds between two tries on a busy process. Judgement."""


@dataclass(frozen=True, slots=True)
class PythonThread:
    """One Python thread as py-spy saw it. ``tid`` as the process itself sees it (its own pid namespace)."""

    tid: int | None
    name: str | None
    python_id: int | None
    active: bool | None
    owns_gil: bool | None
    frames: Stack


def find_py_spy() -> str | None:
    """The py-spy installed beside hangdoc's own interpreter, else the first on PATH, else None."""
    return find_tool("py-spy")


def find_tool(name: str) -> str | None:
    """A command that packages install: beside hangdoc's own interpreter first, then on PATH.

    `pip install --target`, and so a zipped hangdoc, puts it into 'bin' beside the packages.
    """
    beside = Path(__file__).parents[3] / "bin"
    for folder in (Path(sys.executable).parent, Path(sysconfig.get_path("scripts")), beside):
        candidate = folder / name
        if os.access(candidate, os.X_OK):
            return str(candidate)
    return shutil.which(name)


def dump(
    pids: Iterable[int], *, deadline: float = 3.0, keep_strings: bool = False, attributes: bool = False
) -> dict[int, tuple[PythonThread, ...] | Unavailable]:
    """The Python threads of each process, or why there are none.

    ``deadline`` in seconds for all of them; a few more py-spy run at once than there are processors. ``attributes``:
    with the plain attributes of the objects that frames hold.
    """
    until = time.monotonic() + deadline
    wanted = list(dict.fromkeys(pids))
    program = find_py_spy()
    if program is None:
        missing = Unavailable("stack", "py-spy was not found", "pip install py-spy beside hangdoc")
        return dict.fromkeys(wanted, missing)
    if not wanted:
        return {}
    workers = min(len(wanted), 2 + (os.cpu_count() or 1), 64)
    with ThreadPoolExecutor(workers, thread_name_prefix="py-spy") as pool:
        results = pool.map(lambda pid: _dump_moving(program, pid, until, keep_strings, attributes), wanted)
        return dict(zip(wanted, results, strict=True))


def parse(document: str, *, keep_strings: bool = False, pid: int | None = None) -> tuple[PythonThread, ...]:
    """Parse py-spy's JSON. Raises ValueError where it is not what py-spy 0.4 writes.

    ``pid``: the process whose memory is asked for the attributes of the objects that frames hold; None: no process's.
    """
    threads = json.loads(document)
    if not isinstance(threads, list):
        raise ValueError("not a list of threads")  # noqa: TRY004 - the input is wrong, not the caller
    found = threads_of(threads, keep_strings=keep_strings)
    if pid is None:
        return found
    stacks = with_attributes(pid, [thread.frames for thread in found], threads)
    return tuple(replace(thread, frames=frames) for thread, frames in zip(found, stacks, strict=True))


def threads_of(threads: Sequence[Any], *, keep_strings: bool = False) -> tuple[PythonThread, ...]:
    """The threads of such a document, in its order. Raises ValueError where one is not what py-spy 0.4 writes."""
    return tuple(_thread(item, keep_strings) for item in threads[:_MAX_THREADS])


def merge(pid: int, state: ProcessState, threads: Sequence[PythonThread]) -> ProcessState:
    """``state`` with the Python frames put on the threads they belong to."""
    by_tid = {thread.tid: thread for thread in threads if thread.tid is not None}
    own_ids = {thread.tid for thread in state.threads}
    merged = []
    for thread in state.threads:
        seen = by_tid.get(thread.tid)
        if seen is None and not own_ids.issuperset(by_tid):
            seen = by_tid.get(procfs.namespace_pid(pid, thread.tid))
        if seen is not None:
            thread = replace(  # noqa: PLW2901 - the same thread, completed
                thread,
                name=seen.name or thread.name,
                python_id=seen.python_id,
                active=thread.state == "R" if seen.active is None else seen.active,
                owns_gil=seen.owns_gil,
                frames=own_frames(seen.frames),
            )
        merged.append(thread)
    return replace(state, threads=tuple(merged))


def _dump_moving(
    program: str, pid: int, until: float, keep_strings: bool, attributes: bool
) -> tuple[PythonThread, ...] | Unavailable:
    """As ``_dump_one``, tried again for a busy process, which changes its frames while py-spy reads them."""
    answer = _dump_one(program, pid, until, keep_strings, attributes)
    for _ in range(_MORE_TRIES):
        if not isinstance(answer, Unavailable) or not any(said in answer.why.lower() for said in _MOVED):
            break
        time.sleep(_PAUSE)
        answer = _dump_one(program, pid, until, keep_strings, attributes)
    return answer


def _dump_one(
    program: str, pid: int, until: float, keep_strings: bool, attributes: bool
) -> tuple[PythonThread, ...] | Unavailable:
    # Each further --locals shows 128 characters more: a list of objects takes 28 for each.
    shown = ["--locals"] * (_LONGER if attributes else 1)
    command = [program, "dump", "--nonblocking", "--json", *shown, "--full-filenames", "--pid", str(pid)]
    if time.monotonic() >= until:
        return _too_late()
    try:
        done = run_tool(
            command, until=until, most_output=_MAX_OUTPUT, environment={**os.environ, "RUST_BACKTRACE": "0"}
        )
    except TimeoutError:
        return _too_late()
    except OSError as error:
        return Unavailable("stack", f"py-spy could not be started: {error.strerror}", "reinstall py-spy")
    if done.status != 0:
        failure = _failure(done.errors.decode("utf-8", "replace"), done.status)
        # py-spy says the same whatever forbids it.
        shut = forbidden(pid) if failure.remedy == PERMISSION else None
        return Unavailable("stack", shut.why, shut.remedy) if shut is not None else failure
    try:
        if done.cut:
            raise ValueError("too large")
        document = done.output.decode("utf-8", "replace")
        threads = parse(document, keep_strings=keep_strings, pid=pid if attributes else None)
        return tuple(_identified(pid, thread) for thread in threads)
    except (ValueError, RecursionError) as error:
        return Unavailable("stack", f"py-spy's answer could not be read: {clean(str(error), 200)}")


def _identified(pid: int, thread: PythonThread) -> PythonThread:
    """The thread with its kernel id, which Python itself only keeps since 3.11.

    Without it py-spy cannot know whether the thread is active, and reports that it is.
    """
    if thread.tid is not None or thread.python_id is None:
        return thread
    tid = _tid_in_pthread(pid, thread.python_id)
    if tid is None and thread.name == "MainThread":
        tid = procfs.namespace_pid(pid, pid)
    return replace(thread, tid=tid, active=None)


def _tid_in_pthread(pid: int, pthread: int) -> int | None:
    """The kernel id in glibc's ``struct pthread`` at that address (glibc 2.17 to 2.41); None if there is none."""
    offset = _TID_OFFSET.get(platform.machine())
    if offset is None:
        return None
    try:
        descriptor = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        tid = int.from_bytes(os.pread(descriptor, 4, pthread + offset), sys.byteorder)
    except (OSError, OverflowError):
        return None
    finally:
        os.close(descriptor)
    return tid if 0 < tid <= _MAX_TID else None


def _too_late() -> Unavailable:
    return Unavailable("stack", "py-spy gave no answer in time", "the machine is overloaded: look again")


def _failure(message: str, status: int) -> Unavailable:
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    # The first line says what py-spy tried, the last cause what the system answered.
    causes = [line.partition(": ")[2] for line in lines if line[:1].isdigit()]
    first = lines[0].removeprefix("Error: ") if lines else f"py-spy ended with status {status}"
    first = clean(f"{first.rstrip('.')}: {causes[-1]}" if causes else first, 300)
    lowered = message.lower()
    for pattern, remedy in _REMEDIES:
        if pattern in lowered:
            return Unavailable("stack", first, remedy)
    return Unavailable("stack", first)


def _thread(item: Mapping[str, Any], keep_strings: bool) -> PythonThread:
    try:
        return PythonThread(
            tid=_integer(item.get("os_thread_id")),
            name=clean(str(item["thread_name"]), 80) if item.get("thread_name") else None,
            python_id=_integer(item.get("thread_id")),
            active=_flag(item.get("active")),
            owns_gil=_flag(item.get("owns_gil")),
            frames=tuple(_frame(frame, keep_strings) for frame in item["frames"][:_MAX_FRAMES]),
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"unexpected thread: {error!r}") from error


def _frame(item: Mapping[str, Any], keep_strings: bool) -> Frame:
    file = clean(str(item["filename"]))
    function = clean(str(item["name"]), 300)
    kept: list[Local] = []
    for local in item.get("locals") or ():
        if len(kept) >= _MAX_LOCALS:
            break
        name, text = str(local["name"]), local.get("repr")
        if text is None:
            continue
        found = shown_local(file, function, name, str(text), bool(local.get("arg")), keep_strings)
        kept += [found] if found is not None else []
    return Frame(file, _integer(item["line"]) or 0, function, tuple(kept))


def shown_local(
    file: str, function: str, name: str, text: str, argument: bool, keep_strings: bool = False
) -> Local | None:
    """A local variable as py-spy prints it (``text``), masked; None for one that is not worth keeping."""
    if name.startswith(("__", "@")) or not name.isidentifier():
        return None
    plain = keep_strings or _is_torchs_own(file, name, text) or is_lock_path(text)
    value = clean(text, _MAX_VALUE) if plain else mask(text)
    kept = _worth_keeping(value, is_library_file(file) or function == "<module>")
    return Local(name, value, argument) if kept else None


# Strings in torch's own frames that hold no secret (torch 2.13): the name of a group that is being made, which is the
# count of groups made before; the address of the rendezvous.
_TORCHS_OWN = {
    "group_name": re.compile(r"""["']\d{1,9}["']"""),
    "init_method": re.compile(r"""["'](?:file|tcp)://[^"'@]*["']"""),
}


# A path whose last part speaks of a lock: '/data/cache/.index.lock'.
_LOCK_PATH = re.compile(r"""(["'])((?:[\w.+@=~-]*/)*[\w.+@=~-]*(?<![bc])lo?ck[\w.+@=~-]*)\1""", re.IGNORECASE)


def is_lock_path(text: str) -> bool:
    """True for the path of what may be a lock file, in quotes; its folder is needed to find the file. No words."""
    return "/" in text and len(text) < _MAX_VALUE and _LOCK_PATH.fullmatch(text) is not None


def _is_torchs_own(file: str, name: str, text: str) -> bool:
    known = _TORCHS_OWN.get(name) if file.endswith("/torch/distributed/distributed_c10d.py") else None
    return known is not None and known.fullmatch(text) is not None


def _worth_keeping(value: str, plain_only: bool) -> bool:
    """False for modules, functions, classes; with ``plain_only`` (library frames, module bodies) for every object."""
    if value.startswith("<"):
        return not plain_only and not value.startswith(("<module", "<function", "<type", "<builtin"))
    return value != "?"


# What a masked value may consist of: numbers, the three constants, brackets and type names.
_TOKEN = re.compile(
    r"""
      (?P<string>b?"[^"]*"(?=\s*(?:[,:\])}]|$)))
    | (?P<object><(?P<type>[A-Za-z_][\w.]*)(?:\ at\ 0x[0-9a-f]+)?>)
    | [-+]?(?:\d+(?:\.\d*)?(?:[eE][-+]?\d+)?j?|inf|nan)(?![\w.])
    | (?:True|False|None)(?!\w)
    | \.\.\.
    | [\[\](){},:\s]
    """,
    re.VERBOSE,
)
_BRACKETS = {"[": "[…]", "(": "(…)", "{": "{…}"}


def mask(text: str) -> str:
    """A value as py-spy prints it, with everything that might be a string replaced by ``…``.

    py-spy does not escape quotes inside strings, so a container whose parts are not all plainly numbers,
    constants, type names and quoted strings is masked as a whole. Examples: ``[1, "a"]`` → ``[1, '…']``;
    ``[1, "a"b"]`` → ``[…]``.
    """
    if text.startswith(('"', "'", 'b"', "b'")):
        return "'…'"
    parts: list[str] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            return _BRACKETS.get(text[0], "…" if text != "?" else "?")
        if match["string"] is not None:
            parts.append("'…'")
        elif match["object"] is not None:
            parts.append(f"<{match['type']}>")
        else:
            parts.append(match[0])
        position = match.end()
    return clean("".join(parts), _MAX_VALUE)


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _flag(value: object) -> bool | None:
    return value if isinstance(value, bool) else None
