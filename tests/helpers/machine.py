"""A made-up machine: a process table with the jobs that the launchers would have put there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hangdoc.capture.find.process_table import Entry, ProcessTable
from hangdoc.capture.read.sockets import Sockets
from hangdoc.capture.read.stacks import PythonThread
from hangdoc.model.process import Frame, Local
from hangdoc.model.snapshot import Unavailable

SPAWN = "/v/lib/python3.11/site-packages/torch/multiprocessing/spawn.py"
BOOTSTRAP = "/usr/lib/python3.11/multiprocessing/process.py"
SPAWN_ARGV = ("python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")


@dataclass(frozen=True)
class MadeUpEntry(Entry):
    """A process of which everything is known beforehand."""

    argv: tuple[str, ...] = ()
    user: int = 0
    environment: Mapping[str, str] | None = None


@dataclass
class Machine:
    """Processes are added parents first; what the environment of a parent holds its children inherit."""

    entries: dict[int, MadeUpEntry] = field(default_factory=dict)
    not_python: set[int] = field(default_factory=set)
    without_torch: set[int] = field(default_factory=set)
    frames: dict[int, tuple[Frame, ...]] = field(default_factory=dict)
    networks: dict[int, str] = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)
    asked: list[int] = field(default_factory=list)
    _next: int = 100

    def __post_init__(self) -> None:
        self.add(0, pid=1, comm="init", python=False)

    def add(
        self,
        ppid: int,
        comm: str = "python",
        argv: tuple[str, ...] = ("python", "train.py"),
        *,
        pid: int | None = None,
        state: str = "S",
        python: bool = True,
        torch: bool = True,
        user: int = 0,
        **variables: str,
    ) -> int:
        if pid is None:
            # Ids that do not grow with age: a pid counter wraps around.
            self._next = (self._next * 7919 + 13) % 30011 + 100
            while self._next in self.entries:
                self._next += 1
            pid = self._next
        inherited = self.entries[ppid].variables if ppid in self.entries else {}
        environment = {name: value for name, value in {**inherited, **variables}.items() if value}
        if not python:
            self.not_python.add(pid)
        if not python or not torch:
            self.without_torch.add(pid)
        self.entries[pid] = MadeUpEntry(
            pid, ppid, float(len(self.entries)), state, comm, argv=argv, user=user, environment=environment
        )
        return pid

    def shell(self, ppid: int = 1) -> int:
        return self.add(ppid, "bash", ("bash",), python=False)

    def torchrun(self, ppid: int, count: int, port: int, **variables: str) -> tuple[int, dict[int, int]]:
        agent = self.add(ppid, "pt_elastic", ("python", "/v/bin/torchrun", "train.py"))
        ranks = {
            rank: self.add(
                agent,
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(count),
                MASTER_ADDR="localhost",
                MASTER_PORT=str(port),
                TORCHELASTIC_RUN_ID="none",
                TORCHELASTIC_RESTART_COUNT="0",
                **variables,
            )
            for rank in range(count)
        }
        return agent, ranks

    def by_hand(self, parents: list[int], port: int, **variables: str) -> dict[int, int]:
        return {
            rank: self.add(
                parent,
                RANK=str(rank),
                WORLD_SIZE=str(len(parents)),
                MASTER_ADDR="localhost",
                MASTER_PORT=str(port),
                **variables,
            )
            for rank, parent in enumerate(parents)
        }

    def mpirun(self, ppid: int, count: int, namespace: str) -> tuple[int, dict[int, int]]:
        launcher = self.add(ppid, "mpirun", ("mpirun", "python", "train.py"), python=False)
        ranks = {
            rank: self.add(
                launcher,
                OMPI_COMM_WORLD_RANK=str(rank),
                OMPI_COMM_WORLD_SIZE=str(count),
                PMIX_NAMESPACE=namespace,
            )
            for rank in range(count)
        }
        return launcher, ranks

    def slurm(self, count: int, job: str, step: str = "0") -> tuple[int, dict[int, int]]:
        daemon = self.add(1, "slurmstepd", (f"slurmstepd: [{job}.{step}]",), python=False)
        ranks = {
            rank: self.add(
                daemon,
                SLURM_PROCID=str(rank),
                SLURM_NTASKS=str(count),
                SLURM_LOCALID=str(rank),
                SLURM_JOB_ID=job,
                SLURM_STEP_ID=step,
            )
            for rank in range(count)
        }
        return daemon, ranks

    def lightning(self, ppid: int, count: int, port: int) -> tuple[int, dict[int, int]]:
        main = self.add(ppid)
        scripts = {
            local: self.add(
                main,
                LOCAL_RANK=str(local),
                NODE_RANK="0",
                WORLD_SIZE=str(count),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=str(port),
            )
            for local in range(1, count)
        }
        return main, {0: main, **scripts}

    def spawn(self, ppid: int, count: int) -> tuple[int, dict[int, int]]:
        parent = self.add(ppid)
        self.add(parent, "python", ("python", "-c", "from multiprocessing.resource_tracker import main;main(4)"))
        ranks = {rank: self.add(parent, "python", SPAWN_ARGV) for rank in range(count)}
        for rank, pid in ranks.items():
            self.frames[pid] = (
                Frame("/home/me/train.py", 5, "work", (Local("rank", str(rank), True),)),
                Frame(SPAWN, 90, "_wrap", (Local("i", str(rank), True),)),
                Frame(BOOTSTRAP, 314, "BaseProcess._bootstrap"),
            )
        return parent, ranks

    def table(self) -> MadeUp:
        return MadeUp(self)


class MadeUp(ProcessTable):
    """The table of a made-up machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine.entries)
        self.machine = machine

    def read_is_python(self, pid: int) -> bool:
        return pid not in self.machine.not_python

    def read_has_torch(self, pid: int) -> bool | None:
        return None if pid in self.machine.hidden else pid not in self.machine.without_torch

    def read_stacks(self, pids: list[int]) -> Mapping[int, tuple[PythonThread, ...] | Unavailable]:
        self.machine.asked += pids
        return {
            pid: (PythonThread(pid, "MainThread", 1, False, False, self.machine.frames[pid]),)
            if pid in self.machine.frames
            else Unavailable("stack", "none made up")
            for pid in pids
        }

    def sockets(self, pids: object) -> Sockets:
        return Sockets()

    def network_namespace(self, pid: int) -> str:
        return self.machine.networks.get(pid, "net:[1]")
