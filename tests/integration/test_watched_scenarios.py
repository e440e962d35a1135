"""One scenario for each shape of capture gets the verdict that its header expects, and its corrected variant ends
healthy. tests/accuracy/run.py --fixed runs them all, and every corrected variant."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from conftest import unless_torch_aborts
from scenario_runs import ALL, SHAPES

from hangdoc import api, scenarios
from hangdoc.model.document import diagnosis_document

if TYPE_CHECKING:
    from conftest import Finished, Watch

RUN = [found for found in ALL if found.name in SHAPES]
ABORTED = 124
TORCHRUN = "torchrun --standalone --nproc-per-node "
BY_HAND = Path(__file__).parents[1] / "by_hand.py"
LONGEST = 150.0
"""Seconds for one run, within the deadline of a test."""
BY_TORCHRUN = [found for found in ALL if found.launch.startswith(TORCHRUN)]
AS_LAUNCHED = {
    "rank_guard",  # what torchrun is to any job
    "no_main_guard",  # the way the script is started matters
    "early_exit",  # torchrun writes down how its ranks ended
}
"""Of those, the ones that torchrun starts here. By hand, where torch is imported once for all ranks, the others take a
third of the time."""
# The corrected variant of one hang of each family of causes, and of every job that does not hang.
HANGS = [found for found in RUN if found in BY_TORCHRUN and found.outcome == "hang" and found.cause]
FIRST = {(found.cause or "")[:3]: found for found in reversed(HANGS)}
CORRECTED = [found for found in BY_TORCHRUN if found in FIRST.values() or (found in RUN and found.outcome != "hang")]
# And of two jobs whose ranks a library or the script itself starts.
OTHERS = [found for found in RUN if found.name in ("fabric_late_launch", "spawned")]
GROUPS = 2


def by_hand(group: list[scenarios.Scenario]) -> list[str]:
    jobs = [f"{scenario.launch.removeprefix(TORCHRUN)}:{scenario.path}" for scenario in group]
    return [sys.executable, str(BY_HAND), *jobs]


def run(watch: Watch, scenario: scenarios.Scenario, *, fixed: bool = False) -> Finished:
    environment = dict(scenario.environment) | ({"FIXED": "1"} if fixed else {"FIXED": ""})
    deadline = min(scenario.timeout, LONGEST)
    hand = scenario in BY_TORCHRUN and scenario.name not in AS_LAUNCHED
    command = by_hand([scenario]) if hand else scenarios.command(scenario)
    return watch(command, *scenario.watch, env=environment, deadline=deadline)


def letters(text: str) -> str:
    """Without the breaks of the terminal's lines, which can fall into a long path."""
    return "".join(text.split())


def differences(rows: list[scenarios.Comparison], finished: Finished) -> str:
    wrong = [f"{row.what}: expected {row.expected}, found {row.found}" for row in rows if not row.agrees]
    return "\n".join([*wrong, finished.explain()]) if wrong else ""


def texts(document: dict[str, Any], kind: str) -> str:
    return "\n".join(item["text"] for item in document["evidence"] if item["kind"] == kind)


def everything(document: dict[str, Any]) -> str:
    return "\n".join(
        [document["verdict"], document["why"], document["fix"], *(e["text"] for e in document["evidence"])]
    )


def late_launch(scenario: scenarios.Scenario, document: dict[str, Any], finished: Finished) -> None:
    """Lightning issue 20536: what made the ranks diverge is named, and every port that the groups need is there, so the
    fault is in the code path."""
    text = everything(document)
    source = scenario.path.read_text().splitlines()
    (launch,) = scenario.lines
    decided = 1 + next(number for number, line in enumerate(source) if "self.warm = cache.exists()" in line)
    branch = 1 + next(number for number, line in enumerate(source) if "if self.warm:" in line)
    assert f"{scenario.path.name}:{launch}" in text, text
    assert f"{scenario.path.name}:{decided}" in text, text
    assert document["divergence"]["branch"]["line"] == branch
    assert "self.warm" in document["divergence"]["branch"]["condition"]
    assert "Fabric sets up the module" in [side["note"] for side in document["divergence"]["sides"]]
    # One per rank and group, and the store's: 2 + 1.
    ports = texts(document, "port")
    assert "3 listening sockets" in ports, ports
    assert "3 needed" in ports, ports
    assert "every rank has set up its process groups" in ports, ports


def child_exits(scenario: scenarios.Scenario, document: dict[str, Any], finished: Finished) -> None:
    """A child that ended early leaves its port missing: the main process's own store listens, and nothing of rank 1."""
    assert document["cause"]["code"] == "HD401"
    assert [(item["rank"], item["role"]) for item in document["culprit_processes"]] == [(1, "rank")]
    ports = texts(document, "port")
    assert "1 listening socket where 3 are needed" in ports, ports
    assert "rank 1 never opened its own" in ports, ports


def saved_stall(scenario: scenarios.Scenario, document: dict[str, Any], finished: Finished) -> None:
    """Its snapshot alone gets the same verdict again."""
    again = diagnosis_document(api.diagnose(finished.snapshots()[-1]))
    assert again == document


MORE = {"fabric_late_launch": late_launch, "fabric_child_exits": child_exits, "rank_guard": saved_stall}
"""What else must be true of one scenario's report."""


@pytest.mark.parametrize("scenario", RUN, ids=lambda scenario: scenario.name)
def test_the_verdict_is_the_expected_one(scenario: scenarios.Scenario, watch: Watch) -> None:
    finished = run(watch, scenario)
    assert finished.document is not None, finished.explain()
    assert not (wrong := differences(scenarios.compare(scenario, finished.document), finished)), wrong
    assert not finished.survivors
    assert (finished.status == ABORTED) == (scenario.outcome == "hang"), finished.explain()
    if scenario.outcome == "slow":
        assert finished.status == 0, finished.explain()
        assert "✖" not in finished.stderr, finished.explain()
    else:  # of a job that moves again, the file tells the last look and the screen the first
        assert letters(finished.document["verdict"]) in letters(finished.stderr), finished.explain()
    if scenario.name in MORE:
        MORE[scenario.name](scenario, finished.document, finished)


@pytest.mark.parametrize("number", range(GROUPS))
def test_corrected_variants_end_healthy_one_after_the_other(number: int, watch: Watch) -> None:
    group = CORRECTED[number::GROUPS]
    finished = unless_torch_aborts(lambda: watch(by_hand(group), env={"FIXED": "1"}, deadline=LONGEST))
    rows = scenarios.compare_fixed(finished.document or {}, finished.status)
    assert not (wrong := differences(rows, finished)), wrong
    assert all(f"\n{scenario.name} 0" in f"\n{finished.stdout}" for scenario in group), finished.explain()
    assert not finished.survivors


@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.name)
def test_the_corrected_variant_ends_healthy(scenario: scenarios.Scenario, watch: Watch) -> None:
    finished = unless_torch_aborts(lambda: run(watch, scenario, fixed=True))
    rows = scenarios.compare_fixed(finished.document or {}, finished.status)
    assert not (wrong := differences(rows, finished)), wrong
    assert not finished.survivors
