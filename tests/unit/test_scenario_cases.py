"""Every scenario's verdict is checked by its saved case; those for a shape of capture run as real jobs as well."""

from __future__ import annotations

import pytest
from cases import diagnosed, names
from scenario_runs import ALL, SHAPES

import run
from hangdoc import scenarios


def test_what_is_run_exists() -> None:
    assert set(SHAPES) <= {scenario.name for scenario in ALL}


def test_every_scenario_has_a_case_of_its_name() -> None:
    """Also those that are run: their reports are pinned."""
    without = {scenario.name for scenario in ALL} - set(names())
    assert without == set(), "run it under watch, then: python tests/add_case.py RUN_DIR/stall-1.hangdoc NAME"


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_the_saved_case_gets_the_verdict_of_the_header(scenario: scenarios.Scenario) -> None:
    rows = scenarios.compare(scenario, diagnosed(scenario.name).document)
    wrong = [f"{row.what}: expected {row.expected}, found {row.found}" for row in rows if not row.agrees]
    assert not wrong, "if the script has changed since, save the case anew"


def test_the_accuracy_command_runs_every_scenario() -> None:
    assert {scenario.name for scenario in ALL} <= {scenario.name for scenario in run.expected()}
