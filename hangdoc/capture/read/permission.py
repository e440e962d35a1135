"""May we look into that process? If not, which rule forbids it, and the one line that helps.

The kernel's rules (ptrace(2), "Ptrace access mode checking"; Documentation/admin-guide/LSM/Yama.rst): the same user and
no more capabilities than ours, or CAP_SYS_PTRACE in its user namespace; then Yama's rule, on kernels with Yama.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass
from pathlib import Path

from hangdoc.capture.read import procfs
from hangdoc.capture.read.ptrace_safety import shut
from hangdoc.capture.safe.advice import as_root
from hangdoc.capture.safe.text import read_link, read_text
from hangdoc.model.snapshot import Unavailable

_CAP_SYS_PTRACE = 19
# <linux/proc_ns.h>: the inodes of the first namespaces.
_FIRST = {"pid": "pid:[4026531836]", "user": "user:[4026531837]"}
_CAPABILITY_REMEDY = (
    "give the container the capability: docker run --cap-add SYS_PTRACE, or securityContext.capabilities.add in"
    " Kubernetes"
)


@dataclass(frozen=True, slots=True)
class Powers:
    """What this process may do. ``yama``: ptrace_scope, None where there is no Yama."""

    user: int
    sys_ptrace: bool
    yama: int | None
    contained: tuple[str, ...]
    """The kinds of namespaces ('pid', 'user') that are not the machine's first."""


def own_powers(proc: Path = Path("/proc")) -> Powers:
    """Read from /proc."""
    scope = (read_text(str(proc / "sys/kernel/yama/ptrace_scope"), 16) or "").strip()
    links = {kind: read_link(str(proc / f"self/ns/{kind}")) for kind in _FIRST}
    return Powers(
        user=os.geteuid(),
        sys_ptrace=bool(_capabilities(proc / "self", "CapEff") >> _CAP_SYS_PTRACE & 1),
        yama=int(scope) if scope.isdigit() else None,
        contained=tuple(kind for kind, first in _FIRST.items() if links[kind] not in (None, first)),
    )


def forbidden(pid: int, powers: Powers | None = None) -> Unavailable | None:
    """What forbids looking into the process; None: it may be done. Changes nothing."""
    try:
        # The kernel asks here exactly what it asks before a ptrace attach.
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except (FileNotFoundError, ProcessLookupError):
        return shut("the process is gone")
    except PermissionError:
        return explain(pid, powers or own_powers())
    except OSError as error:
        return shut(f"the process may not be read: {error.strerror}")
    return None


def explain(pid: int, powers: Powers, proc: Path = Path("/proc")) -> Unavailable:
    """Which rule forbids looking into the process, in the order in which the kernel applies them."""
    folder = proc / str(pid)
    owner = _owner(folder)
    if owner is None:
        return shut("the process is gone")
    if not powers.sys_ptrace and owner != powers.user:
        return shut(
            f"it belongs to user {_name(owner)}, and hangdoc runs as {_name(powers.user)} without CAP_SYS_PTRACE",
            _CAPABILITY_REMEDY if powers.user == 0 else f"run hangdoc as that user, or {as_root()}",
        )
    by_yama = _forbidden_by_yama(pid, powers)
    if by_yama is not None:
        return by_yama
    own, its = read_link(str(proc / "self/ns/user")), read_link(str(folder / "ns/user"))
    if its is not None and own != its:
        return shut("it lives in another user namespace (a container)", "run hangdoc inside that container, or as root")
    if _capabilities(folder, "CapPrm") & ~_capabilities(proc / "self", "CapEff"):
        remedy = _CAPABILITY_REMEDY if powers.user == 0 else as_root()
        return shut("it has capabilities that hangdoc lacks, and hangdoc has no CAP_SYS_PTRACE", remedy)
    return shut(
        "the kernel forbids it (the process is not dumpable, or a security module or seccomp forbids ptrace)",
        f"{as_root()}; in a container allow ptrace (--cap-add SYS_PTRACE, --security-opt seccomp=unconfined)",
    )


def _forbidden_by_yama(pid: int, powers: Powers) -> Unavailable | None:
    if powers.yama == 3:
        return shut("Yama forbids it to everybody (ptrace_scope 3)", "only a reboot with another setting changes that")
    if powers.yama == 2 and not powers.sys_ptrace:
        return shut("Yama allows it to administrators only (ptrace_scope 2)", as_root())
    if powers.yama == 1 and not powers.sys_ptrace and not _descends(pid):
        return shut(
            "Yama allows it to a process's ancestors only (ptrace_scope 1)",
            f"{as_root()}; or sudo sysctl kernel.yama.ptrace_scope=0",
        )
    return None


def _capabilities(folder: Path, name: str) -> int:
    word = _status(folder, name)
    return int(word, 16) if word else 0


def _owner(folder: Path) -> int | None:
    word = _status(folder, "Uid")
    return int(word) if word else None


def _status(folder: Path, name: str) -> str | None:
    """The first word after ``name:`` in a status file."""
    for line in (read_text(str(folder / "status"), 16384) or "").splitlines():
        if line.startswith(f"{name}:"):
            return line.split()[1]
    return None


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)


def _descends(pid: int) -> bool:
    """True if the process is a descendant of ours."""
    while pid > 1:
        found = procfs.stat(pid)
        if found is None:
            return False
        pid = found.ppid
        if pid == os.getpid():
            return True
    return False
