"""A server of remote calls whose threads all wait for a call that none of them is left to run."""

from __future__ import annotations

import dataclasses

from cases import case

from hangdoc import api
from hangdoc.diagnosis.state.threads import runs_remote_call
from hangdoc.model.process import Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

NAME = "threads_of_a_server_run_short_attach"


def with_handlers(count: int, *, elsewhere: bool = False) -> JobSnapshot:
    """The job, whose server runs so many of the four calls; the last of them ``elsewhere`` in the program."""

    def handlers(threads: tuple[Thread, ...]) -> tuple[Thread, ...]:
        others = [thread for thread in threads if not runs_remote_call(thread)]
        one = next((thread for thread in threads if runs_remote_call(thread)), None)
        if one is None:
            return threads
        found = [dataclasses.replace(one, tid=one.tid + number) for number in range(count)]
        if elsewhere:
            frames = tuple(
                dataclasses.replace(f, line=50) if f.file.endswith("rpc_psrv.py") and f.line == 56 else f
                for f in found[-1].frames
            )
            found[-1] = dataclasses.replace(found[-1], frames=frames)
        return (*others, *found)

    def rank(found: RankSnapshot) -> RankSnapshot:
        assert found.process is not None
        looks = tuple(dataclasses.replace(look, threads=handlers(look.threads)) for look in found.process.looks)
        return dataclasses.replace(found, process=dataclasses.replace(found.process, looks=looks))

    job = api.load(case(NAME))
    return dataclasses.replace(job, ranks=tuple(map(rank, job.ranks)))


def test_fewer_threads_than_callers() -> None:
    for count in (1, 3):
        found = api.diagnose(with_handlers(count))
        assert (found.culprits, found.cause and found.cause.code) == ((0,), "HD505")
        assert "no thread left" in found.verdict


def test_a_thread_for_each_caller() -> None:
    assert "no thread left" not in api.diagnose(with_handlers(4)).verdict


def test_one_thread_that_does_something_else_may_end_it() -> None:
    assert "no thread left" not in api.diagnose(with_handlers(3, elsewhere=True)).verdict


def test_a_call_of_another_function_needs_a_thread_as_well() -> None:
    job = api.load(case("no_thread_for_another_function"))
    found = api.diagnose(job)
    assert (found.culprits, found.cause and found.cause.code) == ((0,), "HD505")
    assert "no thread left to run describe()" in found.verdict


def test_a_thread_that_is_idle_can_run_it() -> None:
    job = api.load(case("no_thread_for_another_function"))
    server = next(rank for rank in job.ranks if rank.rank == 0)
    assert server.process is not None
    looks = tuple(
        dataclasses.replace(look, threads=(*look.threads, Thread(tid=99999, name="pt_thread_pool", state="S")))
        for look in server.process.looks
    )
    process = dataclasses.replace(server.process, looks=looks)
    ranks = tuple(dataclasses.replace(each, process=process) if each is server else each for each in job.ranks)
    assert "no thread left" not in api.diagnose(dataclasses.replace(job, ranks=ranks)).verdict
