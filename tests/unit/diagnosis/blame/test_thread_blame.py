"""A rank is blamed for what its server thread waits for, only where nobody who works may set it free."""

from __future__ import annotations

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.blame.thread_blame import ThreadWait, thread_wait
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.state.threads import End
from hangdoc.model.process import Frame, Local, OpenFile, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE, LIBRARY = "/job/serve.py", "/usr/lib/python3.11"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
SERVE = SourceText(FILE, "serve", 10, "def serve(link, box):\n    while link.recv(1):\n        link.sendall(box.get())")
GET = (Frame(f"{LIBRARY}/threading.py", 327, "Condition.wait"), Frame(f"{LIBRARY}/queue.py", 171, "Queue.get"))


def thread(tid: int, *frames: Frame, state: str = "S") -> Thread:
    return Thread(tid, f"thread-{tid}", state, "futex_do_wait", frames=frames)


def rank(number: int, *threads: Thread, files: tuple[OpenFile, ...] = ()) -> RankSnapshot:
    looks = tuple(ProcessState(moment, "S", threads=threads) for moment in (0.0, 1.0))
    process = Process(threads[0].tid, 1, "rank", looks=looks, blocking_files=files)
    return RankSnapshot(number, "node", "probe", 3, process=process)


def receives(source: int) -> tuple[Frame, ...]:
    local = (Local("src", str(source), argument=True),)
    return Frame(C10D, 9, "recv", local), Frame(FILE, 30, "train")


@pytest.mark.parametrize(("source", "blamed"), [(1, (0,)), (2, None)])
def test_a_rank_whose_main_thread_waits_for_one_that_works_is_not_blamed(
    source: int, blamed: tuple[int, ...] | None
) -> None:
    link = (OpenFile(3, "socket:unix 7 to 8", (10,), "recvfrom"),)
    ranks = (
        rank(0, thread(10, *receives(source)), thread(11, *GET, Frame(FILE, 12, "serve"))),
        rank(
            1, Thread(20, "MainThread", "S", "unix_stream_read_generic", frames=(Frame(FILE, 40, "ask"),)), files=link
        ),
        rank(2, thread(30, Frame(FILE, 50, "work"), state="R")),
    )
    job = JobSnapshot(1.0, "watch", world_size=3, ranks=ranks, sources=(SERVE,))
    found = thread_wait(Case(job))
    assert (found and found.culprits) == blamed
    assert found is None or not found.proved


@pytest.mark.parametrize(
    ("name", "culprits", "end"),
    [
        ("sample_server", (0,), End.OUTSIDE),
        ("locked_server", (0,), End.CALL),
        ("remote_locks_crossed", (0, 1), End.CIRCLE),
    ],
)
def test_who_can_let_the_threads_go_on(name: str, culprits: tuple[int, ...], end: End) -> None:
    found = thread_wait(Case(api.load(case(name))))
    assert found is not None
    assert (found.culprits, found.proved) == (culprits, end is not End.OUTSIDE)
    assert isinstance(found.found, ThreadWait)
    assert found.found.chain.end is end


@pytest.mark.parametrize("name", ["idle_server", "silent_uploader", "remote_call"])
def test_what_only_the_waiting_rank_can_end_is_no_others_fault(name: str) -> None:
    assert thread_wait(Case(api.load(case(name)))) is None
