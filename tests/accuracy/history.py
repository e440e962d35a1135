"""When everything in the repository first appeared, from one pass over its history.

``git log`` is called once. A file that was renamed keeps the day of its first name, and a function that was moved from
one module to another in one commit the day on which it was first written.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

_BEGIN = "\x01"
"""Before each commit in what git prints."""
_WHAT = ("*.py", "*.toml", "*.hangdoc")
_DEFINITION = re.compile(r"\s*(?:async )?def (\w+)")
_ENTRY = re.compile(r"\[(\w+)\]$")
_TEXT = re.compile(r"""(?:name|pattern) = (["'])(?P<text>.*)\1$""")
_FILE = re.compile(r'file = "(.*)"$')
_QUOTED = re.compile(r'"([^"]*)"')


class Commit(NamedTuple):
    """``time``: of its author, in seconds."""

    hash: str
    time: int
    subject: str


@dataclass
class History:
    """Commits, the oldest first; a *place* is an index in them."""

    commits: list[Commit] = field(default_factory=list)
    first: dict[tuple[str, str], int] = field(default_factory=dict)
    """(path, thing in it) → the place of the commit that brought it. A thing is '' for the file itself, 'def NAME',
    or, of a table, '[NAME]', 'FILE:FUNCTION' of a landmark, or the text of an entry without a name."""
    added: defaultdict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Place → the files that the commit brought, by the names that they had."""
    now: dict[str, str] = field(default_factory=dict)
    """A file's first name → its last one, where it was renamed."""

    def of(self, path: str, thing: str = "") -> int | None:
        """The place where that appeared; None where the history does not show it."""
        return self.first.get((path, thing))


def history(root: Path) -> History | None:
    """The history of the checkout ``root``; None where there is none, or not all of it (a shallow clone, an sdist)."""
    try:
        if _git(root, "rev-parse", "--is-shallow-repository", "--show-prefix").split("\n") != ["false", "", ""]:
            return None
        log = _git(
            root,
            "log",
            "--reverse",
            "--date-order",
            "--diff-merges=first-parent",
            "-M",
            "-p",
            "-U1",
            f"--format={_BEGIN}%h %at %s",
            "--",
            *_WHAT,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return read_history(log.split("\n"))


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "-c", "core.quotepath=off", "-C", str(root), *arguments]
    answer = subprocess.run(command, capture_output=True, check=True, timeout=120, stdin=subprocess.DEVNULL)
    return answer.stdout.decode("utf-8", "replace")


def read_history(log: Iterable[str]) -> History:
    """The history that ``git log --reverse -M -p -U1`` printed."""
    found = History()
    lines: list[str] = []
    for line in log:
        if line.startswith(_BEGIN):
            _take(found, lines)
            lines = []
            name, time, subject = line[1:].split(" ", 2)
            found.commits.append(Commit(name, int(time), subject))
        else:
            lines.append(line)
    _take(found, lines)
    return found


def _take(found: History, lines: list[str]) -> None:
    """One commit's changes into ``found``."""
    place = len(found.commits) - 1
    path, in_hunk, named = "", False, ""
    came: list[tuple[str, str]] = []
    went: defaultdict[str, list[str]] = defaultdict(list)
    for line in lines:
        if line.startswith("diff --git "):
            path, in_hunk, named = line.rpartition(" b/")[2], False, ""
        elif line.startswith("@@ "):
            in_hunk = True
        elif in_hunk:
            file = _FILE.match(line[1:])
            named = file[1] if file else named
            for thing in things(line[1:], path, named):
                if line.startswith("+"):
                    came.append((path, thing))
                elif line.startswith("-"):
                    went[thing].append(path)
        elif line.startswith("new file"):
            came.append((path, ""))
            found.added[place].add(path)
        elif line.startswith("rename from "):
            _rename(found, line.removeprefix("rename from "), path)
    for path, thing in came:
        moved = [found.first[each, thing] for each in went[thing] if thing and (each, thing) in found.first]
        found.first.setdefault((path, thing), min(moved, default=place))


def things(line: str, path: str, named: str = "") -> Iterator[str]:
    """What a line of that file brings. ``named``: the last ``file = "…"`` of the table before it.

    Example: 'def left_turn(case: Case) -> None:' → 'def left_turn'; 'function = ["rendezvous"]' below
    'file = "torch/a.py"' → 'torch/a.py:rendezvous'.
    """
    if path.endswith(".py"):
        if definition := _DEFINITION.match(line):
            yield f"def {definition[1]}"
    elif path.endswith(".toml"):
        if entry := _ENTRY.match(line):
            yield f"[{entry[1]}]"
        elif line.startswith("function = "):
            yield from (f"{named}:{function}" for function in _QUOTED.findall(line))
        elif text := _TEXT.match(line):
            yield text["text"]


def _rename(found: History, before: str, after: str) -> None:
    """All that is in a file goes with it under its new name."""
    for (path, thing), place in [*found.first.items()]:
        if path == before:
            found.first.setdefault((after, thing), place)
    origin = next((first for first, last in found.now.items() if last == before), before)
    found.now[origin] = after
