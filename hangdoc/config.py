"""Options from ``[tool.hangdoc]`` in pyproject.toml. The environment and the command line beat it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hangdoc.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OPTIONS: Mapping[str, type | tuple[type, ...]] = {
    "stall_after": (int, float),
    "give_up_after": (int, float),
    "on_hang": str,
    "run_dir": str,
    "report": (str, list),
    "quiet": bool,
    "no_source": bool,
    "json": bool,
    "save": str,
    "inject": bool,
}
"""Every option that may stand in the table, and the TOML types of its value."""

_TABLE = "[tool.hangdoc]"
_LARGEST_FILE = 1 << 20


def environment_variable(option: str) -> str:
    """The variable that sets ``option``: stall_after → HANGDOC_STALL_AFTER."""
    return f"HANGDOC_{option.upper()}"


def from_file(start: Path) -> dict[str, Any]:
    """Options of the nearest pyproject.toml at or above ``start``, keyed by parameter name.

    Raises ``UsageError`` for an unknown option or a wrong type. A file without our table is none of our
    business, valid or not.
    """
    path = next((folder / "pyproject.toml" for folder in (start, *start.parents) if _is_file(folder)), None)
    text = _read(path) if path is not None else ""
    if "tool.hangdoc" not in text:
        return {}
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path} is not valid TOML: {error}", f"correct it, or remove {_TABLE} from it") from error
    tool = document.get("tool")
    table = tool.get("hangdoc", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise UsageError(f"{path}: tool.hangdoc is not a table", f"write {_TABLE} and one option per line")
    return {key.replace("-", "_"): _checked(key, value, path) for key, value in table.items()}


def _checked(key: str, value: object, path: Path | None) -> object:
    name = key.replace("-", "_")
    expected = OPTIONS.get(name)
    if expected is None:
        known = ", ".join(sorted(option.replace("_", "-") for option in OPTIONS))
        raise UsageError(f"{path}: unknown option {key!r} in {_TABLE}", f"known are {known}")
    # bool is an int to Python, but 'quiet = 1' and 'stall-after = true' are mistakes.
    if not isinstance(value, expected) or (isinstance(value, bool) and expected is not bool):
        raise UsageError(f"{path}: {key} = {value!r} in {_TABLE} has the wrong type", "see hangdoc watch --help")
    if name == "report":
        reports = value if isinstance(value, list) else [value]
        if not all(isinstance(report, str) for report in reports):
            raise UsageError(f"{path}: {key} in {_TABLE} wants file names", 'for example report = ["hang.json"]')
        return reports
    return value


def _is_file(folder: Path) -> bool:
    try:
        return (folder / "pyproject.toml").is_file()
    except OSError:
        return False


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_LARGEST_FILE)
    except OSError:
        return ""
