"""What a blocked system call waits for: the file, who holds its other end, when it wakes.

It works from the raw words of /proc/PID/task/TID/syscall, so it must be read before anything attaches to
the process (an attach turns a timed wait into restart_syscall). Numbers: Linux x86_64 and aarch64 tables,
<asm/unistd.h>.
"""

from __future__ import annotations

import os
import platform
import stat
import struct
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from hangdoc.capture.read import procfs
from hangdoc.capture.read.stacks import is_lock_path
from hangdoc.capture.read.unix_sockets import unix_peers
from hangdoc.capture.safe.open_files import regular_file_below
from hangdoc.capture.safe.text import clean, read_link, read_text
from hangdoc.model.process import Frame, OpenFile, Thread

_X86_64 = {
    **{0: "read", 1: "write", 17: "pread64", 18: "pwrite64", 19: "readv", 20: "writev", 40: "sendfile"},
    **{2: "open", 257: "openat", 73: "flock", 72: "fcntl", 74: "fsync", 75: "fdatasync", 16: "ioctl"},
    **{7: "poll", 271: "ppoll", 23: "select", 270: "pselect6", 232: "epoll_wait", 281: "epoll_pwait"},
    **{
        42: "connect",
        43: "accept",
        288: "accept4",
        45: "recvfrom",
        47: "recvmsg",
        44: "sendto",
        46: "sendmsg",
    },
    **{61: "wait4", 247: "waitid", 35: "nanosleep", 230: "clock_nanosleep", 202: "futex"},
    **{4: "stat", 6: "lstat", 262: "newfstatat", 332: "statx"},
    **{12: "brk", 9: "mmap", 11: "munmap", 10: "mprotect", 25: "mremap", 28: "madvise"},
}
_AARCH64 = {
    **{63: "read", 64: "write", 67: "pread64", 68: "pwrite64", 65: "readv", 66: "writev", 71: "sendfile"},
    **{56: "openat", 32: "flock", 25: "fcntl", 82: "fsync", 83: "fdatasync", 29: "ioctl"},
    **{73: "ppoll", 72: "pselect6", 22: "epoll_pwait"},
    **{203: "connect", 202: "accept", 242: "accept4", 207: "recvfrom", 212: "recvmsg", 206: "sendto"},
    **{211: "sendmsg", 260: "wait4", 95: "waitid", 101: "nanosleep", 115: "clock_nanosleep", 98: "futex"},
    **{79: "newfstatat", 291: "statx"},
}
_CALLS = {"x86_64": _X86_64, "aarch64": _AARCH64}.get(platform.machine(), {})

_ON_DESCRIPTOR = {
    *("read", "write", "pread64", "pwrite64", "readv", "writev", "sendfile", "flock", "fsync", "fdatasync"),
    *("ioctl", "connect", "accept", "accept4", "recvfrom", "recvmsg", "sendto", "sendmsg"),
}
_WRITERS = {"write", "pwrite64", "writev", "sendfile", "sendto", "sendmsg"}
_ON_PATH = {"open": 0, "stat": 0, "lstat": 0, "openat": 1, "newfstatat": 1, "statx": 1}
_LOCK_COMMANDS = (7, 38)  # F_SETLKW, F_OFD_SETLKW
_MAX_DESCRIPTORS = 64
"""Of one poll, select or epoll. Judgement."""
_MAX_LOCKED = 8
"""Files of one process. Judgement."""


@dataclass(frozen=True, slots=True)
class Call:
    """A system call that a thread is in: its name ('' for one not in the table) and its six arguments."""

    name: str
    arguments: tuple[int, ...]


def parse_call(words: str | None) -> Call | None:
    """Parse ``Thread.syscall``; None where the thread is in no call or it could not be read."""
    parts = (words or "").split()
    try:
        if len(parts) < 7 or int(parts[0]) < 0:
            return None
        return Call(_CALLS.get(int(parts[0]), ""), tuple(int(word, 16) for word in parts[1:7]))
    except ValueError:
        return None


def wakes_in(pid: int, thread: Thread) -> float | None:
    """Seconds until the thread's timed wait ends at the latest; None: not timed or not readable.

    For a wait until a moment (time.sleep of Python >= 3.11, futex waits of glibc) exact, for a wait for a
    duration (older sleeps, poll, select) the whole duration: when it began is not visible.
    """
    call = parse_call(thread.syscall)
    if call is None:
        return None
    arguments = call.arguments
    if call.name == "clock_nanosleep":
        return _timeout(pid, arguments[2], arguments[0] if arguments[1] & 1 else None)
    if call.name == "nanosleep":
        return _timeout(pid, arguments[0], None)
    if call.name == "futex":
        return _futex_timeout(pid, arguments)
    if call.name in ("poll", "epoll_wait", "epoll_pwait"):
        milliseconds = arguments[2 if call.name == "poll" else 3] & 0xFFFFFFFF
        return milliseconds / 1000 if milliseconds < 1 << 31 else None
    if call.name in ("ppoll", "select", "pselect6"):
        pointer = arguments[2 if call.name == "ppoll" else 4]
        unit = 1e-6 if call.name == "select" else 1e-9
        return _timeout(pid, pointer, None, unit) if pointer else None
    return None


def _futex_timeout(pid: int, arguments: Sequence[int]) -> float | None:
    """Seconds until the wait ends. ``arguments`` of the call: address, operation, value, address of the timeout, …"""
    # futex(2): FUTEX_WAIT (0) waits for a duration, FUTEX_WAIT_BITSET (9) until a moment; 256 is FUTEX_CLOCK_REALTIME.
    operation = arguments[1] & 127
    if operation not in (0, 9) or not arguments[3]:
        return None
    clock = time.CLOCK_REALTIME if arguments[1] & 256 else time.CLOCK_MONOTONIC
    return _timeout(pid, arguments[3], clock if operation == 9 else None)


def blocking_files(pid: int, thread: Thread | None) -> tuple[OpenFile, ...]:
    """The files (the child, for a wait) that the thread's system call works on, without their peers."""
    call = parse_call(thread.syscall) if thread is not None else None
    if call is None:
        return ()
    if call.name in _ON_PATH:
        path = _path_at(pid, call.arguments[_ON_PATH[call.name]])
        return (OpenFile(-1, path, operation=call.name),) if path else ()
    if call.name in ("wait4", "waitid"):
        return _awaited(call)
    return tuple(
        OpenFile(fd, clean(target, 512), operation=call.name)
        for fd in _descriptors(pid, call)
        if (target := read_link(f"/proc/{pid}/fd/{fd}")) is not None
    )


def find_peers(
    wanted: Sequence[tuple[int, tuple[OpenFile, ...]]], first: Iterable[int], *, deadline: float = 0.25
) -> list[tuple[OpenFile, ...]]:
    """For each (pid, files): the files with the pids at the other end of pipes and AF_UNIX sockets, and the holders of
    locks.

    Looks through the processes ``first`` and then through all others it may read, for ``deadline`` seconds.
    """
    pipes = {file.target for pid, files in wanted for file in files if _is_pipe(pid, file)}
    ends = _other_ends({file.target for _, files in wanted for file in files if file.target.startswith("socket:[")})
    targets = {*pipes, *(f"socket:[{end}]" for end in ends.values())}
    holders = _holders(targets, first, time.monotonic() + deadline) if targets else []
    locking = any(file.is_locking for _, files in wanted for file in files)
    locks = (read_text("/proc/locks") or "") if locking else ""
    return [
        tuple(_with_peers(pid, _named(pid, file, ends, holders), holders, locks) for file in files)
        for pid, files in wanted
    ]


def _other_ends(targets: Collection[str]) -> dict[str, int]:
    """Target of each AF_UNIX socket ('socket:[77]') → inode of its other end."""
    peers = unix_peers() if targets else {}
    inodes = {target: int(target[8:-1]) for target in targets if target[8:-1].isdigit()}
    return {target: peers[inode] for target, inode in inodes.items() if peers.get(inode)}


def _named(pid: int, file: OpenFile, ends: Mapping[str, int], holders: Iterable[_Holder]) -> OpenFile:
    """An AF_UNIX socket with both its ends as name, 'socket:unix 77 to 78', and the other processes that have the
    second."""
    end = ends.get(file.target)
    if end is None:
        return file
    peers = {holder.pid for holder in holders if holder.target == f"socket:[{end}]"} - {pid}
    return replace(file, target=f"socket:unix {file.target[8:-1]} to {end}", peers=tuple(sorted(peers)))


def _with_peers(pid: int, file: OpenFile, holders: Iterable[_Holder], locks: str) -> OpenFile:
    peers = set(file.peers)
    if file.is_locking:
        peers.update(lock_holders(locks, pid))
    for holder in holders:
        if holder.target != file.target or holder.pid == pid:
            continue
        # A reader waits for writers and a writer for readers; an open of a FIFO waits for either.
        if file.operation in _WRITERS:
            opposite = holder.mode != os.O_WRONLY
        elif file.operation in _ON_PATH:
            opposite = True
        else:
            opposite = holder.mode != os.O_RDONLY
        if opposite:
            peers.add(holder.pid)
    return replace(file, peers=tuple(sorted(peers)))


def lock_holders(locks: str, pid: int) -> list[int]:
    """Pids that hold the lock for which ``pid`` waits, from the text of /proc/locks.

    A line ``7: -> FLOCK …`` is a waiter for the lock of the line ``7: FLOCK …``; -1 is an open file
    description without an owner and is left out.
    """
    waiting, holding = set(), {}
    for line in locks.splitlines():
        words = line.split()
        if len(words) >= 6 and words[1] == "->":
            if words[5] == str(pid):
                waiting.add(words[0])
        elif len(words) >= 5 and words[4].isdigit():
            holding[words[0]] = int(words[4])
    return [holding[number] for number in sorted(waiting) if number in holding]


def named_locks(pid: int, frames: Sequence[Frame]) -> tuple[OpenFile, ...]:
    """The lock files that are there, of those that the locals of the frames name: with their age and their holders."""
    names = (local.value for frame in frames for local in frame.locals if is_lock_path(local.value))
    found = []
    for path in list(dict.fromkeys(name[1:-1] for name in names))[:_MAX_LOCKED]:
        try:
            descriptor = regular_file_below(f"/proc/{pid}/root", path, start=f"/proc/{pid}/cwd")
        except (OSError, ValueError):
            continue
        try:
            status = os.fstat(descriptor)
        finally:
            os.close(descriptor)
        holders = _holders_of_inode(status.st_ino)
        found.append(OpenFile(-1, clean(path, 512), holders, "named", status.st_mtime))
    return tuple(found)


def _holders_of_inode(inode: int) -> tuple[int, ...]:
    """Pids that hold a lock on a file, by /proc/locks, which has the number of its inode."""
    lines = (line.split() for line in (read_text("/proc/locks") or "").splitlines())
    held = [words for words in lines if len(words) >= 6 and words[1] != "->" and words[4].isdigit()]
    return tuple(sorted({int(words[4]) for words in held if words[5].rpartition(":")[2] == str(inode)}))


def locked_files(pids: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The files on which each of the processes holds a lock; those without one are missing."""
    held: dict[int, set[str]] = {}
    for line in (read_text("/proc/locks") or "").splitlines():
        words = line.split()
        # 7: FLOCK ADVISORY WRITE 4711 fd:01:1234 0 EOF
        if len(words) >= 6 and words[4].isdigit() and int(words[4]) in pids:
            held.setdefault(int(words[4]), set()).add(words[5].rpartition(":")[2])
    found: dict[int, tuple[str, ...]] = {}
    for pid, inodes in held.items():
        paths = {path for fd in _open_descriptors(pid) if (path := _path_of(pid, fd, inodes)) is not None}
        if paths:
            found[pid] = tuple(sorted(paths))[:_MAX_LOCKED]
    return found


def _path_of(pid: int, fd: str, inodes: Collection[str]) -> str | None:
    link = f"/proc/{pid}/fd/{fd}"
    try:
        if str(os.stat(link).st_ino) not in inodes:  # noqa: PTH116 - one system call is all it is
            return None
    except OSError:
        return None
    target = read_link(link)
    return clean(target, 512) if target is not None and target.startswith("/") else None


@dataclass(frozen=True, slots=True)
class _Holder:
    """A process that has ``target`` open; ``mode`` is O_RDONLY, O_WRONLY or O_RDWR."""

    pid: int
    target: str
    mode: int


def _holders(targets: Collection[str], first: Iterable[int], deadline: float) -> list[_Holder]:
    found: list[_Holder] = []
    for pid in dict.fromkeys([*first, *sorted(procfs.table(), reverse=True)]):
        if time.monotonic() > deadline:
            break
        for fd in _open_descriptors(pid):
            target = read_link(f"/proc/{pid}/fd/{fd}")
            if target is not None and target in targets:
                found.append(_Holder(pid, clean(target, 512), _access_mode(pid, fd)))
    return found


def _open_descriptors(pid: int) -> list[str]:
    try:
        return os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208 - ten times cheaper than pathlib
    except OSError:
        return []


def _access_mode(pid: int, fd: str) -> int:
    for line in (read_text(f"/proc/{pid}/fdinfo/{fd}", 4096) or "").splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE
    return os.O_RDWR


def _is_pipe(pid: int, file: OpenFile) -> bool:
    path = f"/proc/{pid}/fd/{file.fd}" if file.fd >= 0 else f"/proc/{pid}/root{file.target}"
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)  # noqa: PTH116 - one system call is all it is
    except OSError:
        return False


def _descriptors(pid: int, call: Call) -> list[int]:
    first = call.arguments[0]
    if call.name in _ON_DESCRIPTOR or (call.name == "fcntl" and call.arguments[1] in _LOCK_COMMANDS):
        return [first]
    if call.name in ("poll", "ppoll"):
        data = _memory(pid, first, 8 * min(call.arguments[1], _MAX_DESCRIPTORS))
        return [fd for fd, _, _ in struct.iter_unpack("=ihh", data[: len(data) // 8 * 8]) if fd >= 0]
    if call.name in ("select", "pselect6"):
        return _selected(pid, first, call.arguments[1:4])
    if call.name in ("epoll_wait", "epoll_pwait"):
        lines = (read_text(f"/proc/{pid}/fdinfo/{first}", 1 << 16) or "").splitlines()
        return [int(line.split()[1]) for line in lines if line.startswith("tfd:")][:_MAX_DESCRIPTORS]
    return []


def _selected(pid: int, count: int, sets: Iterable[int]) -> list[int]:
    found: set[int] = set()
    for pointer in sets:
        bits = int.from_bytes(_memory(pid, pointer, (min(count, 1024) + 7) // 8), "little") if pointer else 0
        found.update(fd for fd in range(min(count, 1024)) if bits >> fd & 1)
    return sorted(found)[:_MAX_DESCRIPTORS]


def _awaited(call: Call) -> tuple[OpenFile, ...]:
    by_pid = call.name == "wait4" or call.arguments[0] == 1  # P_PID
    child = call.arguments[0 if call.name == "wait4" else 1] & 0xFFFFFFFF
    if not by_pid or not 0 < child < 1 << 31:
        return (OpenFile(-1, "any child", operation=call.name),)
    return (OpenFile(-1, f"process {child}", (child,), call.name),)


def _path_at(pid: int, pointer: int) -> str | None:
    raw = _memory(pid, pointer, 4096) or _memory(pid, pointer, 4096 - pointer % 4096)
    path, end, _ = raw.partition(b"\0")
    if not end or not path:
        return None
    text = path.decode("utf-8", "backslashreplace")
    if not text.startswith("/"):
        text = f"{read_link(f'/proc/{pid}/cwd') or '.'}/{text}"
    return clean(text, 512)


def _timeout(pid: int, pointer: int, clock: int | None, unit: float = 1e-9) -> float | None:
    """The timespec (timeval, by ``unit``) at ``pointer``: a moment on ``clock``, for None a duration."""
    raw = _memory(pid, pointer, 16)
    if len(raw) < 16:
        return None
    seconds, fraction = struct.unpack("=qq", raw)
    value = float(seconds + fraction * unit)
    if clock is not None:
        if clock not in (time.CLOCK_REALTIME, time.CLOCK_MONOTONIC, time.CLOCK_BOOTTIME):
            return None
        value -= time.clock_gettime(clock)
    return max(0.0, value)


def _memory(pid: int, address: int, size: int) -> bytes:
    """``size`` bytes of the process's memory; empty without the rights of a debugger."""
    try:
        fd = os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.pread(fd, size, address)
    except (OSError, OverflowError, ValueError):
        return b""
    finally:
        os.close(fd)
