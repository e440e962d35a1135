"""A job frozen by hand, whose ranks ask at their standard input, read from it, or have arrived at a barrier."""

from __future__ import annotations

from hangdoc.model.codec import snapshot_from_bytes, snapshot_to_bytes
from hangdoc.model.process import Frame, OpenFile, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/job/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
MAIN = """\
def main():
    if input("overwrite? ") == "y":
        write()
    barrier()
    for line in sys.stdin:
        use(line)
"""
ASKS, ARRIVES, READS = 2, 4, 5


def job(*lines: int, target: str, mode: str = "watch", stalled_for: float = 5.0) -> JobSnapshot:
    """One rank at each line; those that read do so from ``target``."""
    ranks = []
    for rank, line in enumerate(lines):
        user = Frame(FILE, line, "main")
        below = (Frame(C10D, 4000, "barrier"),) if line == ARRIVES else ()
        frames = (*below, user, Frame(FILE, 9, "<module>"))
        thread = Thread(100 + rank, "python", "S", "futex_wait_queue" if line == ARRIVES else "", frames=frames)
        looks = tuple(ProcessState(at, "S", threads=(thread,)) for at in (99.0, 100.0))
        files = () if line == ARRIVES else (OpenFile(0, target, (7,), "read"),)
        process = Process(100 + rank, 99, "rank", "python", looks=looks, blocking_files=files)
        ranks.append(RankSnapshot(rank, "host", "environment", len(lines), process=process))
    frozen = JobSnapshot(
        taken=100.0,
        mode=mode,
        stalled_for=stalled_for,
        world_size=len(lines),
        ranks=tuple(ranks),
        sources=(SourceText(FILE, "main", 1, MAIN),),
    )
    return snapshot_from_bytes(snapshot_to_bytes(frozen))
