"""Every scenario gets the verdict that its header expects, and every corrected variant ends healthy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hangdoc import scenarios

if TYPE_CHECKING:
    from conftest import Finished, Watch

FOLDER = Path(__file__).parents[2] / "scenarios"
ALL = [found for path in sorted(FOLDER.glob("*.py")) if (found := scenarios.read(path)) is not None]
ABORTED = 124
LONGEST = 150.0
"""Seconds for one run, within the deadline of a test."""


def run(watch: Watch, scenario: scenarios.Scenario, *, fixed: bool = False) -> Finished:
    environment = dict(scenario.environment) | ({"FIXED": "1"} if fixed else {"FIXED": ""})
    deadline = min(scenario.timeout, LONGEST)
    return watch(scenarios.command(scenario), *scenario.watch, env=environment, deadline=deadline)


def named(name: str) -> scenarios.Scenario:
    return next(scenario for scenario in ALL if scenario.name == name)


def letters(text: str) -> str:
    """Without the breaks of the terminal's lines, which can fall into a long path."""
    return "".join(text.split())


def differences(rows: list[scenarios.Comparison], finished: Finished) -> str:
    wrong = [f"{row.what}: expected {row.expected}, found {row.found}" for row in rows if not row.agrees]
    return "\n".join([*wrong, finished.explain()]) if wrong else ""


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_the_verdict_is_the_expected_one(scenario: scenarios.Scenario, watch: Watch) -> None:
    finished = run(watch, scenario)
    assert finished.document is not None, finished.explain()
    assert not (wrong := differences(scenarios.compare(scenario, finished.document), finished)), wrong
    assert not finished.survivors
    assert (finished.status == ABORTED) == (scenario.outcome == "hang"), finished.explain()
    assert letters(finished.document["verdict"]) in letters(finished.stderr), finished.explain()


@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_the_corrected_variant_ends_healthy(scenario: scenarios.Scenario, watch: Watch) -> None:
    finished = run(watch, scenario, fixed=True)
    rows = scenarios.compare_fixed(finished.document or {}, finished.status)
    assert not (wrong := differences(rows, finished)), wrong
    assert not finished.survivors


def texts(document: dict[str, Any], kind: str) -> str:
    return "\n".join(item["text"] for item in document["evidence"] if item["kind"] == kind)


def everything(document: dict[str, Any]) -> str:
    return "\n".join(
        [document["verdict"], document["why"], document["fix"], *(e["text"] for e in document["evidence"])]
    )


def test_a_late_launch_is_named_with_what_parted_the_ranks_and_complete_ports(watch: Watch) -> None:
    """Lightning issue 20536: every port that the groups need is there, so the fault is in the code path."""
    scenario = named("fabric_late_launch")
    finished = run(watch, scenario)
    document = finished.document
    assert document is not None, finished.explain()
    text = everything(document)
    source = scenario.path.read_text().splitlines()
    (launch,) = scenario.lines
    parted = 1 + next(number for number, line in enumerate(source) if "self.warm = cache.exists()" in line)
    branch = 1 + next(number for number, line in enumerate(source) if "if self.warm:" in line)
    assert f"{scenario.path.name}:{launch}" in text, text
    assert f"{scenario.path.name}:{parted}" in text, text
    assert document["divergence"]["branch"]["line"] == branch
    assert "self.warm" in document["divergence"]["branch"]["condition"]
    assert "_verify_params_across_processes" in str(document["divergence"]) + str(document["ranks"]) + text
    # One per rank and group, and the store's: 2 + 1.
    ports = texts(document, "port")
    assert "3 listening ports" in ports, ports
    assert "3 needed" in ports, ports
    assert "complete" in ports, ports


def test_a_child_that_ended_early_leaves_its_port_missing(watch: Watch) -> None:
    """The main process waits alone: its own store listens, and nothing of rank 1 does."""
    finished = run(watch, named("fabric_child_exits"))
    document = finished.document
    assert document is not None, finished.explain()
    assert document["cause"]["code"] == "HD401"
    assert [(item["rank"], item["role"]) for item in document["culprit_processes"]] == [(1, "rank")]
    ports = texts(document, "port")
    assert "1 listening port" in ports, ports
    assert "3 needed" in ports, ports
    assert "rank 1 fell short" in ports, ports


def test_a_saved_stall_gets_the_same_verdict_again(watch: Watch) -> None:
    from hangdoc import api
    from hangdoc.model.codec import diagnosis_document

    finished = run(watch, named("rank_guard"))
    assert finished.document is not None, finished.explain()
    again = diagnosis_document(api.diagnose(finished.snapshots()[-1]))
    assert again == finished.document
