"""Is it the condition around a call, or a loop further in, that one side left?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from cases import DATA

from hangdoc.diagnosis import diagnose
from hangdoc.model.codec import load_snapshot

CASES = ("decoding_ends_alone",)


def condition_named(name: str, setting: str) -> str:
    """The condition that the case is said to have parted at, its test of a setting written as ``setting``."""
    job = load_snapshot(DATA / "HD102" / f"{name}.hangdoc")
    sources = tuple(replace(s, text=s.text.replace("step % cfg.sample_every == 0", setting)) for s in job.sources)
    found = diagnose(replace(job, sources=sources)).divergence
    return found.branch.condition if found is not None and found.branch is not None else ""


@pytest.mark.parametrize("name", CASES)
def test_what_counts_rounds_and_a_setting_went_alike(name: str) -> None:
    left_at = "if finished.all():"  # the only way out of the loop further in, which counts to a setting
    assert condition_named(name, "step % cfg.sample_every == 0") == left_at
    assert condition_named(name, "step % EVERY == 0") == left_at


@pytest.mark.parametrize("name", CASES)
def test_what_else_a_condition_tests_may_differ(name: str) -> None:
    assert condition_named(name, "step % budget.left == 0") == "if step % budget.left == 0:"
    assert condition_named(name, "ids.sum() > 9") == "if ids.sum() > 9:"
