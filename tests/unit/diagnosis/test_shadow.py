"""What the new diagnosis says in the place of the one that speaks, where it is asked for."""

from __future__ import annotations

import pytest
from cases import case

from hangdoc.diagnosis import shadow
from hangdoc.diagnosis.hypotheses.judge import Hypothesis
from hangdoc.diagnosis.verdict import diagnose
from hangdoc.model.codec import load_snapshot
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.kinds import Confidence
from hangdoc.report.terminal import render


def told(monkeypatch: pytest.MonkeyPatch, name: str, *judged: tuple[tuple[int, ...], float]) -> Diagnosis:
    """By the new diagnosis, where its judge says that."""
    monkeypatch.setenv("HANGDOC_ENGINE", "next")
    monkeypatch.setattr(shadow, "hypotheses", lambda _: [Hypothesis(*each, frozenset()) for each in judged])
    return diagnose(load_snapshot(case(name)))


def test_words_stay_where_both_blame_the_same_rank_for_the_same_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    today = diagnose(load_snapshot(case("best_loss")))
    found = told(monkeypatch, "best_loss", ((1,), 0.8), ((0,), 0.2))
    assert (found.culprits, found.cause, found.verdict) == ((1,), today.cause, today.verdict)
    assert (today.confidence, found.confidence) == (Confidence.CERTAIN, Confidence.LIKELY)
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == "if loss < self.best:"


def test_of_other_ranks_the_form_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    found = told(monkeypatch, "best_loss", ((0, 2), 0.5), ((1,), 0.3), ((0,), 0.15), ((2,), 0.05))
    assert (found.culprits, found.alternatives) == ((0, 2), ((1,), (0,)))
    assert (found.confidence, found.victims, found.repair) == (Confidence.POSSIBLE, (1,), None)
    assert found.cause is not None
    assert found.verdict.startswith("Ranks 0 and 2 ")
    assert "rank 1 waits in all_gather" in found.verdict
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.verdict in " ".join(render(found).split())


def test_of_another_cause_the_form_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """That it is these ranks is no proof of what they did: then it is not certain."""
    monkeypatch.setattr(shadow, "code_of", lambda _: "HD102")
    found = told(monkeypatch, "send_cycle", ((0, 1, 2), 1.0))
    assert found.confidence == Confidence.LIKELY
    assert found.verdict.startswith("Rank 0 waits in send to rank 1")


def test_it_is_not_certain_of_a_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of a sentence is certain, or none of it: that a predicate differs does not say that it decided."""
    without = diagnose(load_snapshot(case("failed_and_does_not_exit")))
    assert told(monkeypatch, "best_loss", ((1,), 1.0)).confidence == Confidence.LIKELY
    assert told(monkeypatch, "failed_and_does_not_exit", (without.culprits, 1.0)).confidence == Confidence.CERTAIN


@pytest.mark.parametrize("name", ["mesh_dumps_silent_extra", "mesh_dumps_two"])
def test_without_sources_it_is_not_certain_of_calls(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    today = diagnose(load_snapshot(case(name)))
    found = told(monkeypatch, name, (today.culprits, 1.0))
    assert (found.culprits, found.cause) == (today.culprits, today.cause)
    assert found.confidence == Confidence.LIKELY


def test_nobody_is_to_blame_where_today_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert told(monkeypatch, "partition", ((0,), 1.0)).culprits == ()
