"""Is a wait without an end a hang at once, and is a rank that was not seen one that never started?"""

from __future__ import annotations

import dataclasses

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.process import Frame, Thread
from hangdoc.model.snapshot import JobSnapshot


@pytest.fixture
def job() -> JobSnapshot:
    """Ranks 0 and 1 wait for keys that nobody sets, rank 2 for them in an all_reduce."""
    return api.load(case("store_keys_of_all"))


def _with_thread(job: JobSnapshot) -> JobSnapshot:
    """``job``, where rank 2 has a thread of the program's own that sleeps."""
    *others, last = job.ranks
    assert last.process is not None
    assert last.process.last is not None
    beat = Thread(tid=99, name="beat", state="S", frames=(Frame("/job/beat.py", 4, "beat"),))
    looks = tuple(dataclasses.replace(look, threads=(*look.threads, beat)) for look in last.process.looks)
    process = dataclasses.replace(last.process, looks=looks)
    return dataclasses.replace(job, ranks=(*others, dataclasses.replace(last, process=process)))


def test_keys_that_nobody_is_left_to_set(job: JobSnapshot) -> None:
    assert api.diagnose(job).outcome == "hang"


def test_a_thread_may_yet_set_them(job: JobSnapshot) -> None:
    assert api.diagnose(_with_thread(job)).outcome == "slow"


def test_who_waits_in_a_try_may_go_on(job: JobSnapshot) -> None:
    texts = []
    for each in job.sources:
        text = each.text.replace("    store.wait(", "    try: store.wait(")
        lines = [
            line + "\n    except Exception: pass" if "try: store.wait(" in line else line for line in text.split("\n")
        ]
        texts.append(dataclasses.replace(each, text="\n".join(lines)))
    assert api.diagnose(dataclasses.replace(job, sources=tuple(texts))).outcome == "slow"


@pytest.mark.parametrize(("address", "named"), [("127.0.0.1", (2,)), ("10.0.0.5", ()), ("127.0.1.1", ())])
def test_only_on_loopback_a_program_is_known_to_start_all_ranks(address: str, named: tuple[int, ...]) -> None:
    job = api.load(case("started_by_a_loop_that_skips"))
    assert job.store is not None
    ranks = tuple(dataclasses.replace(rank, environment=()) for rank in job.ranks)
    store = dataclasses.replace(job.store, address=address)
    found = api.diagnose(dataclasses.replace(job, ranks=ranks, store=store))
    assert found.culprits == named


def test_every_rank_polls() -> None:
    """Nobody in particular is blamed for what all of them poll for."""
    job = api.load(case("ended_without_its_marker"))
    ranks = tuple(dataclasses.replace(job.ranks[0], rank=rank) for rank in range(4))
    found = api.diagnose(dataclasses.replace(job, ranks=ranks, world_size=4))
    assert (found.cause and found.cause.code, found.culprits, found.confidence) == ("HD508", (0, 1, 2, 3), "possible")
