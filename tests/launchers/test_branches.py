"""The recorder of branches: what it tells, and that the program does not notice. On the Pythons that have it."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pythons import CACHE, TORCH, found

PROGRAM = Path(__file__).parent / "programs" / "branches.py"
PROBE = Path(__file__).parents[2] / "hangdoc" / "probe"
SECONDS = 240.0
EVENT_NS, MOST_AT_ONCE_NS = 400, 12_000_000
"""As of the recorder, which this Python may lack."""
SAME = {
    "cells": [[True, True, False, True], 2, True],
    "tested": [
        1,
        [
            *(["test_clamp[-1]", "passed"], ["test_clamp[3]", "passed"], ["test_clamp[12]", "failed"]),
            ["test_raises", "passed"],
        ],
        True,
    ],
    "debugged": [["empty", [1], [2, 2], [3, 3, 3]], [5] * 9],
}
"""What the program does, with the recorder and without."""
FOUND = {"cells": {"stopped"}, "tested": {"clamp", "test_clamp"}, "debugged": {"decide"}}
"""Functions that are recorded then."""
NO_EVENT_OF_ALL_CODE = [0]


@pytest.fixture(params=("3.12", "3.13", "3.14"))
def python(request: pytest.FixtureRequest) -> str:
    path = found(request.param)
    if not path:
        pytest.skip(f"no Python {request.param} here")
    return path


@pytest.fixture
def with_packages(python: str) -> str:
    """Where the tests of other Pythons keep torch for it, and whatever else was installed there."""
    version = Path(python).name
    mine = CACHE / f"{version}-torch{TORCH}" / "bin" / "python"
    if not mine.exists() or subprocess.run([mine, "-c", "import torch"], capture_output=True, check=False).returncode:
        pytest.skip(f"no {mine}: python tests/helpers/pythons.py {version.removeprefix('python')} makes it")
    return str(mine)


def run(python: str, check: str, switch: str, *more: str, **environment: str) -> dict[str, Any]:
    line = [python, str(PROGRAM), check, switch, str(PROBE), *more]
    done = subprocess.run(
        line, env={**os.environ, **environment}, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    answer["stderr"] = done.stderr
    return answer


def same(python: str, check: str, *more: str, **environment: str) -> dict[str, Any]:
    """What the recorder tells; the program did the same with it and without."""
    off, on = (run(python, check, switch, *more, **environment) for switch in ("off", "on"))
    assert on["same"] == off["same"]
    return on


@cache
def _has(python: str, module: str) -> bool:
    return subprocess.run([python, "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


def counted(answer: dict[str, Any], function: str) -> dict[tuple[int, str], tuple[int, int]]:
    """(line in the function, values without a jump and with one) → how often each."""
    codes, found = answer["recorded"]["codes"], {}
    for code, line, _column, _last, _end, letters, first, second, *_ in answer["recorded"]["tests"]:
        if codes[code][1] == function:
            found[line - codes[code][2], letters] = first, second
    return found


def code_of(answer: dict[str, Any], function: str) -> list[Any]:
    found: list[Any] = next(code for code in answer["recorded"]["codes"] if code[1] == function)
    return found


def test_every_outcome_is_counted(python: str) -> None:
    answer = same(python, "outcomes")
    tests = counted(answer, "decide")
    # `if value is None` of None, 0, 1, 2, 3, 1, 1, 2
    assert sum(tests[1, letters][letters.index("N")] for letters in ("NV", "VN") if (1, letters) in tests) == 1
    # `if not value` of 0, 1, 2, 3, 1, 1, 2
    ((letters, counts),) = [(letters, counts) for (line, letters), counts in tests.items() if line == 3]
    assert dict(zip(letters, counts, strict=True)) == {"T": 6, "F": 1}
    # `if len(rows) == 3` in the rounds of 1, 2, 3, 1, 1, 2
    ((letters, counts),) = [(letters, counts) for (line, letters), counts in tests.items() if line == 7]
    assert dict(zip(letters, counts, strict=True)) == {"T": 1, "F": 9}
    assert answer["events"] == NO_EVENT_OF_ALL_CODE


def test_every_line_is_known_and_the_order_is_that_of_the_program(python: str) -> None:
    answer = same(python, "outcomes")
    _, _, first, lines, ran, *_ = code_of(answer, "decide")
    assert [line - first for line in lines if line not in ran] == []
    (_, events), *_ = answer["recorded"]["threads"]
    of_decide = [
        (answer["recorded"]["tests"][number][1] - first, value)
        for number, value in zip(events[::3], events[1::3], strict=True)
        if answer["recorded"]["codes"][answer["recorded"]["tests"][number][0]][1] == "decide"
    ]
    assert of_decide[:6] == [(1, "N"), (1, "V"), (3, "F"), (1, "V"), (3, "T"), (5, "T")]
    assert events[2::3] == sorted(events[2::3])


def test_what_ran_before_is_in_the_counters_from_then(python: str) -> None:
    _, _, _, lines, ran, new, bytecode, table = code_of(same(python, "called_before"), "decide")
    assert not new
    assert bytecode
    assert table
    assert len(ran) < len(lines)


def test_code_that_runs_already_is_recorded_from_there_on(python: str) -> None:
    answer = same(python, "running")
    assert any(letters == "TF" and counts[1] == 1 for (_, letters), counts in counted(answer, "numbers").items())


WAYS = ("plain", "cached", "wrapped", "size", "closure", "inner")


def test_code_of_modules_is_found_whenever_and_however_they_come(python: str) -> None:
    answer = same(python, "from_modules")
    names = {answer["recorded"]["codes"][test[0]][1] for test in answer["recorded"]["tests"]}
    assert {f"{module}_{name}" for module in ("early", "late", "reloaded", "ran") for name in WAYS} <= names
    assert answer["events"] == NO_EVENT_OF_ALL_CODE


def test_a_function_out_of_a_pickle_is_found(with_packages: str) -> None:
    if not _has(with_packages, "cloudpickle"):
        pytest.skip(f"{with_packages} has no cloudpickle")
    assert counted(same(with_packages, "pickled"), "pickled_plain") == {(1, "TF"): (1, 0)}


def test_code_of_libraries_is_left_as_it_is(python: str) -> None:
    assert same(python, "libraries")["same"] == [True, True]


def test_code_that_is_told_of_no_more_runs_as_it_was_compiled(python: str) -> None:
    if "3.12" in python:
        pytest.skip("3.12 takes the superinstructions of recorded code apart for good")
    answer = same(python, "as_compiled")
    assert answer["same"] == []
    assert [test[9] for test in answer["recorded"]["tests"]].count(False) >= 4
    _, _, _, lines, ran, *_ = code_of(answer, "straight")
    assert lines == ran != []


def test_code_that_has_not_been_called_is_told_as_that(python: str) -> None:
    answer = same(python, "outcomes")
    _, _, first, lines, ran, new, *_ = code_of(answer, "not_called")
    assert (lines, ran, new) == ([first + 1, first + 2, first + 3], None, True)
    # What was called before, and not since, has its counters.
    _, _, _, _, ran, new, bytecode, table = code_of(same(python, "running"), "run_before")
    assert (ran, new) == (None, False)
    assert bytecode
    assert table


def caught(answer: dict[str, Any]) -> list[tuple[str, str, int, str, str]]:
    """(function, value, line in it, exception, function that raised it, '' outside of the program), in order."""
    recorded = answer["recorded"]
    codes, tests, (((_, events)),) = recorded["codes"], recorded["tests"], recorded["threads"]
    values = {(number, at): value for number, value, at in zip(events[::3], events[1::3], events[2::3], strict=True)}
    return [
        (
            *(codes[tests[number][0]][1], values[number, at], tests[number][1] - codes[tests[number][0]][2]),
            *(exception, codes[by][1] if by >= 0 else ""),
        )
        for number, at, exception, by, _ in sorted(recorded["caught"], key=lambda each: each[1])
    ]


def test_what_was_caught_is_told_with_its_type_and_what_raised_it(python: str) -> None:
    answer = same(python, "caught")
    assert caught(answer) == [
        ("catch", "T", 3, "ValueError", "read"),
        ("catch", "F", 3, "KeyError", "read"),
        ("catch", "T", 5, "KeyError", "read"),
        ("catch", "T", 3, "JSONDecodeError", "read"),
        ("catch", "T", 3, "ValueError", "read"),
        ("caught", "T", 15, "KeyError", "read"),
    ]
    assert answer["events"] == NO_EVENT_OF_ALL_CODE  # none of exceptions


def test_a_handler_that_is_come_to_too_often_is_disabled_and_no_other_one(python: str) -> None:
    recorded = same(python, "caught_often")["recorded"]
    handlers = {recorded["codes"][test[0]][1]: test for test in recorded["tests"]}
    assert handlers["rarely"][6:10] == [1, 0, "T", True]
    assert handlers["often"][9] is False
    assert 64 <= handlers["often"][6] <= 2 * MOST_AT_ONCE_NS // EVENT_NS
    assert ("rarely", "T", 3, "ValueError", "read") in caught({"recorded": recorded})


def test_what_comes_rarely_is_kept_beyond_the_ring(python: str) -> None:
    recorded = same(python, "rare_among_many")["recorded"]
    place = next(number for number, test in enumerate(recorded["tests"]) if sorted(test[6:8]) == [1, 799])
    (_, events), *_ = recorded["threads"]
    known = [value for number, value in zip(events[::3], events[1::3], strict=False) if number == place]
    assert known[0] == "T"
    assert 16 <= len(known) < 300
    assert set(known[1:]) == {"F"}
    assert recorded["tests"][place][10] > events[2]  # of those in between not all are there


@pytest.mark.parametrize("check", ["signals", "interrupts", "thrown", "caught_among_signals"])
def test_no_exception_from_outside_is_lost(python: str, check: str) -> None:
    answer = same(python, check)
    assert answer["same"] in (True, [True, True], [True, True, 0])


@pytest.mark.parametrize("check", ["own_exceptions", "typed_in", "deep", "asynchronous", "restarted"])
def test_the_program_does_the_same(python: str, check: str) -> None:
    assert same(python, check)["recorded"]["tests"]


def test_nothing_is_said_at_exit(python: str) -> None:
    assert same(python, "leaving")["stderr"] == ""


def test_a_forked_child_has_no_recorder_and_may_have_one_anew(python: str) -> None:
    assert same(python, "forked")["same"] == [[None] * 6, True]


def test_other_tools_keep_their_ids(python: str) -> None:
    assert same(python, "other_tools")["recorded"]["tests"]
    answer = same(python, "other_tools", "both")
    assert answer["recorded"]["tests"] == []
    assert "tool ids 3 and 4" in answer["recorded"]["why"]


def test_a_branch_that_comes_too_often_is_disabled_and_its_outcomes_are_kept(python: str) -> None:
    answer = same(python, "hot")
    assert code_of(answer, "work")[5]  # it was new: its first instruction has a counter
    counts = counted(answer, "work").values()
    assert all(sum(each) >= 100 for each in counts)
    events = sum(map(sum, counts))  # of some 0.1 s, which is less than the ten that the budget is for
    assert events * EVENT_NS <= 2 * MOST_AT_ONCE_NS
    assert [test[9] for test in answer["recorded"]["tests"]].count(False) >= 4


def test_what_a_framework_s_loops_use_up_is_not_the_program_s_part(python: str) -> None:
    answer = same(python, "hot_in_a_framework")
    codes, told = answer["recorded"]["codes"], {"work": [], "driven": []}
    for test in answer["recorded"]["tests"]:
        told.get(codes[test[0]][1], []).append(test[9])
    assert told["work"].count(False) >= 100
    assert told["driven"] == [True, True]


def test_a_branch_that_somebody_woke_is_disabled_again(python: str) -> None:
    answer = same(python, "hot_and_restarted")
    events = sum(sum(each) for each in counted(answer, "work").values())
    assert events * EVENT_NS <= 2 * MOST_AT_ONCE_NS
    assert [test[9] for test in answer["recorded"]["tests"]].count(False) >= 4


def test_lines_that_run_first_in_code_that_is_hot_are_known(python: str) -> None:
    answer = same(python, "hot_then_rare")
    _, _, first, lines, ran, *_ = code_of(answer, "rare")
    assert [test[9] for test in answer["recorded"]["tests"]].count(False) >= 4
    assert [line - first for line in lines if line not in ran] == [8]


def test_code_whose_calls_may_overlap_is_told(python: str) -> None:
    recorded = same(python, "interleaved")["recorded"]
    found = {recorded["codes"][number][1] for number in recorded["interleaved"]}
    assert found >= {"walk", "visit", "numbers", "<genexpr>"}
    assert found.isdisjoint({"decide", "interleaved", "<module>"})


def test_code_beyond_what_is_recorded_is_left_to_the_interpreter_s_counters(python: str) -> None:
    answer = same(python, "too_many")
    called = [code for code in answer["recorded"]["codes"] if code[4] is not None]
    assert 3900 <= len(called) <= 4000


@pytest.mark.parametrize("check", ["profiled", "traced"])
def test_profilers_and_debuggers_are_told_the_same(python: str, check: str) -> None:
    assert same(python, check)["recorded"]["tests"]


@pytest.mark.parametrize("core", ["sysmon", "ctrace", "pytrace"])
@pytest.mark.parametrize("order", ["first", "last"])
def test_coverage_has_the_same_figures(with_packages: str, core: str, order: str) -> None:
    if not _has(with_packages, "coverage"):
        pytest.skip(f"{with_packages} has no coverage")
    assert same(with_packages, "covered", order, COVERAGE_CORE=core)["recorded"]["tests"]


def test_viztracer_has_the_same_figures(with_packages: str) -> None:
    if not _has(with_packages, "viztracer"):
        pytest.skip(f"{with_packages} has no viztracer")
    assert same(with_packages, "viztraced")["recorded"]["tests"]


@pytest.mark.parametrize(("check", "module"), [("cells", "IPython"), ("tested", "pytest"), ("debugged", "debugpy")])
def test_notebooks_tests_and_debuggers_do_the_same(with_packages: str, check: str, module: str) -> None:
    if not _has(with_packages, module):
        pytest.skip(f"{with_packages} has no {module}")
    answer = same(with_packages, check)
    assert answer["same"] == SAME[check]
    assert {answer["recorded"]["codes"][test[0]][1] for test in answer["recorded"]["tests"]} >= FOUND[check]


def test_compilers_do_the_same(with_packages: str) -> None:
    # What is compiled in two pieces decides in Python in between: of -1, 1, 2. CPython 3.14 tells half of it, so that
    # nothing is told.
    found = [sorted(counts) for counts in counted(same(with_packages, "compiled"), "step").values()]
    assert found == ([] if "python3.14" in with_packages else [[1, 2]])


def test_workers_of_a_data_loader_have_no_recorder(with_packages: str) -> None:
    assert same(with_packages, "loaders")["same"] == [[0, 1], [2, 3]]
