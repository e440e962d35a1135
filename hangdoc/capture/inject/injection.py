"""The journal of a rank that was started without the probe, fetched by running the probe's code inside it once (gdb).

Off unless asked for. The process is held for about half a second. All that gdb runs there is the start of a daemon
thread, on a native thread of the process's own that waits, with Python's global lock taken the ordinary way
(PyGILState_Ensure, PyRun_SimpleString) and every other thread still held: the borrowed thread is back where it was
before another could wait for it. The new thread begins when gdb has let go. It runs hangdoc_probe_injected, answers
into a private folder (``exchange``), and removes all its traces.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

from hangdoc.capture.inject import safety
from hangdoc.capture.inject.exchange import Exchange
from hangdoc.capture.inject.gdb import Gdb, GdbError, console, evaluation, find_gdb
from hangdoc.capture.inject.safety import refused
from hangdoc.capture.read import procfs, stacks
from hangdoc.capture.read.probe_client import LONGEST_ANSWER, ProbeDetails, parse_answer
from hangdoc.capture.read.ptrace_safety import let_go, may_be_held
from hangdoc.capture.safe.advice import NEXT_TIME, once_more
from hangdoc.capture.safe.text import clean
from hangdoc.model.process import ProcessState
from hangdoc.model.snapshot import Unavailable

_PROBE_FOLDER = Path(str(files("hangdoc.probe")))
_INJECTED = tuple(
    f"hangdoc_probe{part}"
    for part in ("_injected", "", "_tasks", "_traces", "_typed", "_details", "_recorders", "_serve")
)
_SETTLE_SECONDS = 5.0
"""How long gdb may take to end after its last commands; it is never killed then. Judgement."""
_TRIES, _BETWEEN_TRIES = 3, 0.15
"""A polling rank runs for some microseconds now and then; another try comes when it waits again. Judgement."""
_MOST_ASKED = 4
"""Ranks whose gates are tried before an injection is advised: the memory maps of hundreds take seconds. Judgement."""
_GO = "go"
_LONGEST_FAILURE = 2048
_POLL_SECONDS = 0.005
_BEGIN_SECONDS = 60
"""The thread inside the rank ends after this long, or when hangdoc is gone, if it may not begin. Judgement."""

# One expression: gdb evaluates all of it even if hangdoc is gone by then. A collection of garbage would run whatever
# the job finalizes, with no thread running that could release a lock.
_EXPRESSION = (
    "$held = 0,"
    " $state = ((int(*)(void))PyGILState_Ensure)(),"
    " $held = 1,"
    "{off}"
    " $status = ((int(*)(unsigned long))PyRun_SimpleString)({text:#x}),"
    " $status"
)
_COLLECTING = {"off": " ((int(*)(void))PyGC_Disable)(),", "on": "((int(*)(void))PyGC_Enable)(),"}
_LEFT_ALONE = {"off": "", "on": ""}
# With all threads free to go on, as Python may have the lock handed over to the new one. Also after a crash inside,
# which gdb undoes: the lock must not stay taken.
_RELEASE = "$held ? ({on} ((int(*)(int))PyGILState_Release)($state)) : 0"
_LOCKED, _FREE = "set scheduler-locking on", "set scheduler-locking off"


def collect(
    pids: Mapping[int, int], looks: Sequence[Mapping[int, ProcessState]], deadline: float
) -> dict[int, ProbeDetails | Unavailable]:
    """What each rank's flight recorder, groups and environment say, or why they were not asked.

    ``pids`` by rank; ``looks``: two, about a second apart, by pid; ``deadline`` in seconds for all of them.
    """
    program = find_gdb()
    if program is None:
        missing = refused("gdb was not found", "install gdb (apt install gdb, dnf install gdb)")
        return dict.fromkeys(pids, missing)
    until = time.monotonic() + deadline

    def one(pid: int) -> ProbeDetails | Unavailable:
        try:
            return _inject(program, pid, [look[pid] for look in looks if pid in look], until)
        except OSError as error:
            return refused(f"{error.strerror or error}")

    if not pids:
        return {}
    with ThreadPoolExecutor(min(len(pids), 1 + (os.cpu_count() or 1)), thread_name_prefix="injection") as pool:
        return dict(zip(pids, pool.map(one, pids.values()), strict=True))


def to_see_history(job: int, silent: Collection[int], looks: Sequence[Mapping[int, ProcessState]]) -> str:
    """The remedy that would show the calls of the ranks ``silent`` (pids), which have no probe.

    ``job`` is a pid to attach to. An injection is advised only if no gate would refuse it now.
    """
    if find_gdb() is not None:
        for pid in sorted(silent)[:_MOST_ASKED]:
            seen = [look[pid] for look in looks if pid in look]
            if _shut(pid, seen) is None and safety.lender(seen[-1]) is not None:
                command = once_more(f"attach {job} --inject")
                return f"`{command}` reads the ranks' earlier calls: gdb holds each for half a second"
    return NEXT_TIME


def _shut(pid: int, looks: Sequence[ProcessState]) -> Unavailable | None:
    """What forbids an injection before anything is held."""
    return safety.waiting(looks) or safety.from_outside(pid)


def _inject(program: str, pid: int, looks: Sequence[ProcessState], until: float) -> ProbeDetails | Unavailable:
    shut = _shut(pid, looks)
    if shut is not None:
        return shut
    tid = safety.lender(looks[-1])
    if tid is None:
        return refused("no native thread waits there: the process has made no process group yet")
    owner = Path(f"/proc/{pid}").stat()
    with Exchange(owner.st_uid, owner.st_gid) as exchange:
        text = _prepare(exchange)
        failed = _run(program, pid, tid, text, until)
        for _ in range(_TRIES - 1):
            if isinstance(failed, _NotNow):
                time.sleep(_BETWEEN_TRIES)
                failed = _run(program, pid, tid, text, until)
        if isinstance(failed, _NotNow):
            return failed.refusal
        if failed is not None:
            return failed
        exchange.put(_GO)
        return _answer(exchange, pid, until)


@dataclass(frozen=True, slots=True)
class _NotNow:
    """The process, while held, was not in a safe state, and nothing was run in it."""

    refusal: Unavailable


def _prepare(exchange: Exchange) -> bytes:
    """Put the probe's code where the process can read it; the text that runs it there.

    The text works in a namespace of its own: nothing of it shows in the job's ``__main__``. It raises nothing: an
    uncaught exception would be printed to the job's stderr.
    """
    folder = exchange.path
    for name in _INJECTED:
        exchange.put(f"{name}.py", (_PROBE_FOLDER / f"{name}.py").read_bytes())
    variables = (*sorted(procfs.ENVIRONMENT_NAMES), *procfs.ENVIRONMENT_PREFIXES)
    script = (
        "try:\n"
        " import os, time\n"
        f" until = time.monotonic() + {_BEGIN_SECONDS}\n"
        f" while not os.path.exists({str(folder / _GO)!r}):\n"
        f"  if time.monotonic() > until or not os.path.exists({str(folder)!r}): raise SystemExit\n"
        f"  try: os.kill({os.getpid()}, 0)\n"  # of a user who may not signal us it says at least that we are there
        "  except PermissionError: pass\n"
        f"  time.sleep({_POLL_SECONDS})\n"
        f" with open({str(folder / _INJECTED[0]) + '.py'!r}, 'rb') as file: source = file.read()\n"
        " exec(source, globals())\n"
        f" answer({str(folder)!r}, {str(exchange.out)!r}, {str(_PROBE_FOLDER)!r}, {variables!r})\n"
        "except BaseException:\n"
        " pass\n"
        "globals().clear()\n"
    )
    arguments = f"({script!r}, {{'__name__': {_INJECTED[0]!r}}})"
    text = (
        "try:\n"
        f" __import__('_thread').start_new_thread(__import__('builtins').exec, {arguments})\n"
        "except BaseException:\n"
        " pass\n"
    )
    return text.encode() + b"\0"


def _run(program: str, pid: int, tid: int, text: bytes, until: float) -> Unavailable | _NotNow | None:
    """Hold the process, check once more that it is safe, run the text, let go. None: it ran."""
    gdb = Gdb(program)
    started = False
    try:
        commands = _hold(gdb, pid, tid, text, until)
        if not isinstance(commands, tuple):
            return commands
        started = True
        status = gdb.last_words(until, *commands)
    except GdbError as error:
        if started and "signaled while in a function" in str(error):
            return refused("the code inside crashed, and gdb undid the call")
        return refused(f"gdb: {clean(str(error), 300)}", _remedy(str(error)))
    except TimeoutError:
        if started:
            return refused(f"gdb (process {gdb.pid}) gave no answer in time; it lets the rank go when it is done")
        return refused("gdb gave no answer in time", "the machine is overloaded: look again")
    finally:
        if not started and not gdb.end():
            let_go(pid)
        if started:
            gdb.wait(_SETTLE_SECONDS)
    return None if status == 0 else refused(f"Python did not run the code (status {status})")


def _hold(gdb: Gdb, pid: int, tid: int, text: bytes, until: float) -> tuple[str, ...] | Unavailable | _NotNow:
    """Hold the process and put the text there. Returns the commands that run it, the first one with Python's status."""
    gdb.ready(until)
    shut = may_be_held(procfs.look(pid))
    if shut is not None:
        return refused(shut.why, shut.remedy)
    gdb.attach(pid, until)
    gdb.console("sharedlibrary libpython", until)
    gdb.select_thread(tid, until)
    held = safety.while_held(pid, tid, until)
    if isinstance(held, Unavailable):
        return _NotNow(held)
    gdb.write(held.room, text, until)
    gdb.console(_LOCKED, until)
    if not _lives(gdb, until):
        return refused("its Python is ending or has not started")
    collecting = _COLLECTING if _collects(gdb, until) else _LEFT_ALONE
    start = evaluation(_EXPRESSION.format(text=held.room, **collecting))
    return start, console(_FREE), evaluation(_RELEASE.format(**collecting))


def _lives(gdb: Gdb, until: float) -> bool:
    """True if Python runs there and is not ending: a thread that then asks for the global lock would be ended."""
    alive = gdb.evaluate("((int(*)(void))Py_IsInitialized)()", until) == 1
    try:
        ending = gdb.evaluate("((int(*)(void))Py_IsFinalizing)()", until)  # Python 3.13
    except GdbError:
        ending = gdb.evaluate("((int(*)(void))_Py_IsFinalizing)()", until)
    return alive and ending == 0


def _collects(gdb: Gdb, until: float) -> bool:
    """True if the garbage collector is on and can be switched off from C (Python 3.10)."""
    try:
        return gdb.evaluate("((int(*)(void))PyGC_IsEnabled)()", until) == 1
    except GdbError:
        return False


def _answer(exchange: Exchange, pid: int, until: float) -> ProbeDetails | Unavailable:
    """Wait for what the thread inside writes, and read it."""
    while True:
        try:
            failure = exchange.take("failure", _LONGEST_FAILURE)
            data = exchange.take("answer", LONGEST_ANSWER)
        except (OSError, ValueError) as error:
            return refused(f"what the code inside left cannot be read: {clean(str(error), 200)}")
        if failure is not None:
            return refused(f"the code inside failed: {clean(failure.decode('utf-8', 'backslashreplace'), 300)}")
        if data is not None:
            break
        if not procfs.exists(pid):
            return refused("the process ended meanwhile")
        if time.monotonic() > until:
            return refused("the code inside did not answer in time", "look again")
        time.sleep(_POLL_SECONDS)
    answer = parse_answer(data)
    if isinstance(answer, Unavailable):
        return answer
    allowed = [
        item
        for item in answer.environment
        if item[0] in procfs.ENVIRONMENT_NAMES or item[0].startswith(procfs.ENVIRONMENT_PREFIXES)
    ]
    return replace(answer, environment=tuple(allowed), journal=replace(answer.journal, source="injection"))


def _remedy(message: str) -> str:
    return stacks.PERMISSION if "not permitted" in message else ""
