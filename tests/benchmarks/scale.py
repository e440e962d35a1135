"""How long does a diagnosis take at scale?

    python tests/benchmarks/scale.py [RANKS …] [--rounds N] [--mesh] [--guide]

Builds snapshots in memory, by default of 512 and 4,096 ranks: 50 distinct behaviours, 2,000 calls each, no object
shared between ranks that a snapshot read from a file would not share. Prints the median time of ``diagnose`` and,
for several sizes, the growth against that of the ranks. ``--mesh`` adds the rows and columns of a square mesh.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

from hangdoc.diagnosis import diagnose
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

CALLS = 2000
BEHAVIOURS = 50
ROUND = 20
LARGEST = "diagnosis of 4,096 ranks, 50 behaviours, 2,000 calls each, on one core"
"""Calls of one round of the training loop."""
START = 1_700_000_000
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
USER = "/home/me/project/train.py"
DEPTH = 10


def stack(line: int) -> tuple[Frame, ...]:
    """A stack of ``DEPTH`` user frames below one of torch."""
    return (Frame(C10D, 3000, "all_reduce"), Frame(USER, line, "train"),
            *(Frame(USER, 500 + i, f"outer_{i}") for i in range(DEPTH)))  # fmt: skip


def behaviour(rank: int, size: int) -> int:
    """Most ranks behave alike; the last ones differ, two by two, in one of 49 ways."""
    odd = size - 1 - rank
    return odd // 2 + 1 if odd < 2 * (BEHAVIOURS - 1) and rank else 0


def journal(rank: int, size: int, mesh: int) -> Journal:
    """One rank's recorder. Behaviour 0 is healthy, number k has one call too many in its k-th last round."""
    kind = behaviour(rank, size)
    groups = [ProcessGroup("0", tuple(range(size)), "default_pg", "cpu:gloo")]
    if mesh:
        row = rank // mesh
        groups.append(ProcessGroup("1", tuple(range(row * mesh, row * mesh + mesh)), "mesh_row", "cpu:gloo"))
        groups.append(ProcessGroup("2", tuple(range(rank % mesh, size, mesh)), "mesh_column", "cpu:gloo"))
    stacks = tuple(stack(line) for line in range(10, 10 + ROUND)) + ((stack(99),) if kind else ())
    calls: list[Call] = []
    numbers = dict.fromkeys((g.name for g in groups), 0)
    extra = CALLS - ROUND * kind - 3

    def call(group: str, at: int) -> None:
        numbers[group] += 1
        count = len(calls)
        calls.append(
            Call(group, numbers[group], numbers[group], "barrier" if at == ROUND else "all_reduce", at,
                 ((at + 1, 1024),), ("Float",),
                 START * 10**9 + count * 1_000_000 + rank, count < CALLS - 1, 7_000_000 + rank, "MainThread", 1_800_000)
        )  # fmt: skip

    for number in range(CALLS):
        if len(calls) == CALLS:
            break
        if kind and number == extra:
            call("0", ROUND)
        place = number % ROUND
        call(groups[place % 3].name if mesh and place else "0", place)
    return Journal("probe", tuple(groups), tuple(calls[:CALLS]), stacks=stacks)


def job(size: int, *, mesh: bool) -> JobSnapshot:
    """The whole job, stuck."""
    side = round(size**0.5) if mesh else 0
    return JobSnapshot(
        taken=START + 60.0,
        mode="watch",
        stalled_for=30.0,
        stall_after=30.0,
        world_size=size,
        ranks=tuple(one_rank(rank, size, side) for rank in range(size)),
    )


def one_rank(rank: int, size: int, mesh: int) -> RankSnapshot:
    """A rank that waits in its last call."""
    record = journal(rank, size, mesh)
    looks = tuple(
        ProcessState(START + 59.0 + i, "S", threads=(
            Thread(1000 + rank, "MainThread", "S", "futex_do_wait", "202", frames=stack(10 + record.calls[-1].stack)),
            *(Thread(100_000 + rank * 4 + n, "pt_gloo_runloop", "S", "futex_do_wait", "202") for n in range(4)),
        ))
        for i in range(2)
    )  # fmt: skip
    process = Process(1000 + rank, 1, "rank", "python", looks=looks)
    return RankSnapshot(rank, f"node{rank // 8}", "probe", size, process=process, journal=record)


def main() -> None:
    """Build, diagnose, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ranks", nargs="*", type=int, default=[512, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mesh", action="store_true")
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide and README.md")
    options = parser.parse_args()
    figures: dict[str, str] = {}
    medians: list[float] = []
    for size in options.ranks:
        snapshot = job(size, mesh=options.mesh)
        gc.collect()
        times = []
        for _ in range(options.rounds):
            began = time.process_time()
            found = diagnose(snapshot)
            times.append(time.process_time() - began)
        medians.append(statistics.median(times))
        spread = f"{min(times):.2f}-{max(times):.2f}"
        print(
            f"{size} ranks: {medians[-1]:.2f} s ({spread}), {found.outcome}, {len(found.culprits)} culprits", flush=True
        )
        what = f"diagnosis of {size:,} ranks, 50 behaviours, 2,000 calls each, on one core"
        figures[what] = f"{medians[-1]:.1f} s ({min(times):.1f} to {max(times):.1f})"
        del snapshot, found
    if len(medians) > 1:
        growth = medians[-1] / medians[0]
        print(f"growth {growth:.1f} for {options.ranks[-1] / options.ranks[0]:.1f} times the ranks")
    if options.guide and options.ranks == [512, 4096]:
        put_figures(
            {
                LARGEST: figures[LARGEST],
                "the same for 8 times the ranks (512 to 4,096)": f"{medians[-1] / medians[0]:.1f} times as long",
            }
        )
    sys.exit(0)


if __name__ == "__main__":
    main()
