"""The saved cases: what is expected of each, and what is pinned.

The cases lie in one folder per expected cause, those without a cause in ``tests/data/unnamed``. In such a folder, for
example ``tests/data/HD101``:

- ``NAME.hangdoc``: the snapshot of a case.
- ``expected.json``, the *expectations*: what a person says is right, one line a case. A row holds what is compared with
  the diagnosis (``COMPARED``) and may hold more. Written by hand; no command overwrites one. With
  ``"expected_failure": "why"`` it is not met yet, strictly: once it is, the test fails until somebody takes the mark
  out. What else a row may hold, ``fault_of`` checks:

  - ``condition``: what parted the ranks, in the words of somebody who has read the program without having seen what
    hangdoc says. ``null``: nothing did (they wait in a circle, have never met, one was killed, …). Else ``form``:
    "predicate", a branch whose outcome differs, or "value", a value that differs, where it is defined; ``at``: the
    places, "train.py:34", each of which is right as the first answer (any line of the statement); ``text``: its source;
    and perhaps ``also``: places that may be told as a part of the chain.
  - ``reviewed``: true beside every ``condition``. A row without it has not been reviewed, and its condition is unknown.
  - ``origin``: where its program comes from, as ``tests/accuracy/origins.py`` derives it from the history:
    "scenario", "practice" (written beside hangdoc), "held-out 7" (a set of strangers' programs; "held-out 6/7": of one
    of these, which came in one commit), "dumps", "logs", "unknown".

- ``pins.json`` and ``NAME.txt``, the *pins*: all other facts of the diagnosis document of each case, and the whole
  report of some as a terminal shows it. They hold what the code says now, right or not, so that a change of the code
  shows what it changes. ``python tests/add_case.py --update`` writes them.

A report pins each word, and a hundred of a kind pin no more than one. So at most ``TEXTS`` cases have one, those with a
``NAME.txt``. They were chosen greedily, each next one for what no earlier one had: of the ``features`` of its facts and
the lines of ``hangdoc/report`` that it ran (all of which one of them has) before the functions and lines of
``hangdoc/diagnosis/causes``.
``tests/unit/test_cases.py`` demands that every feature has a report that shows it.
"""

from __future__ import annotations

import contextlib
import copy
import fcntl
import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hangdoc import api
from hangdoc.errors import UsageError
from hangdoc.model.codec import write_atomically
from hangdoc.model.document import diagnosis_document
from hangdoc.report.terminal import render

DATA = Path(__file__).parent / "data"
EXPECTED, PINNED = "expected.json", "pins.json"
COMPARED = ("outcome", "cause", "culprits", "lines")
"""What of an expectation the diagnosis is compared with."""
FORMS = ("predicate", "value")
_PLACE = re.compile(r"[^/\s:]+:[1-9]\d*")
_ORIGIN = re.compile(r"scenario|practice|held-out [1-9]\d*(/[1-9]\d*)*|dumps|logs|unknown")
TEXTS = 120
"""The most cases that have their whole report pinned."""
WIDTH = 100
"""Columns of the pinned reports."""
ELSEWHERE = {"COLUMNS": "60", "TZ": "Asia/Tokyo", "LC_ALL": "C", "TERM": "dumb", "NO_COLOR": "1", "HOME": "/"}
"""What the environment of another machine may hold."""


class Result(NamedTuple):
    """What the code says of a case: the diagnosis document, and the report without colours."""

    document: dict[str, Any]
    text: str


def case(name: str, folder: Path = DATA) -> Path:
    """The snapshot of a case; the rest of it lies in the same folder. Names are unique across the folders."""
    (path,) = folder.glob(f"*/{name}.hangdoc")
    return path


def row(name: str, folder: Path = DATA) -> dict[str, Any]:
    """All that a person says of a case."""
    path = case(name, folder).with_name(EXPECTED)
    if name not in table(path):
        raise UsageError(f"{path} has no row of {name}", "A case needs a person's word: add the line there.")
    return copy.deepcopy(table(path)[name])


def persons_word(name: str, folder: Path = DATA) -> tuple[dict[str, Any], str]:
    """(what the diagnosis of a case must say, why the code does not say it yet: '' where it must)."""
    whole = row(name, folder)
    return {key: whole[key] for key in COMPARED if key in whole}, whole.get("expected_failure", "")


def fault_of(row: Mapping[str, Any]) -> str:
    """What is wrong with the form of a row; '' if nothing is."""
    if unknown := set(row) - {*COMPARED, "expected_failure", "condition", "reviewed", "origin"}:
        return f"unknown: {', '.join(sorted(unknown))}"
    if "origin" in row and not _ORIGIN.fullmatch(row["origin"]):
        return f"no origin: {row['origin']}"
    if ("condition" in row) != (row.get("reviewed") is True):
        return "a condition and reviewed: true stand beside each other"
    condition = row.get("condition")
    if condition is None:
        return ""
    if not {"form", "at", "text"} <= set(condition) <= {"form", "at", "text", "also"} or condition["form"] not in FORMS:
        return f"a condition has form ({' or '.join(FORMS)}), at, text and perhaps also"
    places = [*condition["at"], *condition.get("also", ())]
    if not condition["at"] or not condition["text"] or not all(map(_PLACE.fullmatch, places)):
        return "a condition has its text and places such as train.py:34"
    return "" if len(set(places)) == len(places) else "a place stands there twice"


def write_rows(rows: Mapping[str, dict[str, Any] | None], folder: Path = DATA) -> None:
    """Write what a person says of these cases into the tables beside their snapshots; None takes a row out."""
    places = {name: case(name, folder).parent for name in rows}
    for place in set(places.values()):
        change_table(place / EXPECTED, {name: rows[name] for name in rows if places[name] == place})


def table(path: Path) -> dict[str, Any]:
    """The rows of ``expected.json`` or ``pins.json`` by the name of the case: none without a file. To be read only."""
    try:
        seen = path.stat()
    except FileNotFoundError:
        return {}
    return _read(path, (seen.st_ino, seen.st_mtime_ns, seen.st_size))


@functools.lru_cache(maxsize=128)
def _read(path: Path, version: tuple[int, ...]) -> dict[str, Any]:
    rows: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return rows


def change_table(path: Path, changes: Mapping[str, dict[str, Any] | None]) -> bool:
    """Put these rows into a table and take out those that are None; whether that changed the file.

    Of several that change the tables of a folder, one waits for the other.
    """
    with _alone(path.parent):
        before = path.read_text(encoding="utf-8") if path.exists() else ""
        rows = {**dict.fromkeys(changes), **table(path)}
        if path.name == PINNED and all(rows[name] == new for name, new in changes.items()):
            return False  # most of an update: no need to lay out what others have in there
        rows |= changes
        after = laid_out({name: row for name, row in rows.items() if row is not None}, path.name)
        if after and after != before:
            write_atomically(path, after.encode())
        elif not after:
            path.unlink(missing_ok=True)
        return after != before


def laid_out(rows: Mapping[str, dict[str, Any]], kind: str) -> str:
    """The text of a table: an expectation takes one line, and so does whatever fits of the pinned facts."""
    line = json.dumps if kind == EXPECTED else functools.partial(_laid_out, indent=2)
    lines = ",\n".join(f"  {json.dumps(name)}: {line(rows[name])}" for name in sorted(rows))
    return f"{{\n{lines}\n}}\n" if rows else ""


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def home(expected: dict[str, Any], folder: Path = DATA) -> Path:
    """The folder of a case with that expectation."""
    return folder / (expected["cause"] or "unnamed")


def names(folder: Path = DATA) -> list[str]:
    """The names of the saved cases."""
    return sorted(path.stem for path in folder.glob("*/*.hangdoc"))


@functools.cache
def diagnosed(name: str, folder: Path = DATA) -> Result:
    """The diagnosis of a saved case, made once in a process."""
    diagnosis = api.diagnose(case(name, folder))
    return Result(diagnosis_document(diagnosis), render(diagnosis, width=WIDTH))


def expectation(document: dict[str, Any]) -> dict[str, Any]:
    """What a person reviews. ``lines`` are those of the sides and of the culprits' innermost user frames."""
    sides = (document["divergence"] or {"sides": ()})["sides"]
    frames = [side["frame"] for side in sides]
    frames += [rank["where"] for rank in document["ranks"] if rank["rank"] in document["culprits"]]
    return {
        "outcome": document["outcome"],
        "cause": document["cause"] and document["cause"]["code"],
        "culprits": document["culprits"],
        "lines": sorted({f"{Path(frame['file']).name}:{frame['line']}" for frame in frames if frame}),
    }


def facts(document: dict[str, Any]) -> dict[str, Any]:
    """A diagnosis document without its sentences: two that differ in their wording only have equal facts.

    Left out are ``verdict``, ``why``, ``fix``, ``sure``, the texts of ranks, evidence and repair, the notes of sides,
    the reasons of what was unavailable and the title of the cause. A frame is one word: "/job/train.py:7 main".
    """
    document = copy.deepcopy(document)
    cause, repair, divergence = document["cause"], document["repair"], document["divergence"]
    return {
        "outcome": document["outcome"],
        "cause": cause and f"{cause['code']} {cause['name']}",
        "confidence": document["confidence"],
        "culprits": document["culprits"],
        "alternatives": document["alternatives"],
        "culprit_processes": document["culprit_processes"],
        "victims": document["victims"],
        "repair": repair
        and [
            {
                "rank": edit["rank"],
                "edit": edit["edit"],
                "call": _operation(edit["call"]),
                "frame": _frame(edit["frame"]),
            }
            for edit in repair["edits"]
        ],
        "divergence": divergence
        and {"sides": [_side(side) for side in divergence["sides"]], "branch": _branch(divergence["branch"])},
        "ranks": [
            {
                "rank": rank["rank"],
                "host": rank["host"],
                "pid": rank["pid"],
                "activity": rank["activity"],
                "where": _frame(rank["where"]),
                "waits_for": rank["waits_for"],
            }
            for rank in document["ranks"]
        ],
        "evidence": [{"kind": item["kind"], "ranks": item["ranks"]} for item in document["evidence"]],
        "unavailable": [{"rank": item["rank"], "what": item["what"]} for item in document["unavailable"]],
        "command": document["command"],
        "stalled_for": document["stalled_for"],
        "world_size": document["world_size"],
    }


def _side(side: dict[str, Any]) -> dict[str, Any]:
    return {
        "ranks": side["ranks"],
        "group": side["group"],
        "sequence": side["sequence"],
        "thread": side["thread"],
        "op": _operation(side["op"]),
        "frame": _frame(side["frame"]),
        "stack": [_frame(frame) for frame in side["stack"]],
    }


def _operation(text: str) -> str | None:
    """``all_reduce`` and the like. Where no operation is known, words describe what happened: no fact."""
    return text if text.isidentifier() else None


def _frame(frame: dict[str, Any] | None) -> str | None:
    return frame and f"{frame['file']}:{frame['line']} {frame['function']}"


def _branch(branch: dict[str, Any] | None) -> dict[str, Any] | None:
    """Most conditions ask no function: they are pinned without a list of answers."""
    return branch and {name: value for name, value in branch.items() if name != "answers" or value}


def features(pinned: dict[str, Any]) -> set[str]:
    """What kinds of facts there are: each of them has its part of a report, or its words."""
    divergence = pinned["divergence"] or {"sides": [], "branch": None}
    branch = divergence["branch"] or {"kind": "none", "values": []}
    lists = ("culprits", "alternatives", "culprit_processes", "victims")
    hosts = {rank["host"] for rank in pinned["ranks"]}
    return {
        f"outcome: {pinned['outcome']}",
        f"cause: {pinned['cause']}",
        f"confidence: {pinned['confidence']}",
        f"hosts: {min(len(hosts), 2)}",
        f"ranks: {next((size for size in (1, 2, 8, 16) if len(pinned['ranks']) <= size), 'more')}",
        f"sides: {min(len(divergence['sides']), 4)}",
        f"branch: {branch['kind']}",
        f"values: {bool(branch['values'])}",
        f"command: {bool(pinned['command'])}",
        *(f"{name}: {min(len(pinned[name]), 2)}" for name in lists),
        *(f"role: {process['role']}" for process in pinned["culprit_processes"]),
        *(f"value: {value['seen']}" for value in branch["values"]),
        *(f"answers: {name}" for name in branch if name == "answers"),
        *(f"repair: {edit['edit']}" for edit in pinned["repair"] or ()),
        *(f"operation: {side['op'] is not None}" for side in divergence["sides"]),
        *(f"activity: {rank['activity']}" for rank in pinned["ranks"]),
        *(f"evidence: {item['kind']}" for item in pinned["evidence"]),
    }


def text_path(name: str, folder: Path = DATA) -> Path:
    """Where a case's whole report is pinned, if it is."""
    return case(name, folder).with_suffix(".txt")


def with_text(folder: Path = DATA) -> list[str]:
    """The names of the cases whose whole report is pinned."""
    return sorted(path.stem for path in folder.glob("*/*.txt"))


def pinned(name: str, folder: Path = DATA) -> dict[str, str]:
    """What is pinned of a case: ``facts``, and ``report`` where it is. Facts are laid out for a diff."""
    path = case(name, folder)
    found = {"facts": _laid_out(table(path.parent / PINNED).get(name))}
    if path.with_suffix(".txt").exists():
        found["report"] = path.with_suffix(".txt").read_text(encoding="utf-8")
    return found


def unlike_pinned(name: str, result: Result, folder: Path = DATA) -> dict[str, tuple[str, str]]:
    """(pinned, now) of each of a case's pins that differs from ``result``, by its name."""
    now = {"facts": _laid_out(facts(result.document)), "report": result.text}
    return {kind: (text, now[kind]) for kind, text in pinned(name, folder).items() if text != now[kind]}


def _laid_out(value: Any, indent: int = 0) -> str:
    """``value`` as JSON in which whatever fits takes one line, so that a diff shows whole ranks, frames and sides."""
    line = json.dumps(value)
    if not isinstance(value, (dict, list)) or indent + len(line) < 160:
        return line
    margin = " " * (indent + 2)
    if isinstance(value, list):
        items, (start, end) = [_laid_out(item, indent + 2) for item in value], "[]"
    else:
        items = [f"{json.dumps(key)}: {_laid_out(item, indent + 2)}" for key, item in value.items()]
        start, end = "{}"
    return "\n".join([start, ",\n".join(margin + item for item in items), " " * indent + end])
