"""One scenario for each shape of capture gets the verdict that its header expects, and its corrected variant ends
healthy. tests/accuracy/run.py --fixed runs them all, and every corrected variant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from conftest import unless_torch_aborts
from scenario_runs import ALL, BY_TORCHRUN, LONGEST, SHAPES, as_corrected, as_expected, launched_by_hand, run, texts

from hangdoc import api, scenarios
from hangdoc.model.document import diagnosis_document

if TYPE_CHECKING:
    from conftest import Finished, Watch

RUN = [found for found in ALL if found.name in SHAPES]
# The corrected variant of one hang of each family of causes, and of every job that does not hang.
HANGS = [found for found in RUN if found in BY_TORCHRUN and found.outcome == "hang" and found.cause]
FIRST = {(found.cause or "")[:3]: found for found in reversed(HANGS)}
CORRECTED = [found for found in BY_TORCHRUN if found in FIRST.values() or (found in RUN and found.outcome != "hang")]
GROUPS = 2


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


def saved_stall(scenario: scenarios.Scenario, document: dict[str, Any], finished: Finished) -> None:
    """Its snapshot alone gets the same verdict again."""
    again = diagnosis_document(api.diagnose(finished.snapshots()[-1]))
    assert again == document


MORE = {"fabric_late_launch": late_launch, "rank_guard": saved_stall}
"""What else must be true of one scenario's report."""


@pytest.mark.parametrize("scenario", RUN, ids=lambda scenario: scenario.name)
def test_the_verdict_is_the_expected_one(scenario: scenarios.Scenario, watch: Watch) -> None:
    finished = run(watch, scenario)
    as_expected(scenario, finished)
    if scenario.name in MORE:
        MORE[scenario.name](scenario, finished.document, finished)


@pytest.mark.parametrize("number", range(GROUPS))
def test_corrected_variants_end_healthy_one_after_the_other(number: int, watch: Watch) -> None:
    group = CORRECTED[number::GROUPS]
    finished = unless_torch_aborts(lambda: watch(launched_by_hand(group), env={"FIXED": "1"}, deadline=LONGEST))
    as_corrected(finished)
    assert all(f"\n{scenario.name} 0" in f"\n{finished.stdout}" for scenario in group), finished.explain()
