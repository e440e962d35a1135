"""Who is ahead of whom, by the loops that they are in, and whose peer is another one than its siblings'."""

from __future__ import annotations

from hangdoc.diagnosis.hypotheses.judge import suspected
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.process import Frame, Local, Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, Module, RankSnapshot, Written

JOB = "/job/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
TEXT = """\
def main(rank, peer):
    for epoch in range(3):
        for step, batch in enumerate(loader):
            if len(batch) == 0:
                skipped += 1
                continue
            dist.recv(block, src=peer)
"""
AHEAD, APART = "is further on than who waits for it", "its peer is at another distance"


def receiving(peer: int, epoch: int, step: int) -> Stack:
    values = (Local("epoch", str(epoch)), Local("step", str(step)))
    torch = Frame(C10D, 2000, "recv", (Local("src", str(peer)), Local("group_src", str(peer))))
    return (torch, Frame(JOB, 7, "main", values))


def job(*stacks: Stack, written: tuple[Written, ...] = ()) -> JobSnapshot:
    ranks = []
    for rank, frames in enumerate(stacks):
        threads = (Thread(100 + rank, "MainThread", "S", frames=frames),)
        process = Process(100 + rank, 1, "rank", looks=(ProcessState(1.0, "S", threads=threads),))
        ranks.append(RankSnapshot(rank, "host", "environment", len(stacks), process=process))
    modules = (Module(JOB, "", TEXT),)
    return JobSnapshot(2.0, "attach", world_size=len(stacks), ranks=tuple(ranks), modules=modules, written=written)


def test_the_rank_in_a_later_round_than_who_waits_for_it_has_left_one_out() -> None:
    found = suspected(prepared(job(receiving(2, 1, 7), receiving(0, 1, 9), receiving(1, 1, 7))))
    assert {ranks for ranks, kinds in found.items() if AHEAD in kinds} == {(1,)}


def test_the_outer_loop_counts_first() -> None:
    found = suspected(prepared(job(receiving(2, 1, 7), receiving(0, 2, 3), receiving(1, 1, 7))))
    assert AHEAD in found[(1,)]
    same = suspected(prepared(job(receiving(2, 1, 7), receiving(0, 1, 7), receiving(1, 1, 7))))
    assert not any(AHEAD in kinds for kinds in same.values())


def test_a_peer_at_another_distance_than_most() -> None:
    ring = [receiving((rank - 1) % 5, 1, 7) for rank in range(5)]
    odd = suspected(prepared(job(*ring[:3], receiving(1, 1, 7), ring[4])))
    assert APART in odd[(3,)]
    assert APART not in odd[(1,)]


def test_a_line_that_one_rank_alone_wrote() -> None:
    lines = tuple(Written(f"r{r}", ((JOB, 9),), r) for r in range(3))
    stacks = [receiving((rank - 1) % 3, 1, 7) for rank in range(3)]
    alone = suspected(prepared(job(*stacks, written=(*lines, Written("skipped", ((JOB, 5),), 2)))))
    assert {ranks for ranks, kinds in alone.items() if "wrote a line alone" in kinds} == {(2,)}
    assert not any("wrote a line alone" in kinds for kinds in suspected(prepared(job(*stacks, written=lines))).values())


def test_suites_that_leave_a_round() -> None:
    program = Program(modules=(Module(JOB, "", TEXT),))
    assert [line for line in range(1, 8) if program.leaves(JOB, line)] == [5, 6]
