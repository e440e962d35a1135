"""Which expression a recorded test is: against what the compilers of CPython 3.12 and 3.13 make of the source."""

from __future__ import annotations

import json
import subprocess

import pytest
from pythons import found

from hangdoc.diagnosis.execution import tested as execution
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import BranchCounts
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
TEXT = """\
def step(x, rows):
    if x.ready:
        call()
    if not x:
        call()
    if x is not None:
        call()
    for row in rows.all():
        call()
    while x < 3:
        call()
    found = [row for row in rows]
    if 1 < x < 3 or rows:
        call()
    return sum(row for row in rows) if found else x
"""
# As the probe tells them: [line, column, last line, end column, values without a jump and with one]
TOLD = """
import json, sys
sys.path.insert(0, sys.argv[1])
import hangdoc_probe_outcomes as outcomes
code = next(c for c in compile(sys.stdin.read(), "train.py", "exec").co_consts if hasattr(c, "co_code"))
inner = [c for c in code.co_consts if hasattr(c, "co_code")]
print(json.dumps([[*place, letters] for c in (code, *inner) for place, letters, *_ in
    outcomes._branches(c, list(c.co_positions()))]))
"""
EXPECTED = [
    (2, "x.ready", "True False"),
    (4, "x", "True False"),
    (6, "x is not None", "True False"),
    (8, "for row in rows.all()", "another round ended"),
    (10, "x < 3", "True False"),
    (10, "x < 3", "True False"),
    (12, "[row for row in rows]", "another round ended"),
    (13, "1 < x < 3", "True False"),
    (13, "1 < x < 3", "True False"),
    (13, "rows", "True False"),
    (15, "(row for row in rows)", "another round ended"),
    (15, "found", "True False"),
]


@pytest.fixture(params=("3.12", "3.13"))
def told(request: pytest.FixtureRequest, pytestconfig: pytest.Config) -> list[BranchCounts]:
    python = found(request.param)
    if not python:
        pytest.skip(f"no Python {request.param} here")
    line = [python, "-c", TOLD, str(pytestconfig.rootpath / "hangdoc" / "probe")]
    done = subprocess.run(line, input=TEXT, capture_output=True, text=True, timeout=60, check=True)
    return [BranchCounts(FILE, "step", *row[:5], (0, 0)) for row in json.loads(done.stdout)]


@pytest.fixture
def sources() -> Sources:
    return Sources((SourceText(FILE, "<module>", 1, TEXT),))


@pytest.mark.parametrize(
    ("line", "copies", "words"),
    [
        (2, 1, {"T": "True", "F": "False"}),
        (4, 1, {"T": "False", "F": "True"}),
        (6, 1, {"T": "True", "F": "False", "N": "False", "V": "True"}),
        (8, 1, {"T": "another round", "F": "ended"}),
        (10, 2, {"T": "True", "F": "False"}),
    ],
)
def test_the_condition_of_a_line_is_that_one(
    told: list[BranchCounts], sources: Sources, line: int, copies: int, words: dict[str, str]
) -> None:
    condition = execution.condition_at(sources, FILE, line)
    assert condition is not None
    assert (condition.copies, condition.words) == (copies, words)
    place = {(t.file, t.line, t.column, t.end_line, t.end_column) for t in told}
    assert [each[1] for each in place if condition.holds(each)] == [line]
    assert len([t for t in told if t.line == line]) == copies


@pytest.mark.parametrize("line", [3, 12, 13, 15])
def test_of_several_tests_there_is_no_one_condition(sources: Sources, line: int) -> None:
    assert execution.condition_at(sources, FILE, line) is None
