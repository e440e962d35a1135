"""What ranks need of others, where it is no call, and which of them could give it."""

from __future__ import annotations

from collections.abc import Mapping

from hangdoc.diagnosis.needs.need import NeedKind, Reach
from hangdoc.diagnosis.needs.needs import Needs
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.process import Frame, OpenFile, Process, ProcessState, Stack, Thread
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import JobSnapshot, Module, RankSnapshot

JOB = "/job/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TEXT = """\
def publish(path):
    path.touch()

def take(path):
    while not path.exists():
        time.sleep(1)

def main(path):
    if rank == 0:
        publish(path)
    else:
        take(path)
    dist.barrier()
    jobs.get()
    conn.recv()
"""
IN_CALL = (Frame(C10D, 3000, "barrier"), Frame(JOB, 13, "main"))
POLLS = (Frame(JOB, 6, "take"), Frame(JOB, 12, "main"))
QUEUE = (Frame("/usr/lib/python3.11/queue.py", 171, "Queue.get"), Frame(JOB, 14, "main"))
READS = (Frame(JOB, 15, "main"),)


def job(
    *stacks: Stack,
    ran: Mapping[int, tuple[int, ...]] | None = None,
    files: Mapping[int, tuple[OpenFile, ...]] | None = None,
    children: Mapping[int, int] | None = None,
) -> JobSnapshot:
    """Ranks with these stacks; those that sleep are in a sleep of the kernel's. ``ran``: rank → the lines that have
    run of publish() and take()."""
    ranks = []
    for rank, frames in enumerate(stacks):
        channel = "hrtimer_nanosleep" if frames == POLLS else None
        threads = (Thread(100 + rank, "MainThread", "S", channel, frames=frames),)
        looks = tuple(ProcessState(float(at), "S", threads=threads) for at in (1, 2))
        code = [published(lines) for lines in [(ran or {}).get(rank)] if lines is not None]
        below = tuple(Process(pid, 100 + rank, "child") for pid in [(children or {}).get(rank)] if pid)
        process = Process(
            *(100 + rank, 1, "rank"),
            looks=looks,
            code=tuple(code),
            blocking_files=(files or {}).get(rank, ()),
            children=below,
        )
        ranks.append(RankSnapshot(rank, "host", "environment", len(stacks), process=process))
    return JobSnapshot(2.0, "attach", world_size=len(stacks), ranks=tuple(ranks), modules=(Module(JOB, "", TEXT),))


def published(lines: tuple[int, ...]) -> RanCode:
    """What has run of publish()."""
    came = 2 in lines
    return RanCode(JOB, "publish", 1, came, (2,) if came else (), () if came else (2,))


def needs_of(of: JobSnapshot) -> Needs:
    return Needs(prepared(of))


def socket(*peers: int) -> tuple[OpenFile, ...]:
    return (OpenFile(3, "socket:tcp 127.0.0.1:5 to 127.0.0.1:6 (ESTABLISHED)", peers, "recvfrom"),)


def test_a_file_is_needed_of_any_that_does_not_wait_for_it() -> None:
    found = needs_of(job(IN_CALL, POLLS, POLLS, ran={0: (2,), 1: (), 2: ()}))
    need = found.by_rank[1]
    assert (need.kind, need.reach, need.identity) == (NeedKind.FILE, Reach.JOB, "path")
    assert (need.on, need.either) == ((0,), True)
    (shared,) = found.shared
    assert (shared.waiting, shared.could) == ((1, 2), (0,))
    assert (shared.gave, shared.never, shared.took) == ({0}, {1, 2}, {1, 2})
    assert found.graph.stuck == {0, 1, 2}
    assert found.graph.dissolves((0,))
    assert not found.graph.dissolves((1,))


def test_without_counters_nobody_is_known_to_have_given_it() -> None:
    (shared,) = needs_of(job(IN_CALL, POLLS, POLLS)).shared
    assert (shared.gave, shared.never) == (frozenset(), frozenset())


def test_where_all_wait_one_of_them_has_to_give_it() -> None:
    (shared,) = needs_of(job(POLLS, POLLS)).shared
    assert (shared.waiting, shared.could) == ((0, 1), ())


def test_threads_of_a_process_share_its_queues_alone() -> None:
    need = needs_of(job(QUEUE, IN_CALL)).by_rank[0]
    assert (need.kind, need.reach, need.on) == (NeedKind.ITEM, Reach.OWN, ())


def test_whose_data_is_read_the_other_end_tells() -> None:
    of_rank = needs_of(job(READS, IN_CALL, files={0: socket(101)})).by_rank[0]
    assert (of_rank.kind, of_rank.reach, of_rank.on, of_rank.either) == (NeedKind.ITEM, Reach.JOB, (1,), False)
    of_child = needs_of(job(READS, IN_CALL, files={0: socket(500)}, children={0: 500})).by_rank[0]
    assert (of_child.reach, of_child.on) == (Reach.OWN, ())
    of_nobody = needs_of(job(READS, IN_CALL, files={0: socket()})).by_rank[0]
    assert (of_nobody.reach, of_nobody.on) == (Reach.OUTSIDE, ())


def test_a_child_that_several_ask_serves_them_and_owes_nothing() -> None:
    """A manager of rank 0's: ranks 1 and 2 wait for its answer, and rank 3 could still ask it."""
    asking = {1: socket(500), 2: socket(500)}
    found = needs_of(job(IN_CALL, READS, READS, IN_CALL, files=asking, children={0: 500}))
    (shared,) = found.shared
    assert (shared.waiting, shared.could, shared.asked) == ((1, 2), (3,), True)
    assert found.by_rank[1].on == (3,)


def test_of_a_locked_file_the_kernel_says_who_holds_it() -> None:
    waits = (Frame(JOB, 15, "main"),)
    lock = (OpenFile(3, "/job/a.lock", (101,), "flock"),)
    found = needs_of(job(waits, IN_CALL, files={0: lock}))
    assert found.holders(0) == (1,)
    assert found.holders(1) == ()
