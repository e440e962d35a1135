"""Two threads of every rank that wait in collectives at once, as stacks alone show them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from cases import case

from hangdoc import api
from hangdoc.model.process import Local, Process, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

WRITER = "checkpoint"


def changed(
    job: JobSnapshot,
    change: Callable[[Thread], Thread | None],
    ranks: tuple[int, ...] = (0, 1, 2),
    name: str = WRITER,
) -> JobSnapshot:
    """The job with the writer's thread changed, or left out, on these ranks."""

    def process(found: Process) -> Process:
        looks = tuple(
            dataclasses.replace(
                look,
                threads=tuple(t for each in look.threads if (t := change(each) if each.name == name else each)),
            )
            for look in found.looks
        )
        return dataclasses.replace(found, looks=looks)

    def rank(found: RankSnapshot) -> RankSnapshot:
        return dataclasses.replace(found, process=process(found.process)) if found.rank in ranks else found

    return dataclasses.replace(job, ranks=tuple(map(rank, job.ranks)))


def code(job: JobSnapshot) -> str:
    found = api.diagnose(job)
    return found.cause.code if found.cause is not None else ""


def with_group(thread: Thread) -> Thread:
    """The thread, whose call was given a group of its own."""
    given = Local("kwargs", "{'…': <torch._C._distributed_c10d.ProcessGroup>}")
    frames = tuple(
        dataclasses.replace(frame, locals=(given,)) if frame.file.endswith("c10d_logger.py") else frame
        for frame in thread.frames
    )
    return dataclasses.replace(thread, frames=frames)


def test_every_rank_is_in_both_calls():
    assert code(api.load(case("async_checkpoint_attach"))) == "HD108"


def test_a_thread_with_a_group_of_its_own_races_with_nobody():
    assert code(changed(api.load(case("async_checkpoint_attach")), with_group)) == ""


def test_a_call_that_some_ranks_are_not_in_may_just_be_missing():
    assert code(changed(api.load(case("async_checkpoint_attach")), lambda _: None, (2,))) == ""


def in_group(name: str) -> Callable[[Thread], Thread]:
    def change(thread: Thread) -> Thread:
        frames = tuple(
            dataclasses.replace(
                frame,
                locals=tuple(dataclasses.replace(v, value=name) if v.name == "group.name" else v for v in frame.locals),
            )
            for frame in thread.frames
        )
        return dataclasses.replace(thread, frames=frames)

    return change


def test_a_group_that_the_frames_show_is_known():
    job = api.load(case("threads_of_one_shown_group_attach"))
    assert code(job) == "HD108"
    writer = next(t.name for t in job.ranks[0].process.last.threads if t.name.startswith("AsyncCheckpoint"))
    assert code(changed(job, in_group("2"), name=writer)) == ""
