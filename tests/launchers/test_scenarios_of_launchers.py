"""Scenarios whose launcher is most of the job, and corrected variants of jobs whose ranks a library starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import unless_torch_aborts
from scenario_runs import ALL, LAUNCHED, as_corrected, as_expected, run, texts

if TYPE_CHECKING:
    from conftest import Watch

    from hangdoc import scenarios

CORRECTED = ("fabric_late_launch", "spawned")


def a_port_is_missing(document: dict[str, Any]) -> None:
    """A child that ended early leaves its port missing: the main process's own store listens, and nothing of rank 1."""
    assert document["cause"]["code"] == "HD401"
    assert [(item["rank"], item["role"]) for item in document["culprit_processes"]] == [(1, "rank")]
    ports = texts(document, "port")
    assert "1 listening socket where 3 are needed" in ports, ports
    assert "rank 1 never opened its own" in ports, ports


@pytest.mark.parametrize("scenario", [each for each in ALL if each.name in LAUNCHED], ids=lambda each: each.name)
def test_the_verdict_under_a_launcher(scenario: scenarios.Scenario, watch: Watch) -> None:
    finished = run(watch, scenario)
    as_expected(scenario, finished)
    if scenario.name == "fabric_child_exits":
        a_port_is_missing(finished.document or {})


@pytest.mark.parametrize("scenario", [each for each in ALL if each.name in CORRECTED], ids=lambda each: each.name)
def test_the_corrected_variant_ends_healthy(scenario: scenarios.Scenario, watch: Watch) -> None:
    as_corrected(unless_torch_aborts(lambda: run(watch, scenario, fixed=True)))
