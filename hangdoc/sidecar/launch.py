"""Start the watched command as if hangdoc were not there.

The command keeps our stdin, stdout, stderr, terminal, inherited file descriptors, process group, working
directory, signal mask and argv. Two environment variables differ: ``PYTHONPATH`` and ``HANGDOC_PROBE``.
Only where the user asks for ``--logs``, stdout and stderr are files, and torchrun is told so by variables of its own.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hangdoc.errors import CannotRun, CommandNotFound, HangdocError, UsageError, WatcherFailed

PROBE_VARIABLE = "HANGDOC_PROBE"
SETTINGS_FILE = "record.json"
"""In the socket folder; the probe knows it by the same name."""
PROBE_PATH = Path(__file__).resolve().parent.parent / "probe"
"""The folder that makes ``import torch`` load the probe when it is on PYTHONPATH."""

_SHELL = "/bin/sh"
# The machine's fault, not the command's: nothing was run because no process could be made.
_NO_PROCESS = (errno.EAGAIN, errno.ENOMEM)


def find_executable(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """The file that ``command`` runs, searched like a shell does.

    Raises ``UsageError`` for an empty command, ``CommandNotFound`` and ``CannotRun`` like every shell.
    """
    if not command:
        raise UsageError("no command to watch", "write it after the options: hangdoc watch torchrun … train.py")
    name = command[0]
    search = environment.get("PATH", os.defpath)
    found = shutil.which(name, path=search) if name else None
    if found is not None:
        return found
    candidates = [Path(name)] if "/" in name else [Path(folder) / name for folder in search.split(os.pathsep)]
    existing = next((path for path in candidates if name and path.exists()), None)
    if existing is None:
        raise CommandNotFound(f"command not found: {name or '(empty)'}", "check the spelling, PATH and the environment")
    if existing.is_dir():
        raise CannotRun(f"cannot run {name}: it is a directory", "name the program or script to run")
    raise CannotRun(f"cannot run {name}: it is not executable", f"chmod +x {name}, or run it with its interpreter")


def child_environment(environment: Mapping[str, str], socket_folder: Path | None) -> dict[str, str]:
    """``environment`` with the probe's folder first on PYTHONPATH and the socket folder announced."""
    child = dict(environment)
    if socket_folder is None:
        return child
    probe = str(PROBE_PATH)
    rest = [entry for entry in child.get("PYTHONPATH", "").split(os.pathsep) if entry != probe]
    # An empty entry means the working directory to Python, but an empty variable means nothing at all.
    child["PYTHONPATH"] = os.pathsep.join([probe, *rest]) if rest != [""] else probe
    child[PROBE_VARIABLE] = str(socket_folder)
    return child


def spawn(
    command: Sequence[str],
    executable: str,
    environment: Mapping[str, str],
    mask: Iterable[int],
    outputs: Sequence[int] = (),
) -> int:
    """Start the command with signal mask ``mask`` and return its pid. ``outputs``: what replaces its stdout and stderr.

    Raises ``CannotRun``, ``CommandNotFound`` (a script's interpreter is missing) or ``WatcherFailed``.
    """
    try:
        return _spawn(executable, command, environment, mask, outputs)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            raise _explain(error, command[0]) from error
    # A script without a #! line: shells, env and timeout hand it to sh.
    try:
        return _spawn(_SHELL, [_SHELL, executable, *command[1:]], environment, mask, outputs)
    except OSError as error:
        raise _explain(error, command[0]) from error


def replace_ourselves(command: Sequence[str], executable: str, environment: Mapping[str, str]) -> HangdocError:
    """Become the command, unwatched. Returns only if that is impossible, with the reason."""
    # Python ignores SIGPIPE and SIGXFSZ for itself; an ignored signal would stay ignored in the command.
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(executable, list(command), dict(environment))  # noqa: S606 - the user's command
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            return _explain(error, command[0])
    try:
        os.execve(_SHELL, [_SHELL, executable, *command[1:]], dict(environment))  # noqa: S606
    except OSError as error:
        return _explain(error, command[0])


_IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)


def _spawn(
    executable: str,
    argv: Sequence[str],
    environment: Mapping[str, str],
    mask: Iterable[int],
    outputs: Sequence[int],
) -> int:
    return os.posix_spawn(
        executable,
        list(argv),
        dict(environment),
        file_actions=[(os.POSIX_SPAWN_DUP2, output, number) for number, output in enumerate(outputs, start=1)],
        setsigmask=list(mask),
        setsigdef=list(_IGNORED_BY_PYTHON),
    )


def _explain(error: OSError, name: str) -> HangdocError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    if error.errno in _NO_PROCESS:
        return WatcherFailed(f"cannot start a process for {name}: {reason}", "free memory or raise `ulimit -u`")
    if error.errno == errno.ENOENT:
        return CommandNotFound(
            f"cannot run {name}: its interpreter was not found", "check the first line of the script (#!…)"
        )
    return CannotRun(f"cannot run {name}: {reason}", "try to run it without hangdoc; it should fail the same way")
