"""The saved cases: what is expected of each, and what is pinned.

The cases lie in one folder per expected cause, those without a cause in ``tests/data/unnamed``. Four files that lie
beside each other make a case, for example in ``tests/data/HD101``:

- ``NAME.hangdoc``: the snapshot.
- ``NAME.json``, the *expectation*: what a person says is right (outcome, cause, culprits, lines). Written by hand; no
  command overwrites it. With ``"expected_failure": "why"`` it is not met yet, strictly: once it is, the test fails
  until somebody takes the mark out.
- ``NAME.pin.json`` and ``NAME.txt``, the *pins*: all other facts of the diagnosis document, and the whole report as a
  terminal shows it. They hold what the code says now, right or not, so that a change of the code shows what it
  changes. ``python tests/add_case.py --update`` writes them.
"""

from __future__ import annotations

import copy
import functools
import json
from pathlib import Path
from typing import Any, NamedTuple

from hangdoc import api
from hangdoc.model.document import diagnosis_document
from hangdoc.report.terminal import render

DATA = Path(__file__).parent / "data"
WIDTH = 100
"""Columns of the pinned reports."""


class Result(NamedTuple):
    """What the code says of a case: the diagnosis document, and the report without colours."""

    document: dict[str, Any]
    text: str


def case(name: str, folder: Path = DATA) -> Path:
    """The snapshot of a case; its other files lie beside it. Names are unique across the folders."""
    (path,) = folder.glob(f"*/{name}.hangdoc")
    return path


def expectation_path(name: str, folder: Path = DATA) -> Path:
    """Where a person's word on a case lies."""
    return case(name, folder).with_suffix(".json")


def persons_word(name: str, folder: Path = DATA) -> tuple[dict[str, Any], str]:
    """(the expectation of a case, why the code does not meet it yet: '' where it must)."""
    expected = json.loads(expectation_path(name, folder).read_text(encoding="utf-8"))
    return expected, expected.pop("expected_failure", "")


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


def pins(result: Result) -> dict[str, str]:
    """The content of a case's pinned files by their suffix."""
    return {".pin.json": _laid_out(facts(result.document)) + "\n", ".txt": result.text}


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


def pin_path(name: str, suffix: str, folder: Path = DATA) -> Path:
    """Where a case's pinned file lies."""
    return case(name, folder).with_suffix(suffix)
