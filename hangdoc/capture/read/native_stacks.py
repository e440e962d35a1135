"""Native frames (C, C++) of ranks whose Python frames do not show what they wait for, by pystack if it is installed.

Measured with pystack 1.7 on a torch rank: 0.25 to 0.6 s, the process held for 0.13 to 0.2 s of it. So it is for ranks
that wait, one of each kind, a few at most: DDP's backward shows only ``_engine_run_backward`` to py-spy, and a C
call made by the user's own code only its line. pystack hangs on a thread in state D, and killed while it holds a
process it leaves that stopped: so it is not used in the first case, and the process is continued after the second.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from hangdoc import interpreter
from hangdoc.capture.read import blocked_calls, procfs, stacks
from hangdoc.capture.read.ptrace_safety import let_go, may_be_held
from hangdoc.capture.read.stacks import find_tool
from hangdoc.capture.safe.text import clean
from hangdoc.capture.safe.tool import run_tool
from hangdoc.model.device_waits import waits_for_device
from hangdoc.model.frames import is_library_file
from hangdoc.model.process import Frame, ProcessState, Stack, Thread
from hangdoc.model.snapshot import Unavailable

MOST_RANKS = 4
"""Each is held for 0.13 to 0.2 s (measured). Judgement."""
_MOST_FRAMES = 40
_MAX_OUTPUT = 8 << 20
_SHOWS_NOTHING = ("_engine_run_backward",)
_OPERATORS = "/torch/_ops.py"
"""Any operator of C++: in compiled code also the wait for a collective."""
_UNCLEAR_CALLS = frozenset({"futex", "poll", "ppoll", "epoll_wait", "epoll_pwait", "select", "pselect6", ""})

_THREAD = re.compile(r"Traceback for thread (\d+) ")
_FRAME = re.compile(r' +\((C|Python)\) File "(.*?)", line (\d+), in (.*)$')
_LIBRARY = re.compile(r"(.*) \((/[^()]*)\)$")


def find_pystack() -> str | None:
    """The pystack installed beside hangdoc's own interpreter, else the first on PATH, else None."""
    return find_tool("pystack")


def complete(
    first: Mapping[int, ProcessState], second: dict[int, ProcessState], pids: Iterable[int], *, deadline: float
) -> dict[int, Unavailable]:
    """Put native frames on the threads of ``second`` where it is worth it; by pid why there are none.

    ``deadline`` in seconds for all of them.
    """
    chosen = worth_it({pid: (first[pid], second[pid]) for pid in pids if pid in first and pid in second})
    found = dump(chosen, deadline=deadline)
    for pid, frames in found.items():
        if not isinstance(frames, Unavailable):
            threads = (replace(t, native_frames=frames) if t.tid == chosen[pid] else t for t in second[pid].threads)
            second[pid] = replace(second[pid], threads=tuple(threads))
    return {pid: failure for pid, failure in found.items() if isinstance(failure, Unavailable)}


def worth_it(looks: Mapping[int, Sequence[ProcessState]]) -> dict[int, int]:
    """Pid → the thread whose native frames would add something: one for each place of a wait, ``MOST_RANKS`` at
    most."""
    chosen: dict[Frame, tuple[int, int]] = {}
    for pid, seen in looks.items():
        unclear = _unclear_wait(seen)
        if unclear is not None:
            tid, place = unclear
            chosen.setdefault(place, (pid, tid))
    return dict(list(chosen.values())[:MOST_RANKS])


def _unclear_wait(looks: Sequence[ProcessState]) -> tuple[int, Frame] | None:
    """(thread, innermost Python frame) of the main thread, if it waited there at both looks and does not show for what,
    or seems to poll a device; of the only other thread that waits so, where the main thread is in Python's own code.

    Example: the main thread is in asyncio's `select`, and one of the executor's is in `store.get(key)` → that one.
    """
    if len(looks) < 2 or any(may_be_held(look) is not None for look in looks[-2:]):
        return None
    polling = looks[-1].main if waits_for_device(looks[-2:]) else None
    if polling is not None:
        return polling.tid, _place(polling)
    before, now = ({t.tid: place for t in look.threads if (place := _waits_at(t)) is not None} for look in looks[-2:])
    main = looks[-1].main
    if main is None or main.tid not in now or before.get(main.tid) != now[main.tid]:
        return None
    unclear = [(tid, place) for tid, place in now.items() if before.get(tid) == place and not _is_known(place)]
    if not _is_known(now[main.tid]):
        return main.tid, now[main.tid]
    return unclear[0] if len(unclear) == 1 else None


def _is_known(innermost: Frame) -> bool:
    """True if a thread's innermost Python frame shows what it waits for."""
    known = is_library_file(innermost.file) and not innermost.file.endswith(_OPERATORS)
    return known and innermost.function not in _SHOWS_NOTHING


def _waits_at(thread: Thread) -> Frame | None:
    """The innermost Python frame of a thread that waits, without its locals, if nothing else shows for what."""
    if not thread.frames or thread.state != "S":
        return None
    call = blocked_calls.parse_call(thread.syscall)
    # The C function of the thread that holds the global lock shows what it waits in.
    if call is not None and call.name not in _UNCLEAR_CALLS and not thread.owns_gil:
        return None
    return _place(thread)


def _place(thread: Thread) -> Frame:
    """The thread's innermost Python frame, without its locals."""
    innermost = thread.frames[0]
    return Frame(innermost.file, innermost.line, innermost.function)


def dump(threads: Mapping[int, int], *, deadline: float) -> dict[int, Stack | Unavailable]:
    """Per process (pid → thread) the native frames that the thread is in below its Python frames, innermost first.

    ``deadline`` in seconds for all of them.
    """
    program = find_pystack()
    if program is None or not threads:
        return {}
    until = time.monotonic() + deadline
    with ThreadPoolExecutor(min(len(threads), MOST_RANKS), thread_name_prefix="pystack") as pool:
        dumps = pool.map(lambda pid: _dump_one(program, pid, threads[pid], until), threads)
        return dict(zip(threads, dumps, strict=True))


def _dump_one(program: str, pid: int, tid: int, until: float) -> Stack | Unavailable:
    shut = may_be_held(procfs.look(pid))
    if shut is not None:
        return _unavailable(shut.why, shut.remedy)
    command = [program, "remote", "--native-all", "--native-last", "--no-color", str(pid)]
    if time.monotonic() >= until:
        return _too_late()
    environment = {**interpreter.environment(), "LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "utf-8"}
    try:
        done = run_tool(command, until=until, most_output=_MAX_OUTPUT, environment=environment)
    except TimeoutError:
        let_go(pid)
        return _too_late()
    except OSError as error:
        return _unavailable(f"pystack could not be started: {error.strerror}", "reinstall pystack")
    if done.status < 0:  # it crashes on very deep stacks
        let_go(pid)
    if done.status != 0:
        lines = done.errors.decode("utf-8", "replace").strip().splitlines()
        why = clean(lines[-1], 300) if lines else f"pystack ended with status {done.status}"
        return _unavailable(why, stacks.PERMISSION if "not permitted" in why.lower() else "")
    return parse(done.output.decode("utf-8", "replace"), procfs.namespace_pid(pid, tid), tid)


def parse(text: str, *tids: int) -> Stack:
    """The native frames below the last Python frame of the first thread with one of the ids; innermost first.

    ``(Python) … in backward``, ``(C) … in execute``, ``(C) … in wait``, as pystack prints them → frames wait, execute.
    """
    found: list[Frame] = []
    inside = False
    for line in text.splitlines():
        heading = _THREAD.match(line)
        if heading is not None:
            if inside:
                break
            inside = int(heading[1]) in tids
        match = _FRAME.match(line) if inside else None
        if match is None:
            continue
        if match[1] == "Python":
            found.clear()
            continue
        named = _LIBRARY.match(match[4])
        function, library = (named[1], named[2]) if named is not None else (match[4], match[2])
        found.append(Frame(clean(library), int(match[3]), clean(function, 200)))
    return tuple(reversed(found))[:_MOST_FRAMES]


def _too_late() -> Unavailable:
    return _unavailable("pystack gave no answer in time", "the machine is overloaded: look again")


def _unavailable(why: str, remedy: str = "") -> Unavailable:
    return Unavailable("native frames", why, remedy)
