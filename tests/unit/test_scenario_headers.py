"""The scenarios' headers tell the truth about their own text."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from scenario_runs import ALL

from hangdoc import scenarios
from hangdoc.model.catalogue import catalogue

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROGRAMS = Path(__file__).parents[1] / "accuracy" / "programs"
EXTRA = [found for path in sorted(PROGRAMS.glob("*.py")) if (found := scenarios.read(path)) is not None]


def header(scenario: scenarios.Scenario) -> dict[str, object]:
    text = scenario.path.read_text(encoding="utf-8")
    block = text.partition("# /// hangdoc\n")[2].partition("# ///")[0]
    return tomllib.loads("\n".join(line.removeprefix("#") for line in block.splitlines()))


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_the_lines_are_the_code_that_the_header_quotes(scenario: scenarios.Scenario) -> None:
    lines = scenario.path.read_text(encoding="utf-8").splitlines()
    code = header(scenario)["code"]
    assert scenario.lines
    assert [lines[number - 1].strip() for number in scenario.lines] == code


@pytest.mark.parametrize("program", EXTRA, ids=lambda program: program.name)
def test_an_extra_program_says_what_it_must_get(program: scenarios.Scenario) -> None:
    """Some write the file that they run: its lines are not theirs."""
    text = program.path.read_text(encoding="utf-8")
    assert program.culprits
    assert program.lines
    assert 'os.environ.get("FIXED")' in text
    if not program.file:
        lines = text.splitlines()
        assert [lines[number - 1].strip() for number in program.lines] == header(program)["code"]


def test_there_are_extra_programs() -> None:
    assert len(EXTRA) >= 10
    assert not {program.name for program in EXTRA} & {scenario.name for scenario in ALL}


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_a_scenario_has_a_story_a_source_and_a_cure(scenario: scenarios.Scenario) -> None:
    text = scenario.path.read_text(encoding="utf-8")
    assert len(scenario.story.splitlines()) >= 3
    assert scenario.source == "constructed" or scenario.source.startswith("https://")
    assert 'os.environ.get("FIXED")' in text
    assert scenario.outcome in ("hang", "slow", "crashed")


def test_every_cause_of_the_first_release_has_a_scenario() -> None:
    promised = {"HD101", "HD102", "HD109", "HD110", "HD301", "HD401", "HD402", "HD403", "HD501", "HD508"}
    assert promised <= {scenario.cause for scenario in ALL}
    assert {scenario.cause for scenario in ALL if scenario.cause} <= set(catalogue())


def test_no_part_of_hangdoc_knows_a_scenario() -> None:
    """The diagnosis sees only a job: no scenario's name or story occurs in the package."""
    package = Path(scenarios.__file__).parent
    code = "\n".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    assert [scenario.name for scenario in ALL if f"{scenario.name}.py" in code] == []
