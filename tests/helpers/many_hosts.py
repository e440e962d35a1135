"""A hung job on many hosts, host by host, as large as one likes."""

from __future__ import annotations

from functools import cache

from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, RankSnapshot

START = 1_700_000_000
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
USER = "/home/me/project/train.py"
DEPTH = 10
LINES = 20
"""Calls of one round of the training loop, each from a line of its own."""
NATIVE = 12
"""Threads of a rank that run no Python."""
PATIENCE = 30.0


def stack(line: int) -> tuple[Frame, ...]:
    """A stack of user frames below one of torch."""
    return (Frame(C10D, 3000, "all_reduce"), Frame(USER, line, "train"),
            *(Frame(USER, 500 + i, f"outer_{i}") for i in range(DEPTH)))  # fmt: skip


@cache
def unseen(rank: int, world: int) -> RankSnapshot:
    return RankSnapshot(rank, "", "expected", world)


def host(number: int, hosts: int, ranks: int, calls: int, *, with_expected: bool = True) -> JobSnapshot:
    """One host of the hung job, with the ranks of other hosts that every host expects.

    The last rank of the last host has issued one call too many, some rounds ago.
    """
    world = hosts * ranks
    own = range(number * ranks, number * ranks + ranks)
    pids = {rank: 10_000 + (rank * 7919) % 50_000 for rank in own}
    name = f"node{number:04}"
    address = f"10.{number >> 8}.{number & 255}.1"
    expected = tuple(unseen(rank, world) for rank in range(world if with_expected else 0) if rank not in own)
    shown = tuple(one_rank(rank, world, name, pids[rank], calls, odd=rank == world - 1) for rank in own)
    sockets = [
        Connection(pids[rank], address, 40_000 + (rank * 31 + n) % 20_000, f"10.0.{n}.1", 50_000 + n if n else 29_500,
                   "ESTABLISHED")
        for rank in own for n in range(24)
    ]  # fmt: skip
    ports = [ListeningPort(pids[rank], address, 30_000 + (rank * 13 + n) % 9000) for rank in own for n in range(3)]
    return JobSnapshot(
        taken=START + 60.0 + number * 0.001,
        mode="watch",
        command=("torchrun", "train.py"),
        stalled_for=PATIENCE,
        stall_after=PATIENCE,
        world_size=world,
        ranks=tuple(sorted((*shown, *expected), key=lambda rank: rank.rank)),
        hosts=(HostSnapshot(name, tuple(ports), tuple(sockets), 96, f"boot {number}"),),
    )


def one_rank(rank: int, world: int, name: str, pid: int, calls: int, *, odd: bool) -> RankSnapshot:
    """A rank that waits in its last call, with the threads that a rank has."""
    main = 139_000_000_000_000 + rank * 4096
    stacks = tuple(stack(line) for line in range(10, 10 + LINES)) + ((stack(99),) if odd else ())
    extra = calls - 3 * LINES if odd else -1
    record: list[Call] = []
    place_, issued = 0, 0
    while issued < calls:
        issued += 1
        if issued == extra:
            at = LINES
        else:
            at, place_ = place_ % LINES, place_ + 1
        record.append(
            Call("0", issued, issued, "barrier" if at == LINES else "all_reduce", at, ((at + 1, 1024),), ("Float",),
                 START * 10**9 + issued * 1_000_000 + rank * 17, issued < calls, main, "MainThread", 1_800_000)
        )  # fmt: skip
    groups = (ProcessGroup("0", tuple(range(world)), "default_pg", "cpu:gloo"),)
    journal = Journal("probe", groups, tuple(record), stacks=stacks, counters=(("0", calls, calls - 1),))
    now = stacks[record[-1].stack]
    loader = (Frame("/usr/lib/python3.11/selectors.py", 415, "select"), Frame(USER, 70, "prefetch"))

    def threads(look: int) -> tuple[Thread, ...]:
        python = [
            Thread(pid, "python", "S", "futex_do_wait", f"202 0x7f{rank:04x}00 0x80", 12.0, 900 + look, None, main,
                   active=False, owns_gil=False, frames=now),
            Thread(pid + 1, "python", "S", "ep_poll", f"232 0x{rank % 9} 0x7f{rank:04x}10", 0.5, 70, None, main + 512,
                   active=False, owns_gil=False, frames=loader),
        ]  # fmt: skip
        native = [
            Thread(pid + 2 + n, "pt_gloo_runloop", "S", "ep_poll", f"232 0x{n} 0x7f{rank:04x}{n:02x}0", 0.1, 50 + n)
            for n in range(NATIVE)
        ]
        return (*python, *native)

    looks = tuple(
        ProcessState(START + 59.0 + look, "S", 0, 20.0 + rank % 7, 1000, 1000, threads(look)) for look in range(2)
    )
    process = Process(
        pid, 100, "rank", "python", ("python", "train.py", "--batch", "8"), START - 60.0, looks, cwd="/home/me"
    )
    environment = (("RANK", str(rank)), ("WORLD_SIZE", str(world)), ("LOCAL_RANK", str(rank % 8)),
                   ("MASTER_ADDR", "10.0.0.1"), ("MASTER_PORT", "29500"), ("TORCHELASTIC_RUN_ID", "none"))  # fmt: skip
    return RankSnapshot(rank, name, "probe", world, rank % 8, 0, environment, process, journal=journal,
                        first_store=(Frame(C10D, 1700, "init_process_group"), Frame(USER, 3, "main")))  # fmt: skip
