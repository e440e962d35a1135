"""Files that a job names, opened so that none of them can do harm: a device, a FIFO or a link in the wrong place.

A path is walked with O_PATH, which opens nothing: no device acts, no FIFO blocks. The type of what is found is checked
first, and only a regular file is then opened, by its descriptor and not by its name.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import stat
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from hangdoc.capture.safe.text import read_bytes

_T = TypeVar("_T")
_MOST_LINKS = 40
"""As the kernel (path_resolution(7))."""
_MOST_PARTS = 512
"""Folders that are open at once during a walk: half of the usual limit for a process. Judgement."""
_LOOK_ONLY = os.O_PATH | os.O_CLOEXEC
# <asm/unistd.h>. The C library's setgroups would change every thread of ours, the system call changes one.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())


@dataclass(frozen=True, slots=True)
class User:
    """The identity with which a process opens files: its file system user and group, and its other groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def user_of(pid: int) -> User | None:
    """The identity with which the process opens files; None if it is gone."""
    return _user(f"/proc/{pid}/status")


def regular_file(path: str, *, identity: tuple[int, int] | None = None) -> int:
    """A descriptor for reading the regular file at ``path``, which is no link; with ``identity`` (device and inode)
    only if it is that very file. Raises OSError.
    """
    found = os.open(path, _LOOK_ONLY | os.O_NOFOLLOW)
    try:
        status = os.fstat(found)
        if identity is not None and (status.st_dev, status.st_ino) != identity:
            raise OSError(errno.ESTALE, "another file by now", path)
        return _opened(found, status)
    finally:
        os.close(found)


def regular_file_below(root: str, path: str, *, start: str = "") -> int:
    """A descriptor for reading the regular file that ``path`` is to a process with this root and working folder.

    Links are followed as that process would: an absolute one begins at ``root``, and nothing leads out of it.
    ``start``: where a relative path begins, if not at ``root``. Raises OSError; NotADirectoryError if the path goes on
    below a file.
    """
    with _walked(root, path, start) as found:
        return _opened(found, os.fstat(found))


def mode_below(root: str, path: str, *, start: str = "") -> int:
    """The type and mode (``st_mode``) of what ``path`` is to such a process; nothing is opened. Raises OSError."""
    with _walked(root, path, start) as found:
        return os.fstat(found).st_mode


@contextlib.contextmanager
def _walked(root: str, path: str, start: str) -> Iterator[int]:
    """A descriptor (O_PATH) of what ``path`` leads to, as ``regular_file_below`` says."""
    top = os.open(root, _LOOK_ONLY | os.O_DIRECTORY)
    stack: list[int] = []
    """The folders from the start down to where the walk has come."""
    try:
        stack.append(os.open(start if start and not path.startswith("/") else root, _LOOK_ONLY | os.O_DIRECTORY))
        parts = deque(_parts(path))
        links = 0
        while parts:
            part = parts.popleft()
            if part == "..":
                _up(stack, top)
                continue
            if len(stack) > _MOST_PARTS:
                raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
            found = os.open(part, _LOOK_ONLY | os.O_NOFOLLOW, dir_fd=stack[-1])
            stack.append(found)
            if not stat.S_ISLNK(os.fstat(found).st_mode):
                continue
            links += 1
            if links > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            target = os.readlink("", dir_fd=found)
            os.close(stack.pop())
            if target.startswith("/"):
                while stack:
                    os.close(stack.pop())
                stack.append(os.dup(top))
            parts.extendleft(reversed(_parts(target)))
        yield stack[-1]
    finally:
        for descriptor in (top, *stack):
            os.close(descriptor)


def _up(stack: list[int], top: int) -> None:
    """One folder up, at most to the top."""
    if len(stack) == 1 and not os.path.samestat(os.fstat(stack[0]), os.fstat(top)):
        stack.insert(0, os.open("..", _LOOK_ONLY | os.O_DIRECTORY, dir_fd=stack[0]))
    if len(stack) > 1:
        os.close(stack.pop())


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _opened(descriptor: int, status: os.stat_result) -> int:
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
    # Not by its name, which may be another file's by now.
    return os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)


def as_user(user: User, what: Callable[[], _T]) -> _T:
    """What ``what`` returns, where the kernel lets it open only the files that ``user`` may open.

    For root it runs in a thread of its own that takes on the user's identity for files and so loses root's rights over
    files (setfsuid(2)). Raises PermissionError if that is not possible, and what ``what`` raises.
    """
    if user.uid == os.geteuid():
        return what()

    def taken_on() -> _T:
        _become(user)
        return what()

    with ThreadPoolExecutor(1, thread_name_prefix="as-user") as thread:
        return thread.submit(taken_on).result()


def _become(user: User) -> None:
    """Take on the user's identity in this thread alone, for good. Raises PermissionError."""
    with contextlib.suppress(AttributeError, OSError, ValueError):
        library = ctypes.CDLL(None, use_errno=True)
        groups = (ctypes.c_uint32 * len(user.groups))(*user.groups)
        if _SETGROUPS is not None:
            library.syscall(ctypes.c_long(_SETGROUPS), ctypes.c_size_t(len(user.groups)), groups)
        library.setfsgid(ctypes.c_uint32(user.gid))
        library.setfsuid(ctypes.c_uint32(user.uid))
    # None of the three calls reports whether it worked.
    now = _user("/proc/thread-self/status")
    if now is None or (now.uid, now.gid, set(now.groups)) != (user.uid, user.gid, set(user.groups)):
        raise PermissionError(errno.EPERM, "cannot see files as the job's user does")


def _user(status: str) -> User | None:
    fields: dict[bytes, list[bytes]] = {}
    for line in (read_bytes(status, 1 << 20) or b"").splitlines():
        name, _, words = line.partition(b":")
        fields[name] = words.split()
    try:
        # The fourth number of each line is the one for files.
        return User(int(fields[b"Uid"][3]), int(fields[b"Gid"][3]), tuple(map(int, fields[b"Groups"])))
    except (KeyError, IndexError, ValueError):
        return None
