"""Processes and threads as /proc shows them (proc(5), Linux >= 4.5).

Nothing here raises for a process that is gone, that belongs to another user or whose files hold nonsense: what
cannot be read is None or left out. Nothing here attaches to, signals or slows a process.
"""

from __future__ import annotations

import functools
import operator
import os
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from hangdoc.capture.safe.command_line import without_secrets
from hangdoc.capture.safe.text import clean, read_bytes, read_link, read_text
from hangdoc.model.masking import Place, mask_named
from hangdoc.model.process import ProcessState, Thread

_TICK = 1.0 / os.sysconf("SC_CLK_TCK")
# Of one process. Judgement: a rank has tens of threads, a launcher's command line tens of words.
_MAX_THREADS = 1024
_MAX_ARGV = 64
_STOP_PENDING = 1 << (signal.SIGSTOP - 1)

# Variables that say who a process is in the job.
ENVIRONMENT_NAMES = frozenset(
    {
        *("RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "ROLE_RANK"),
        *("WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "PMIX_RANK", "PMIX_NAMESPACE"),
        *("SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS", "SLURM_NNODES", "SLURM_NODEID"),
        *(
            "SLURM_JOB_ID",
            "SLURM_STEP_ID",
            "SLURM_SRUN_COMM_PORT",
            "CUDA_VISIBLE_DEVICES",
            "OMP_NUM_THREADS",
            "PYTHONHASHSEED",
        ),
        *("TORCH_DEVICE_BACKEND_AUTOLOAD", "TORCH_DISTRIBUTED_DEBUG", "TORCH_DIST_USE_NCCL2"),
        *("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_BLOCKING_WAIT"),
        *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "HANGDOC_PROBE"),
    }
)
ENVIRONMENT_PREFIXES = ("TORCHELASTIC_", "OMPI_COMM_WORLD_", "NCCL_", "GLOO_")


@dataclass(frozen=True, slots=True)
class Stat:
    """One line of /proc/PID/stat. ``cpu`` in seconds, ``started`` in seconds since boot."""

    pid: int
    comm: str
    state: str
    ppid: int
    cpu: float
    started: float
    exit_code: int
    """As waitpid gives it; filled by the kernel once the process is a zombie."""
    children_cpu: float = 0.0
    """Of the children it has waited for, in seconds."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """Counters of a main thread: it moves if two of them differ. ``cpu`` in seconds."""

    state: str
    cpu: float
    voluntary_switches: int


def parse_stat(data: bytes) -> Stat | None:
    """Parse a stat line; the command name may hold anything, closing brackets and newlines included."""
    opening, closing = data.find(b"("), data.rfind(b")")
    fields = data[closing + 1 :].split()
    if opening < 0 or len(fields) < 20:
        return None
    try:
        return Stat(
            pid=int(data[:opening]),
            comm=clean(data[opening + 1 : closing].decode("utf-8", "backslashreplace")),
            state=fields[0].decode("ascii", "replace"),
            ppid=int(fields[1]),
            cpu=(int(fields[11]) + int(fields[12])) * _TICK,
            started=int(fields[19]) * _TICK,
            exit_code=int(fields[49]) if len(fields) > 49 else 0,
            children_cpu=(int(fields[13]) + int(fields[14])) * _TICK,
        )
    except ValueError:
        return None


def stat(pid: int) -> Stat | None:
    """The process's stat line; None if there is no such process."""
    data = read_bytes(f"/proc/{pid}/stat", 4096)
    return parse_stat(data) if data else None


def exists(pid: int) -> bool:
    """True if the process runs or is stopped, False if it is gone or a zombie."""
    found = stat(pid)
    return found is not None and found.state not in "ZX"


def users(pid: int) -> frozenset[int]:
    """The real, effective and saved user of the process; none if it is gone."""
    status = read_bytes(f"/proc/{pid}/status", 16384) or b""
    line = next((line for line in status.splitlines() if line.startswith(b"Uid:")), b"")
    return frozenset(int(word) for word in line.split()[1:4])


def pulse(pid: int) -> Pulse | None:
    """The main thread's state, CPU time and voluntary switches: two small reads, some 20 µs."""
    data = read_bytes(f"/proc/{pid}/task/{pid}/stat", 4096)
    found = parse_stat(data) if data else None
    if found is None:
        return None
    status = read_bytes(f"/proc/{pid}/task/{pid}/status", 16384) or b""
    return Pulse(found.state, found.cpu, _status_number(status, b"voluntary_ctxt_switches"))


def awake(pid: int) -> float | None:
    """Seconds for which the main thread has run or been ready to run, in nanoseconds where the kernel counts them
    (CONFIG_SCHED_INFO); else None."""
    words = (read_bytes(f"/proc/{pid}/task/{pid}/schedstat", 256) or b"").split()
    known = len(words) == 3 and all(word.isdigit() for word in words)
    return (int(words[0]) + int(words[1])) / 1e9 if known and int(words[0]) else None


def table() -> dict[int, Stat]:
    """Every process of the machine that /proc shows, by pid, in one pass (some 15 µs each)."""
    found: dict[int, Stat] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - ten times cheaper than pathlib on a full /proc
    except OSError:
        return found
    for name in names:
        if name.isdigit() and (entry := stat(int(name))) is not None:
            found[entry.pid] = entry
    return found


def descendants(root: int, processes: Mapping[int, Stat]) -> list[int]:
    """``root`` and all processes below it, parents before children, older siblings first."""
    children: dict[int, list[int]] = {}
    for entry in processes.values():
        children.setdefault(entry.ppid, []).append(entry.pid)
    order: list[int] = []
    seen: set[int] = set()
    queue = [root] if root in processes else []
    while queue:
        pid = queue.pop(0)
        if pid in seen:
            continue
        seen.add(pid)
        order.append(pid)
        queue.extend(sorted(children.get(pid, ()), key=lambda child: (processes[child].started, child)))
    return order


def children(pid: int) -> list[int]:
    """Processes that the main thread of ``pid`` started, in one small read; empty on kernels that do not list them."""
    data = read_bytes(f"/proc/{pid}/task/{pid}/children", 1 << 16) or b""
    return [int(word) for word in data.split() if word.isdigit()]


def start_time(entry: Stat) -> float:
    """Unix time at which the process started."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + entry.started


def argv(pid: int) -> tuple[str, ...]:
    """The command line, cleaned, bounded and without secrets; empty for a zombie or where it cannot be read."""
    data = read_bytes(f"/proc/{pid}/cmdline", 1 << 16) or b""
    words = data.rstrip(b"\0").split(b"\0") if data else []
    return without_secrets([word.decode("utf-8", "backslashreplace") for word in words[:_MAX_ARGV]])


def environment(pid: int) -> dict[str, str] | None:
    """The allow-listed variables the process was started with; None where they cannot be read.

    What a process puts into ``os.environ`` later is not visible here.
    """
    data = read_bytes(f"/proc/{pid}/environ", 1 << 20)
    if data is None:
        return None
    found: dict[str, str] = {}
    for item in data.split(b"\0"):
        name, separator, value = item.decode("utf-8", "backslashreplace").partition("=")
        if separator and (name in ENVIRONMENT_NAMES or name.startswith(ENVIRONMENT_PREFIXES)):
            found[name] = clean(mask_named(name, value, Place.VARIABLE), 512)
    return found


def look(pid: int) -> ProcessState | None:
    """One look at a process and all its threads, main thread first; None if it is gone.

    Where a file of a thread cannot be read (another user's process), its field is None or zero.
    """
    entry = stat(pid)
    if entry is None:
        return None
    status = read_bytes(f"/proc/{pid}/status", 16384) or b""
    read, written = _io(pid)
    return ProcessState(
        at=time.time(),
        state=entry.state,
        tracer_pid=_status_number(status, b"TracerPid"),
        cpu=entry.cpu,
        read_bytes=read,
        write_bytes=written,
        threads=tuple(_threads(pid)),
    )


def namespace_pid(pid: int, tid: int) -> int:
    """The thread's id in its own (innermost) pid namespace; ``tid`` itself where that is not known."""
    status = read_bytes(f"/proc/{pid}/task/{tid}/status", 16384) or b""
    for line in status.splitlines():
        if line.startswith(b"NSpid:"):
            last = line.split()[-1]
            return int(last) if last.isdigit() else tid
    return tid


def is_python(pid: int) -> bool:
    """Whether the process's program is a Python interpreter, going by its name; by what it was started as, where its
    program is hidden from us."""
    target = read_link(f"/proc/{pid}/exe")
    if target is None:
        target = (read_bytes(f"/proc/{pid}/cmdline", 4096) or b"").partition(b"\0")[0].decode("utf-8", "replace")
    return target.rpartition("/")[2].startswith(("python", "pypy"))


def is_stopped(pid: int) -> bool:
    """True if the process is stopped, or a stop waits for one of its threads to come out of the kernel."""
    found = stat(pid)
    if found is None or found.state in "ZX":
        return False
    pending = (read_bytes(f"/proc/{pid}/task/{thread.tid}/status", 16384) or b"" for thread in _threads(pid))
    return found.state == "T" or any(_STOP_PENDING & _status_mask(status) for status in pending)


def _threads(pid: int) -> Iterable[Thread]:
    try:
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 - as above
    except (OSError, ValueError):
        return
    tids.sort(key=lambda tid: tid != pid)
    for tid in tids[:_MAX_THREADS]:
        base = f"/proc/{pid}/task/{tid}"
        # The system call first: an attach of a debugger would change it.
        call = read_text(f"{base}/syscall", 512)
        data = read_bytes(f"{base}/stat", 4096)
        entry = parse_stat(data) if data else None
        if entry is None:
            continue
        status = read_bytes(f"{base}/status", 16384) or b""
        wchan = read_text(f"{base}/wchan", 128)
        yield Thread(
            tid=tid,
            name=entry.comm,
            state=entry.state,
            wchan=clean(wchan) if wchan and wchan != "0" else None,
            syscall=_syscall_words(call),
            cpu=entry.cpu,
            voluntary_switches=_status_number(status, b"voluntary_ctxt_switches"),
        )


def _syscall_words(text: str | None) -> str | None:
    """Number and arguments, without the stack and program pointers; 'running', or '-1' outside any call."""
    words = clean(text.strip()).split() if text else []
    return " ".join(words[:7] if len(words) >= 9 else words[:1]) or None


def _io(pid: int) -> tuple[int | None, int | None]:
    """(bytes read, bytes written) since the process began; None where that may not be read."""
    data = read_bytes(f"/proc/{pid}/io", 4096)
    if not data:
        return None, None
    return _status_number(data, b"rchar"), _status_number(data, b"wchar")


def _status_number(data: bytes, name: bytes) -> int:
    """The number after ``name:`` at the start of a line; 0 if there is none."""
    for line in data.splitlines():
        if line.startswith(name) and line[len(name) : len(name) + 1] == b":":
            word = line[len(name) + 1 :].strip()
            return int(word) if word.isdigit() else 0
    return 0


def _status_mask(data: bytes) -> int:
    """The signals that wait for the thread or its process, as one bit mask."""
    lines = [line.split() for line in data.splitlines() if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    return functools.reduce(operator.or_, (int(words[1], 16) for words in lines), 0)
