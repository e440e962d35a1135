"""Most ranks wait at one line and one is past it: not for every wait is that one to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame, OpenFile, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/job/train.py"
BARRIER = Frame("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 4800, "barrier")
SOURCE = """\
import time
if wants_to_sleep:
    time.sleep(600)
while not turn.value:
    time.sleep(0.1)
reply = sock.recv(10)
data = handle.read()
dist.barrier()
"""
MANY = (0, 1, 3)


def told(line: int, file: OpenFile | None = None, *, wakes_in: float | None = None, child: bool = False) -> Diagnosis:
    """The diagnosis where ranks 0, 1 and 3 wait at that line, and rank 2 is in the barrier."""
    channel = "hrtimer_nanosleep" if wakes_in is not None else "wait_woken"
    waiting = Thread(1, "python", "S", channel, wakes_in=wakes_in, owns_gil=False, frames=(at(line),))
    meeting = Thread(1, "python", "S", "futex_wait_queue", owns_gil=False, frames=(BARRIER, at(8)))
    ranks = [
        RankSnapshot(rank, "node", "procfs", process=process(1000 + rank, waiting if rank in MANY else meeting, file))
        for rank in range(4)
    ]
    if child:
        at_work = process(2000, replace(waiting, state="R", frames=()), None, seconds=1.0)
        owner = ranks[2].process
        ranks[2] = replace(ranks[2], process=owner and replace(owner, children=(replace(at_work, role="child"),)))
    job = JobSnapshot(
        taken=101.0,
        mode="watch",
        ranks=tuple(ranks),
        world_size=4,
        sources=(SourceText(FILE, "<module>", 1, SOURCE),),
        stalled_for=100.0,
    )
    return api.diagnose(job)


def at(line: int) -> Frame:
    return Frame(FILE, line, "<module>")


def process(pid: int, main: Thread, file: OpenFile | None, seconds: float = 0.0) -> Process:
    waits = file is not None and main.frames[:1] != (BARRIER,)
    looks = tuple(
        ProcessState(100.0 + look, main.state, threads=(replace(main, tid=pid, cpu=look * seconds),)) for look in (0, 1)
    )
    return Process(pid, 1, "rank", looks=looks, blocking_files=(file,) if file is not None and waits else ())


def receives(there: str, *peers: int) -> OpenFile:
    return OpenFile(7, f"socket:tcp 127.0.0.1:4444 to {there} (ESTABLISHED)", peers, "recvfrom")


def test_a_poll_for_what_others_change_is_the_few_s_fault() -> None:
    found = told(5, wakes_in=0.1)
    assert (found.culprits, found.alternatives) == ((2,), ())


def test_a_long_sleep_waits_for_nobody() -> None:
    found = told(3, wakes_in=590.0)
    assert (found.outcome, found.culprits) == ("slow", MANY)


@pytest.mark.parametrize(
    ("line", "file"), [(6, receives("52.1.2.3:443")), (7, OpenFile(7, "/nfs/data.bin", operation="read"))]
)
def test_a_server_or_a_file_system_elsewhere_is_no_rank_s_fault(line: int, file: OpenFile) -> None:
    found = told(line, file)
    assert (found.outcome, found.culprits) == ("slow", MANY)


def test_a_service_beside_the_job_leaves_it_open() -> None:
    found = told(6, receives("127.0.0.1:6379", 77))
    assert (found.outcome, found.culprits, found.alternatives) == ("slow", (2,), (MANY,))
    assert found.confidence == "possible"


def test_a_child_that_works_may_bring_it() -> None:
    for file in (OpenFile(7, "pipe:[99]", (2000,), "read"), receives("127.0.0.1:9", 2000)):
        found = told(7, file, child=True)
        assert (found.outcome, found.culprits) == ("slow", (2,)), "the child is rank 2's"
    assert told(7, OpenFile(7, "pipe:[99]", (1002,), "read")).outcome == "hang"
