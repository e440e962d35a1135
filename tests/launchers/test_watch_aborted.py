"""A rank that gloo aborts: where it was, what the survivors were at, and which call it skipped or made too many."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Finished, Watch

PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "aborted.py"
SOURCE = PROGRAM.read_text().splitlines()


def line(text: str) -> int:
    return 1 + next(number for number, written in enumerate(SOURCE) if text in written)


def job(mode: str, ranks: int) -> list[str]:
    # The agent ends the survivors as soon as it looks: by default after 0.1 s, which a busy machine needs for itself.
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--monitor-interval", "3"]
    return [*torchrun, "--nproc-per-node", str(ranks), str(PROGRAM), mode]


def crashed(done: Finished) -> dict[str, Any]:
    assert done.status == 1, done.explain()
    assert done.document is not None, done.explain()
    assert done.document["outcome"] == "crashed", done.explain()
    return done.document


def said(document: dict[str, Any], kind: str) -> str:
    return "\n".join(each["text"] for each in document["evidence"] if each["kind"] == kind)


@pytest.mark.slow
def test_the_rank_that_skipped_a_backward_pass_and_why(watch: Watch) -> None:
    document = crashed(done := watch(job("skips", 3)))
    assert document["culprits"] == [1], done.explain()
    assert document["cause"]["code"] in ("HD101", "HD109"), done.explain()
    where = line("dist.all_reduce(loss.detach()")
    assert f"aborted.py:{where}" in document["verdict"], done.explain()
    assert f"aborted.py:{line('loss.backward()')}" in document["verdict"], done.explain()
    assert f"`if torch.isfinite(loss):` (aborted.py:{line('if torch.isfinite(loss):')})" in document["why"]
    assert f"rank 1: killed by signal 6 at aborted.py:{where} skips()" in said(document, "process")
    assert f"gloo aborted rank 1 at aborted.py:{where} skips(): it got a piece of " in said(document, "log")
    assert " and expected 4" in said(document, "log")


@pytest.mark.slow
def test_a_call_too_many_is_its_makers_though_another_rank_was_aborted(watch: Watch) -> None:
    document = crashed(done := watch(job("makes_larger", 3)))
    assert document["culprits"] == [1], done.explain()
    assert document["cause"]["code"] == "HD101", done.explain()
    extra = line("dist.all_reduce(torch.ones(1000))  # too many")
    assert document["verdict"].startswith("Rank 1 alone call"), done.explain()
    assert f"all_reduce at aborted.py:{extra}" in document["verdict"], done.explain()
    assert "isfinite().all()" in document["why"]
    assert "gloo aborted rank" in said(document, "log")
    assert "gloo aborted rank 1" not in said(document, "log")


@pytest.mark.slow
def test_of_unequal_sizes_the_line_and_both_are_said(watch: Watch) -> None:
    document = crashed(done := watch(job("sizes", 3)))
    assert document["culprits"] == [1], done.explain()
    assert document["cause"]["code"] == "HD104", done.explain()
    where = line("torch.ones(4 if rank == 1 else 64)")
    assert document["verdict"].startswith(f"Rank 1 aborted at aborted.py:{where} sizes() in a collective")
    assert "the tensor [64] Float" in document["verdict"], done.explain()
    assert "op.preamble.length <= op.nbytes" in document["why"]
