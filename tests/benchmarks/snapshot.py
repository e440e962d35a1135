"""How long does `hangdoc diagnose` take for the snapshot of a large job in which several things went wrong at once?

    python tests/benchmarks/snapshot.py [--rounds N] [--guide] [--keep FILE]

64 hosts of 64 ranks in a mesh of three dimensions, 2,000 calls each from 200 different stacks, and four independent
faults. The calls that ranks have in common are one object, as in what a folder of dumps is read to. The file is
read, diagnosed and printed in processes of their own; how many of the four faults were named is printed as well.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from guide_pages import put_figures

from hangdoc.model.codec import dump_snapshot
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

TP, PP, DP = 8, 8, 64
RANKS = TP * PP * DP
CALLS = 2000
STACKS = 200
WINDOW = 60
"""The last calls: what a device has not completed is among them."""
START = 1_795_000_000 * 10**9
LAST = CALLS - WINDOW
ROW = "read, diagnosis and report of a snapshot: 4,096 ranks of a 3-D mesh, 200 stacks, 2,000 calls each, 4 faults"
MEMORY = "its peak memory"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
USER = "/job/project/train.py"


@dataclass(frozen=True, slots=True)
class Step:
    """A call as a rank's program issues it. ``line`` is also its stack."""

    group: str
    op: str
    line: int
    size: int


@dataclass(frozen=True, slots=True)
class Fault:
    """``ranks`` leave the others' program at call ``at``."""

    ranks: tuple[int, ...]
    at: int
    change: Callable[[list[Step]], list[Step]]
    """Of the steps from ``at`` on."""


def stack(line: int) -> Stack:
    """Ten user frames below one of torch."""
    return (Frame(C10D, 3000, "all_reduce"), Frame(USER, line, "train"),
            *(Frame(USER, 500 + i, f"outer_{i}") for i in range(9)))  # fmt: skip


def rank_at(d: int, p: int, t: int) -> int:
    return (d * PP + p) * TP + t


def groups_of(rank: int) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Kind → (name, members)."""
    rest, t = divmod(rank, TP)
    d, p = divmod(rest, PP)
    return {
        "tp": (f"tp_{d * PP + p}", tuple(rank_at(d, p, i) for i in range(TP))),
        "pp": (f"pp_{d * TP + t}", tuple(rank_at(d, i, t) for i in range(PP))),
        "dp": (f"dp_{p * TP + t}", tuple(rank_at(i, p, t) for i in range(DP))),
    }


def kind_at(number: int) -> str:
    """Of the call of that number."""
    return "dp" if number % 10 == 9 else "pp" if number % 5 == 2 else "tp"


def step(number: int, groups: dict[str, tuple[str, tuple[int, ...]]]) -> Step:
    place = number % STACKS
    return Step(groups[kind_at(number)][0], "nccl:all_reduce", place, place + 1)


FAULTS = (
    # 45 of the 64 ranks of a group do not issue what the others of it wait in: not one after the other.
    Fault(tuple(rank_at(i * 7 % DP, 0, 3) for i in range(46) if i * 7 % DP != 20), LAST + 19, lambda _: []),
    Fault((rank_at(9, 2, 4),), LAST + 29, lambda s: [Step(s[0].group, s[0].op, s[0].line, 7777), *s[1:]]),
    Fault((rank_at(20, 4, 1),), LAST + 13, lambda s: s[1:]),
    Fault((rank_at(41, 6, 6),), LAST + 22, lambda s: [Step(s[0].group, "nccl:barrier", STACKS, 1), *s]),
)  # fmt: skip


def simulated(steps: dict[int, list[Step]], members: dict[str, tuple[int, ...]]) -> dict[int, int]:
    """Rank → how many of its steps complete: one after the other, each once all members have come to the same."""
    done = dict.fromkeys(steps, 0)
    waiting = set(members)
    while waiting:
        for name in list(waiting):
            waiting.discard(name)
            fronts = [steps[r][done[r]] if done[r] < len(steps[r]) else None for r in members[name]]
            first = fronts[0]
            if first is None or first.group != name:
                continue
            if all(f is not None and (f.group, f.op, f.size) == (name, first.op, first.size) for f in fronts):
                for rank in members[name]:
                    done[rank] += 1
                    if done[rank] < len(steps[rank]):
                        waiting.add(steps[rank][done[rank]].group)
    return done


def job() -> JobSnapshot:
    """The job as its dumps show it, ten minutes after the devices came to rest."""
    groups = [groups_of(rank) for rank in range(RANKS)]
    members = {name: some for each in groups for name, some in each.values()}
    steps = {rank: [step(number, groups[rank]) for number in range(LAST, CALLS)] for rank in range(RANKS)}
    for fault in FAULTS:
        for rank in fault.ranks:
            at = fault.at - LAST
            steps[rank] = steps[rank][:at] + fault.change(steps[rank][at:])
    done = simulated(steps, members)
    process_groups = {
        name: ProcessGroup(name, some, f"mesh_{name.partition('_')[0]}") for name, some in members.items()
    }
    stacks = tuple(stack(10 + line) for line in range(STACKS + 1))
    made: dict[tuple[str, int, str, int, bool], Call] = {}
    ranks = []
    for rank in range(RANKS):
        numbers: dict[str, int] = {}
        calls = []
        for place in range(LAST + len(steps[rank])):
            each = step(place, groups[rank]) if place < LAST else steps[rank][place - LAST]
            completed = place < LAST + done[rank]
            number = numbers[each.group] = numbers.get(each.group, 0) + 1
            key = each.group, number, f"{each.op} {each.line}", each.size, completed
            call = made.get(key)
            if call is None:
                state = "completed" if completed else "scheduled"
                call = made[key] = Call(
                    each.group, number, number, each.op.removeprefix("nccl:"), each.line, ((each.size, 1024),),
                    ("Float",), START + place * 1_000_000, completed, 1, "python", 600_000, state=state,
                )  # fmt: skip
            calls.append(call)
        own = tuple(process_groups[name] for name, _ in groups[rank].values())
        ends = START + CALLS * 1_000_000
        journal = Journal(
            "dump", own, tuple(calls), stacks=stacks, written_ns=ends + 610 * 10**9, latest_ns=ends, moved_ns=ends
        )
        ranks.append(RankSnapshot(rank, f"node{rank // 64}", "dump", RANKS, journal=journal))
    return JobSnapshot(START / 1e9 + 2, "dump", world_size=RANKS, ranks=tuple(ranks))


def write(path: Path) -> None:
    """The job's snapshot."""
    dump_snapshot(job(), path)


def measured(command: list[str]) -> tuple[float, float, bytes]:
    """(seconds of CPU, MB, what it printed) of a command and its children."""
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 1:
            sys.exit(f"{' '.join(command)}: exit status {process.returncode}")
        output.seek(0)
        return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024 / 1e6, output.read()


def main() -> None:
    """Write, diagnose, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--guide", action="store_true", help="write the figures into hangdoc/guide")
    parser.add_argument("--keep", type=Path, help="leave the snapshot in this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hangdoc-snapshot-") as folder:
        path = options.keep or Path(folder) / "job.hangdoc"
        # In a process of its own: the peak of a command counts what it was forked from.
        writer = multiprocessing.Process(target=write, args=(path,))
        writer.start()
        writer.join()
        print(f"{path.stat().st_size / 1e6:.1f} MB", flush=True)
        command = [sys.executable, "-m", "hangdoc", "diagnose", str(path)]
        found = [measured(command) for _ in range(options.rounds)]
        print(found[0][2].decode())
        document = json.loads(measured([*command, "--json"])[2])
    culprits = set(document["culprits"])
    named = sum(culprits.issuperset(fault.ranks) for fault in FAULTS)
    innocent = len(culprits.difference(*(fault.ranks for fault in FAULTS)))
    times = [seconds for seconds, _, _ in found]
    memory = max(size for _, size, _ in found)
    middle = statistics.median(times)
    print(f"{middle:.2f} s of CPU ({min(times):.2f}-{max(times):.2f}), {memory:.0f} MB; "
          f"{named} of {len(FAULTS)} faults named, {innocent} innocent ranks")  # fmt: skip
    if options.guide:
        put_figures({ROW: f"{middle:.1f} s ({min(times):.1f} to {max(times):.1f})", MEMORY: f"{memory:.0f} MB"})


if __name__ == "__main__":
    main()
