"""The large programs keep their format; what is read out of programs and snapshots is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import large
import predicates
import pytest

import run
from hangdoc.model.snapshot import SourceText

HEADERS = {header.name: header for header in run.expected("large")}
PROGRAM = '''\
"""Story."""
from __future__ import annotations
import os

def chosen(rows, limit):
    kept = [row for row in rows if row and row["size"] > limit]
    while kept and len(kept) > 3:
        kept.pop()
    assert kept is not None, "nothing"
    match os.environ.get("RANK"):
        case str(rank) if rank == "0":
            return kept if len(kept) > 1 else []
        case _:
            pass
    for row in kept:
        if row["name"] == "1":
            print(
                row
            )
    return kept

chosen([{"size": 2, "name": os.environ["RANK"]}, {}], 1)
'''


@pytest.mark.parametrize("name", HEADERS)
def test_a_large_program_is_as_the_format_says(name: str) -> None:
    program = large.answer(name)
    assert large.complaints(program, HEADERS[name], dict(predicates.modules(program.folder))) == []


def test_there_are_large_programs() -> None:
    assert len(HEADERS) >= 4


def test_a_complaint_names_what_does_not_hold() -> None:
    program = large.answer("patience")
    said = {**program.document, "cause": "HD101", "line": "evals/confusion.py:9999", "differing": [], "predicates": []}
    text = dict(predicates.modules(program.folder))
    found = large.complaints(large.Answer(program.folder, said), HEADERS["patience"], text)
    assert "cause: the header has HD102, the answer HD101" in found
    assert "no such line: evals/confusion.py:9999" in found
    assert "0 differ, fewer than 15" in found
    assert any("--list" in each for each in found)


def test_every_kind_of_predicate_is_listed() -> None:
    found = [(each.line, each.text) for each in predicates.predicates_in("main.py", PROGRAM)]
    assert found == [
        (6, "if row and row['size'] > limit"),
        (6, "row"),
        (6, "row['size'] > limit"),
        (7, "while kept and len(kept) > 3"),
        (7, "kept"),
        (7, "len(kept) > 3"),
        (9, "assert kept is not None"),
        (11, "case … if rank == '0'"),
        (12, "kept if len(kept) > 1 else []"),
        (15, "for row in kept"),
        (16, "if row['name'] == '1'"),
    ]


@pytest.mark.parametrize(("line", "guard"), [(18, 16), (8, 7), (12, None), (20, None), (22, None)])
def test_the_nearest_guard_is_the_innermost_statement_of_the_function(line: int, guard: int | None) -> None:
    assert predicates.nearest_guard(PROGRAM, line) == guard


def test_the_nearest_guard_of_an_inner_function_is_not_around_it() -> None:
    text = "if a:\n    def inner():\n        call()\n    inner()\n"
    assert predicates.nearest_guard(text, 3) is None
    assert predicates.nearest_guard(text, 4) == 1


def test_a_random_pick_is_right_as_often_as_there_are_right_predicates() -> None:
    entries = [{"file": "a.py", "line": line, "text": "if x"} for line in range(1, 21)]
    said = {"condition": entries[0], "also": ["a.py:2", "b.py:2"], "predicates": entries}
    assert large.Answer(Path(), said).chance == pytest.approx(0.1)


def test_a_predicate_is_lacking_where_no_source_has_its_line() -> None:
    text = {"job/main.py": PROGRAM, "main.py": "if a:\n    pass\n"}
    every = [found for file, body in text.items() for found in predicates.predicates_in(file, body)]
    lines = PROGRAM.splitlines()
    masked = lines[5].replace('"size"', '"…"')
    # A fragment, whole but for a literal; the same line at another place; another program's file.
    held = SourceText("/elsewhere/job/main.py", "chosen", 6, f"{masked}\n{lines[6]}")
    moved = SourceText("/elsewhere/job/main.py", "chosen", 1, lines[8])
    other = SourceText("/elsewhere/other.py", "chosen", 1, PROGRAM)
    missing = large.lacking(every, text, [held, moved, other])
    assert [(each.file, each.line) for each in missing] == [
        *[("job/main.py", line) for line in (9, 11, 12, 15, 16)],
        ("main.py", 1),
    ]
    whole = [SourceText(f"/elsewhere/{file}", "<module>", 1, body) for file, body in text.items()]
    assert large.lacking(every, text, whole) == []


def test_a_recorded_program_does_what_it_did_and_writes_the_values(tmp_path: Path) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program" / "main.py").write_text(PROGRAM)
    (tmp_path / "program" / "answer.json").write_text("{}")
    numbered = predicates.record(tmp_path / "program", tmp_path / "run")
    assert not (tmp_path / "run" / "answer.json").exists()
    values = {}
    for rank in (0, 1):
        subprocess.run(
            [sys.executable, str(tmp_path / "run" / "main.py")], env={"RANK": str(rank)}, check=True, timeout=60
        )
        values[rank] = predicates.seen(tmp_path / "run")[rank]
    told = {
        rank: {numbered[number].text: counts for number, (counts, _) in found.items()} for rank, found in values.items()
    }
    assert told[0]["row['size'] > limit"] == told[1]["row['size'] > limit"] == (0, 1)
    assert told[0]["row"] == (1, 1)
    assert told[0]["case … if rank == '0'"] == (0, 1)
    assert told[1]["case … if rank == '0'"] == (1, 0)
    assert "for row in kept" not in told[0]
    assert told[1]["for row in kept"] == (0, 1)
    assert told[1]["if row['name'] == '1'"] == (0, 1)
