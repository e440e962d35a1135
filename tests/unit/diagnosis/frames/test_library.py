"""Whose code is a frame, where torch is not where packages are: built in a checkout, installed editable."""

from __future__ import annotations

import gzip

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.frames.library import LibraryFrame, is_library, roots_of, with_library_frames
from hangdoc.diagnosis.state.process import kind_mark
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

INSTALLED = "/python/lib/python3.11/site-packages/torch/"
CHECKOUT = "/home/someone/pytorch/torch/"


def moved(name: str, *, said: bool) -> JobSnapshot:
    """A saved job whose torch lies in a checkout; ``said``: the ranks' probe told so."""
    text = gzip.decompress((case(name)).read_bytes()).decode()
    assert INSTALLED in text
    told = CHECKOUT.rstrip("/") if said else "/python/lib/python3.11"
    text = text.replace(INSTALLED, CHECKOUT).replace(f'"{INSTALLED.rstrip("/")}"', f'"{told}"')
    return snapshot_from_bytes(text.encode())


@pytest.mark.parametrize("said", [True, False])
@pytest.mark.parametrize("name", ["uneven_batches", "fsdp2_layer_drop", "late_wait_attached"])
def test_the_verdict_is_the_same(name: str, said: bool) -> None:
    job = moved(name, said=said)
    expected = api.diagnose(case(name))
    found = api.diagnose(job)
    assert roots_of(job) == (CHECKOUT.rstrip("/"),)
    assert (found.verdict, found.why, found.culprits) == (expected.verdict, expected.why, expected.culprits)


def test_what_is_known_of_one_job_is_known_of_its_frames_alone() -> None:
    frame = Frame(f"{CHECKOUT}nn/functional.py", 7, "linear")
    assert not is_library(frame)
    job = moved("uneven_batches", said=True)
    marked = {frame.file for frame in frames(with_library_frames(job)) if isinstance(frame, LibraryFrame)}
    assert marked
    assert all(file.startswith(CHECKOUT) for file in marked)
    assert {f.file for f in frames(job)} == {f.file for f in frames(with_library_frames(job))}
    assert not any(isinstance(frame, LibraryFrame) for frame in frames(job))


def test_the_methods_of_a_managers_proxy_are_library_code_and_other_strings_are_not() -> None:
    call = Frame("/usr/lib/python3.11/multiprocessing/managers.py", 822, "BaseProxy._callmethod")
    proxy, typed = Frame("<string>", 2, "put"), Frame("<string>", 9, "<module>")
    thread = Thread(7, "MainThread", "S", frames=(call, proxy, typed))
    process = Process(7, 1, "rank", looks=(ProcessState(0.0, "S", threads=(thread,)),))
    job = JobSnapshot(1.0, "attach", ranks=(RankSnapshot(0, "node", "probe", process=process),))
    marked = with_library_frames(job).ranks[0].process
    assert marked is not None
    assert marked.last is not None
    assert [is_library(frame) for frame in marked.last.threads[0].frames] == [True, True, False]
    mark = kind_mark(marked.last.threads[0].frames)
    assert mark is not None
    assert mark.kind == ActivityKind.PIPE


def frames(job: JobSnapshot) -> list[Frame]:
    return [frame for rank in job.ranks if rank.journal for stack in rank.journal.stacks for frame in stack]


def test_an_ordinary_installation_needs_no_roots() -> None:
    job = api.load(case("uneven_batches"))
    assert roots_of(job) == ()
    assert with_library_frames(job) is job
