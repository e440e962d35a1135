"""multiprocessing's own helpers (the resource tracker, the fork server, the threads of a pool or a log listener) wait
for work all their life: they are never what holds a job up. The children that work are."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from cases import case, diagnosed

from hangdoc import api
from hangdoc.model.process import Process

NOT_YET = pytest.mark.xfail(strict=True, reason="the sentence names the children that rest, the helpers among them")
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")


def below(process: Process) -> Iterator[Process]:
    for child in process.children:
        yield child
        yield from below(child)


def children(name: str) -> tuple[set[int], set[int]]:
    """(the children of the ranks that work, those that rest and were started as a helper)."""
    found = [child for rank in api.load(case(name)).ranks if rank.process for child in below(rank.process)]
    works = {child.pid for child in found if child.looks[-1].cpu > child.looks[0].cpu}
    helps = {child.pid for child in found if any(helper in word for helper in HELPERS for word in child.argv)}
    return works, helps - works


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pool_at_work_attach", marks=NOT_YET),
        pytest.param("fork_server_at_work_attach", marks=NOT_YET),
        "pool_lost_a_task_attach",
    ],
)
def test_a_helper_is_not_what_holds_the_job_up(name: str) -> None:
    document = diagnosed(name).document
    works, helps = children(name)
    assert helps
    assert bool(works) == (document["outcome"] == "slow")
    said = f"{document['verdict']} {document['why']} {document['fix']}"
    assert {pid for pid in works if f"process {pid} " in said} == works
    assert not {pid for pid in helps if str(pid) in said}
    assert "_monitor" not in said
    assert "_handle_" not in said
