"""Options from ``[tool.hangdoc]`` in pyproject.toml. The environment and the command line override them.

Only the nearest pyproject.toml is read, and only if no other user could have written it: another user's file above a
shared directory must not choose what hangdoc, perhaps run by root, overwrites or injects.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hangdoc.errors import UsageError
from hangdoc.model.durations import read_duration
from hangdoc.sidecar.options import MOST_ENTRIES, ON_HANG

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "stall_after": (int, float, str),
    "give_up_after": (int, float, str),
    "on_hang": str,
    "on_hang_exec": str,
    "run_dir": str,
    "report": (str, list),
    "quiet": bool,
    "no_source": bool,
    "meet": str,
    "meet_send_sources": bool,
    "record": str,
    "entries": int,
    "logs": bool,
    "json": bool,
    "save": str,
    "source": str,
    "inject": bool,
    "ask_dumps": bool,
    "keep": int,
    "color": str,
    "verbose": bool,
}
"""Every option that the table may contain, and the TOML types of its value."""

ONLY_BY_WATCH = frozenset({"on_hang", "on_hang_exec"})
NOT_BY_ATTACH = frozenset({"save", "report", "inject", "ask_dumps"}) | ONLY_BY_WATCH
"""Options that make hangdoc write, inject, end or run something. `attach`, often run by root, ignores them in the
file."""

_TABLE = "[tool.hangdoc]"
_NAME = "pyproject.toml"
_LARGEST_FILE = 1 << 20
"""Bytes. Judgement: a thousand times what a pyproject.toml has."""
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LEAST_SECONDS = 0.1
"""As the command line's options (``min`` in cli/watch.py)."""


def environment_variable(option: str) -> str:
    """The variable that sets ``option``: stall_after → HANGDOC_STALL_AFTER."""
    return f"HANGDOC_{option.upper()}"


def from_file(start: Path, warn: Callable[[str], None] | None = None) -> dict[str, Any]:
    """Options of the nearest pyproject.toml at or above ``start``, keyed by parameter name.

    ``warn`` is called with one line if that file has our table but may not be used. Raises ``UsageError`` for an
    unknown option or an impossible value. A file without our table is ignored, valid or not.
    """
    path, text, shut = _nearest(start)
    if "tool.hangdoc" not in text:
        return {}
    if shut:
        if warn is not None:
            warn(f"{_TABLE} of {path} is ignored: {shut}")
        return {}
    try:
        document = tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{path} is nested too deeply", f"correct it, or remove {_TABLE} from it") from None
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", f"correct it, or remove {_TABLE} from it") from error
    tool = document.get("tool")
    table = tool.get("hangdoc", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.hangdoc is not a table", f"write {_TABLE} and one option per line")
    return {key.replace("-", "_"): _checked(key, value, path) for key, value in table.items()}


def _checked(key: str, value: Any, path: Path) -> object:
    """The value of an option, as its parameter takes it. Raises ``UsageError``, which names the file ``path``."""
    name = key.replace("-", "_")
    expected = OPTIONS.get(name)
    if expected is None:
        known = ", ".join(sorted(option.replace("_", "-") for option in OPTIONS))
        raise UsageError(f"{path}: unknown option {key!r} in {_TABLE}", f"known are {known}")
    # bool is an int to Python, but 'quiet = 1' and 'stall-after = true' are mistakes.
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE} has the wrong type", "see hangdoc watch --help")
    if name in ("stall_after", "give_up_after") and isinstance(value, str):
        value = _seconds(key, value, path)
    if name == "keep" and value < 1:
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE}", "the least is 1 run")
    if name == "color" and value not in ("auto", "always", "never"):
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE}", "it is either auto, always or never")
    if isinstance(value, (int, float)) and expected is not bool and not value >= _LEAST_SECONDS:
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE}", f"the least is {_LEAST_SECONDS} seconds")
    if name == "on_hang" and value not in ON_HANG:
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE}", f"it is either {' or '.join(ON_HANG)}")
    if name == "entries" and isinstance(value, int) and value > MOST_ENTRIES:
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE}", f"the most is {MOST_ENTRIES}")
    return _reports(value, path) if name == "report" else value


def _seconds(key: str, value: str, path: Path) -> float:
    """'5m' → 300.0. A number in quotes is a mistake."""
    if not value.strip()[-1:].isalpha():
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE} has the wrong type", "write a number, or '5m'")
    try:
        return read_duration(value)
    except ValueError:
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE} is no duration", "write 90, '90s', '5m'") from None


def _reports(value: Any, path: Path) -> list[str]:
    """The files that ``report`` names: one, or a list of them. ``path``: of the table."""
    from hangdoc.report import check_suffix

    reports: list[Any] = value if isinstance(value, list) else [value]
    if not all(isinstance(report, str) for report in reports):
        raise UsageError(f"{path}: report in {_TABLE} wants file names", 'for example report = ["hang.json"]')
    for report in reports:
        check_suffix(report)
    return reports


def _nearest(start: Path) -> tuple[Path, str, str]:
    """(path of the nearest file, its text, the reason not to use it or '').

    Every folder from ``start`` up is opened from the one below it, so that none can be replaced meanwhile.
    """
    shut = ""
    folder = os.open(start, _FOLDER)
    try:
        for path in (start, *start.parents):
            shut = shut or _stranger(path, folder)
            try:
                if stat.S_ISREG(os.stat(_NAME, dir_fd=folder, follow_symlinks=False).st_mode):
                    text, also_shut = _read(path / _NAME, folder)
                    return path / _NAME, text, shut or also_shut
                return path / _NAME, _TABLE, f"{path / _NAME} is a link or no regular file"
            except FileNotFoundError:
                above = os.open("..", _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = above
    except OSError:  # a folder or file that we may not read configures nothing
        pass
    finally:
        os.close(folder)
    return start, "", ""


def _read(path: Path, folder: int) -> tuple[str, str]:
    """(the file's text, the reason not to use it or ''). ``folder``: a descriptor of the folder it is in."""
    with os.fdopen(os.open(_NAME, _FILE, dir_fd=folder), "rb") as file:
        shut = _stranger(path, file.fileno())
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            return "", shut
        data = file.read(_LARGEST_FILE + 1)
    if len(data) > _LARGEST_FILE:
        shut = shut or f"it has more than {_LARGEST_FILE} bytes"
    return data.decode("utf-8", "replace"), shut


def _stranger(path: Path, descriptor: int) -> str:
    """Why another user than root or us could have written the file or folder; '' if none could."""
    status = os.fstat(descriptor)
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to {_user(status.st_uid)}, and hangdoc runs as {_user(os.geteuid())}"
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and not _is_alone(status, descriptor)):
        return f"others may write to {path}"
    return ""


def _is_alone(status: os.stat_result, descriptor: int) -> bool:
    """True if the owner is the only member of the group: distributions with umask 002 give every user such a group."""
    try:
        owner, group = pwd.getpwuid(status.st_uid), grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    if owner.pw_gid != group.gr_gid or owner.pw_name != group.gr_name or not {*group.gr_mem} <= {owner.pw_name}:
        return False
    try:
        # With an access list, the group's bits are the mask of all its entries (acl(5)).
        os.getxattr(f"/proc/self/fd/{descriptor}", "system.posix_acl_access")
    except OSError:
        return True
    return False


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"user {number}"
