"""May code be run inside a process through gdb? Every gate that is closed gives its reason and a remedy.

Measured (x86-64, Python 3.9 to 3.13, gdb 13): injection kills a rank that is stopped or whose GIL another thread
holds in C; into a rank that waits it is harmless. So the gates are checked on two looks a second apart, and once
more while gdb holds the process, when nothing can change any more.
"""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.capture.read import procfs, stacks
from hangdoc.capture.read.blocked_calls import Call, parse_call
from hangdoc.capture.read.permission import forbidden
from hangdoc.capture.read.ptrace_safety import may_be_held, shut
from hangdoc.capture.safe.foreign import read_plain
from hangdoc.capture.safe.text import read_link, read_text
from hangdoc.model.process import ProcessState, Stack
from hangdoc.model.snapshot import Unavailable

_OLDEST, _NEWEST = (3, 9), (3, 13)
"""Versions of Python that injections were measured with."""
_REMOTE_EXEC = (
    "sys.remote_exec of Python 3.14 does not help either: its code runs when the main thread runs Python again, which a"
    " rank that waits in C never does; next time, start the job with `hangdoc watch`"
)
_WATCH = "next time, start the job with `hangdoc watch`: it has the ranks' call history without any injection"
_STACK_ROOM = 256 << 10
"""Bytes of a thread's stack: Python needs some tens of KiB for what we run. Judgement, with a wide margin."""

_WAIT_BITSET = 9
"""The futex operation of conditions and semaphores; mutexes wait with operation 0 (glibc 2.25 and newer)."""
_WAITS = frozenset({0, 6, _WAIT_BITSET, 11, 13})
"""All futex operations that wait; the others wake, and are over in no time."""
_QUIET = frozenset({"poll", "ppoll", "epoll_wait", "epoll_pwait", "clock_nanosleep", "nanosleep"})
"""Threads that wait in one of these hold nothing that Python needs."""
_MEMORY_CALLS = frozenset({"brk", "mmap", "munmap", "mprotect", "mremap", "madvise"})
"""The C library makes these with its allocator locked."""
_PYTHON_FILE = re.compile(r"/(?:lib)?python(\d)\.(\d+)(t?)(?:\.so[.\d]*)?$")
_OUR_LOCKS = re.compile(r"/(?:libc|ld-linux[-\w]*)(?:-[\d.]+)?\.so[.\d]*$")


def refused(why: str, remedy: str = _WATCH) -> Unavailable:
    """A journal that we did not fetch."""
    return Unavailable("journal", f"not injected: {why}", remedy)


def from_outside(pid: int) -> Unavailable | None:
    """What forbids an injection whatever the process does: the machine, permissions, namespaces, versions."""
    if platform.machine() != "x86_64":
        return refused(f"it was measured on x86-64 only, and this is {platform.machine()}")
    for name in ("pid", "mnt", "user"):
        own, its = read_link(f"/proc/self/ns/{name}"), read_link(f"/proc/{pid}/ns/{name}")
        if its is not None and its != own:
            return refused(f"the process lives in another {name} namespace", "run hangdoc inside its container")
    if read_link(f"/proc/{pid}/root") not in (None, read_link("/proc/self/root")):
        return refused("the process has another root directory", "run hangdoc inside its root")
    shut = forbidden(pid)
    return refused(shut.why, shut.remedy) if shut is not None else _versions(pid)


def _versions(pid: int) -> Unavailable | None:
    files = set(re.findall(r"/\S.*$", read_text(f"/proc/{pid}/maps", 8 << 20) or "", re.MULTILINE))
    found = next((match for file in sorted(files, reverse=True) if (match := _PYTHON_FILE.search(file))), None)
    if found is None:
        return refused("the version of the process's Python cannot be seen in the name of its program or library")
    shut = python_version(int(found[1]), int(found[2]), free_threaded=bool(found[3]))
    if shut is not None:
        return refused(shut.why, shut.remedy)
    library = next((file for file in files if file.endswith("/libtorch_python.so")), None)
    if library is None:
        return refused("torch is not loaded in the process")
    return _recorder(library)


def python_version(major: int, minor: int, *, free_threaded: bool = False) -> Unavailable | None:
    """Why that version of Python is refused; None: it is not."""
    name = f"Python {major}.{minor}"
    if free_threaded:
        return shut(f"{name} without a GIL: it cannot be seen when it is safe", _WATCH)
    if (major, minor) > _NEWEST:
        return shut(f"{name} is newer than any it was measured with", _REMOTE_EXEC)
    if (major, minor) < _OLDEST:
        return shut(f"{name} is older than any that torch's flight recorder runs on", _WATCH)
    return None


def _recorder(library: str) -> Unavailable | None:
    path = f"{os.path.dirname(os.path.dirname(library))}/version.py"  # noqa: PTH120 - of the job
    try:
        text = read_plain(path, 1 << 16, follow=True).decode("utf-8", "replace")
    except (OSError, ValueError):
        text = ""
    match = re.search(r"__version__ = '(\d+)\.(\d+)", text)
    if match is not None and (int(match[1]), int(match[2])) < (2, 5):
        return refused(f"torch {match[1]}.{match[2]} keeps no history that could be read", "use torch 2.8 or newer")
    return None


def waiting(looks: Sequence[ProcessState]) -> Unavailable | None:
    """What forbids an injection, by two looks at the process; None if nothing does."""
    if len(looks) < 2:
        return refused("it takes two looks to see that the process waits")
    for look in looks:
        shut = may_be_held(look)
        if shut is not None:
            return refused(shut.why, shut.remedy)
        for thread in look.threads:
            if thread.owns_gil:
                return refused(f"thread {thread.tid} ({thread.name}) holds Python's global lock")
        main = look.main
        if main is None or not main.frames:
            return refused("the main thread's Python stack cannot be seen, or Python is starting or ending there")
        if main.state != "S" or parse_call(main.syscall) is None:
            return refused("its main thread runs: it does not wait", "look again when it hangs")
    first, second = (_places(look.main.frames) for look in looks[-2:] if look.main is not None)
    if first != second:
        return refused("its main thread moved between the two looks: it does not hang", "look again when it hangs")
    return None


def _places(stack: Stack) -> list[tuple[str, int, str]]:
    """(file, line, function) of each frame, innermost first."""
    return [(frame.file, frame.line, frame.function) for frame in stack]


def lender(state: ProcessState) -> int | None:
    """A thread of native code that waits and has nothing to do with Python: gloo's workers first. None: there is none.

    Not the main thread: the job's signal handlers, tracers and profilers run there.
    """
    idle = [
        thread for thread in state.threads[1:] if thread.state == "S" and thread.python_id is None and not thread.frames
    ]
    idle = [thread for thread in idle if _may_lend(parse_call(thread.syscall))]
    idle.sort(key=lambda thread: (not thread.name.startswith("pt_gloo"), thread.tid))
    return idle[0].tid if idle else None


def _may_lend(call: Call | None) -> bool:
    """True if the system call is a wait without a lock: for a condition or an event, not for a mutex."""
    if call is None:
        return False
    return call.name in _QUIET or (call.name == "futex" and _operation(call) == _WAIT_BITSET)


def _operation(call: Call) -> int:
    """The operation of a futex call, without its flags (private, real-time clock)."""
    return call.arguments[1] & 0x7F


@dataclass(frozen=True, slots=True)
class Held:
    """A process that gdb holds and may run code in. ``room``: an address in the free part of the lender's stack."""

    room: int


def while_held(pid: int, tid: int, until: float) -> Held | Unavailable:
    """The last gate, while gdb holds every thread: what is true now stays true until the call. ``tid``: the lender."""
    state = procfs.look(pid)
    if state is None:
        return refused("the process is gone")
    maps = _maps(pid)
    shut = _some_thread_runs(pid, state, maps)
    if shut is not None:
        return shut
    call, pointer = _call(pid, tid)
    if not _may_lend(call) or _room(pointer, maps) < 2 * _STACK_ROOM:
        return refused("no waiting native thread has enough free stack to run the code")
    return _global_lock_is_held(pid, tid, until) or Held(pointer - _STACK_ROOM)


def _some_thread_runs(pid: int, state: ProcessState, maps: Sequence[tuple[int, int, str]]) -> Unavailable | None:
    """What a thread does that forbids it. ``maps`` as ``_maps`` returns them.

    The code runs while all others are held: none of them may own a lock of the allocator or of Python's.
    """
    for thread in state.threads:
        if thread.state != "t":
            return refused(f"thread {thread.tid} ({thread.name}) cannot be held: it is in state {thread.state}")
        call, _ = _call(pid, thread.tid)
        if call is None or call.name in _MEMORY_CALLS or (call.name == "futex" and _operation(call) not in _WAITS):
            return refused(f"thread {thread.tid} ({thread.name}) runs: it does not wait", "look again when it hangs")
        if _waits_for_the_c_library(call, maps):
            return refused(f"thread {thread.tid} ({thread.name}) waits for a lock inside the C library")
    return None


def _global_lock_is_held(pid: int, tid: int, until: float) -> Unavailable | None:
    """What py-spy says against it: a thread holds Python's global lock, or the lender ``tid`` is one of Python's."""
    threads = stacks.dump([pid], deadline=until - time.monotonic())[pid]
    if isinstance(threads, Unavailable):
        return refused(f"its global lock cannot be seen: {threads.why}", threads.remedy)
    for python in threads:
        if python.owns_gil is not False:
            return refused(f"thread {python.tid} holds Python's global lock")
        if python.tid in (tid, procfs.namespace_pid(pid, tid)):
            return refused("the only thread that could run the code belongs to Python")
    return None


def _call(pid: int, tid: int) -> tuple[Call | None, int]:
    """(a thread's system call, None if it is in none; its stack pointer)."""
    words = (read_text(f"/proc/{pid}/task/{tid}/syscall", 512) or "").split()
    if len(words) != 9:
        return None, 0
    return parse_call(" ".join(words[:7])), int(words[7], 16)


def _maps(pid: int) -> list[tuple[int, int, str]]:
    """(first address, address after the last, file) of each of the process's mappings."""
    found = []
    for line in (read_text(f"/proc/{pid}/maps", 8 << 20) or "").splitlines():
        match = re.match(r"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ \S+ *(.*)$", line)
        if match is not None:
            found.append((int(match[1], 16), int(match[2], 16), match[3]))
    return found


def _waits_for_the_c_library(call: Call | None, maps: Sequence[tuple[int, int, str]]) -> bool:
    """True if the call waits for a mutex of malloc or of the dynamic linker, which the injected code needs too."""
    if call is None or call.name != "futex" or _may_lend(call):
        return False
    address = call.arguments[0]
    return any(start <= address < end and _OUR_LOCKS.search(file) for start, end, file in maps)


def _room(pointer: int, maps: Sequence[tuple[int, int, str]]) -> int:
    """Bytes of the mapping below ``pointer``: the free part of a stack. ``maps`` as ``_maps`` returns them."""
    return next((pointer - start for start, end, _ in maps if start <= pointer < end), 0)
