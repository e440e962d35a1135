"""A two-node torchrun that hangs, each node in namespaces of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from conftest import MARK, end_all
from hosts import Host, Hosts
from standing_still import wait_until_still

PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "attached.py"
HANGDOC = [sys.executable, "-m", "hangdoc"]
RUN_ID = "two; hosts"  # a shell would read this as two commands
START_SECONDS = 150.0
Starter = Callable[[Sequence[Host], Path, dict[str, str]], list[tuple[Host, list[str]]]]


@dataclass
class Job:
    """The hung job: rank 1, on the first host, waits in a barrier and ranks 0, 2 and 3 in an all_reduce."""

    hosts: Sequence[Host]
    pids: dict[int, int]
    """By rank; each as its own host counts."""
    folder: Path
    environment: dict[str, str]

    @property
    def rsh(self) -> str:
        """A command that enters a host by its name, and one that sleeps for the host 'asleep'."""
        script = self.folder / "rsh"
        if not script.exists():
            cases = "".join(f'{host.name}) exec {shlex.join(host.enter)} "$@" ;;\n' for host in self.hosts)
            script.write_text(f"#!/bin/sh\nhost=$1; shift\ncase $host in\n{cases}asleep) exec sleep 60 ;;\nesac\n")
            script.write_text(script.read_text() + "echo no such host >&2; exit 255\n")
            script.chmod(0o700)
        return f"{script} {{host}}"

    def attach(self, *words: str, at: Host | None = None) -> subprocess.CompletedProcess[str]:
        """Run `hangdoc attach` beside the hosts, or on one of them."""
        return subprocess.run(
            [*(at.enter if at is not None else []), *HANGDOC, "attach", *words],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def outer_pid(self, rank: int) -> int:
        """The rank's process as it is counted outside of its host."""
        tables = (Path(f"/proc/{entry}/status") for entry in os.listdir("/proc") if entry.isdecimal())
        host = self.hosts[rank // 2]
        space = os.readlink(f"/proc/{host.pid}/ns/pid")
        for table in tables:
            with suppress(OSError):  # somebody else's, who has ended meanwhile
                lines = dict(line.partition(":")[::2] for line in table.read_text().splitlines())
                if lines["NSpid"].split()[-1] == str(self.pids[rank]) and os.readlink(table.parent / "ns/pid") == space:
                    return int(table.parent.name)
        raise AssertionError(f"no process of rank {rank}")


@contextmanager
def running(folder: Path, how: Starter | None = None) -> Iterator[Job]:
    """The job, once it hangs; gone afterwards. ``folder``: empty, for its marks and logs. ``how``: by torchrun, unless
    it gives other command lines, each with the host to start it on; it may add to the environment."""
    marks = folder / "marks"
    marks.mkdir()
    mark = f"hosts-{os.getpid()}-{time.monotonic_ns()}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment = {**clean, MARK: mark, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "COLUMNS": "200"}
    namespaces = Hosts("alpha", "beta", environment=environment)
    hosts = [*namespaces]
    try:
        lines = (how or _by_torchrun)(hosts, marks, environment)
        launchers = [
            host.start(line, folder / f"{number}.log", environment) for number, (host, line) in enumerate(lines)
        ]
        _wait_for_the_marks(marks, launchers, folder)
        pids = {int(path.name.split(".")[0]): int(path.name.split(".")[1]) for path in marks.iterdir()}
        job = Job(hosts, pids, folder, environment)
        wait_until_still(map(job.outer_pid, pids))
        yield job
    finally:
        end_all(mark)
        namespaces.close()


def _by_torchrun(hosts: Sequence[Host], marks: Path, environment: dict[str, str]) -> list[tuple[Host, list[str]]]:
    return [(host, _torchrun(host, hosts[0], marks)) for host in hosts]


def _torchrun(host: Host, first: Host, marks: Path) -> list[str]:
    words = ["--nnodes=2", "--nproc-per-node=2", f"--rdzv-id={RUN_ID}", "--rdzv-backend=c10d"]
    words += [f"--rdzv-endpoint={first.address}:29400", f"--local-addr={host.address}"]
    words += [f"--rdzv-conf=is_host={int(host is first)}"]
    return [sys.executable, "-m", "torch.distributed.run", *words, str(PROGRAM), "environment", str(marks)]


def _wait_for_the_marks(marks: Path, launchers: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    logs = lambda: "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))  # noqa: E731
    while len(list(marks.iterdir())) < 4:
        assert all(launcher.poll() is None for launcher in launchers), logs()
        assert time.monotonic() < deadline, logs()
        time.sleep(0.2)
