"""A real job on two hosts, each in namespaces of its own: captured there, joined here."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import namespaces
import pytest
from conftest import MARK, end_all
from namespaces import Host

from hangdoc.capture.read import procfs
from hangdoc.model.codec import load_snapshot

_MISSING = namespaces.missing()
pytestmark = [pytest.mark.timeout(240), pytest.mark.skipif(bool(_MISSING), reason=_MISSING or "-")]
PROGRAM = Path(__file__).parent / "programs" / "attached.py"
HANGDOC = [sys.executable, "-m", "hangdoc"]
RUN_ID = "two; hosts"  # a shell would read this as two commands
START_SECONDS = 150.0


@dataclass
class Job:
    """The hung job: rank 1, on the first host, waits in a barrier and ranks 0, 2 and 3 in an all_reduce."""

    hosts: tuple[Host, Host]
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
        enter = at.enter if at is not None else []
        return subprocess.run(
            [*enter, *HANGDOC, "attach", "--remote-hangdoc", shlex.join(HANGDOC), *words][:None],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("hosts")
    marks = folder / "marks"
    marks.mkdir()
    mark = f"hosts-{os.getpid()}-{time.monotonic_ns()}"
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment = {**clean, MARK: mark, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "COLUMNS": "200"}
    hosts = namespaces.two_hosts(("alpha", "beta"), environment)
    try:
        launchers = [
            host.start(_torchrun(host, hosts[0], marks), folder / f"{host.name}.log", environment) for host in hosts
        ]
        _wait_until_it_hangs(marks, launchers, folder)
        pids = {int(path.name.split(".")[0]): int(path.name.split(".")[1]) for path in marks.iterdir()}
        yield Job(hosts, pids, folder, environment)
    finally:
        end_all(mark)
        namespaces.end(hosts)


def _torchrun(host: Host, first: Host, marks: Path) -> list[str]:
    words = ["--nnodes=2", "--nproc-per-node=2", f"--rdzv-id={RUN_ID}", "--rdzv-backend=c10d"]
    words += [f"--rdzv-endpoint={first.address}:29400", f"--local-addr={host.address}"]
    words += [f"--rdzv-conf=is_host={int(host is first)}"]
    return [sys.executable, "-m", "torch.distributed.run", *words, str(PROGRAM), "environment", str(marks)]


def _wait_until_it_hangs(marks: Path, launchers: list[subprocess.Popen[bytes]], folder: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    logs = lambda: "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.log"))  # noqa: E731
    while len(list(marks.iterdir())) < 4:
        assert all(launcher.poll() is None for launcher in launchers), logs()
        assert time.monotonic() < deadline, logs()
        time.sleep(0.2)
    time.sleep(1)
    _ = procfs


def test_every_host_captures_its_own_ranks_and_the_files_are_joined(job: Job, tmp_path: Path) -> None:
    files = []
    for host, rank in zip(job.hosts, (0, 2), strict=True):
        done = host.run(*HANGDOC, "capture", str(job.pids[rank]), env=job.environment)
        assert done.returncode == 0, done.stderr
        files.append(tmp_path / f"{host.name}.hangdoc")
        files[-1].write_bytes(done.stdout)
        snapshot = load_snapshot(files[-1])
        assert {each.rank for each in snapshot.ranks if each.process} == {rank, rank + 1}
        assert [each.name for each in snapshot.hosts] == [host.name]
    line = [*HANGDOC, "diagnose", "--json", *map(str, files)]
    done = subprocess.run(line, env=job.environment, cwd=tmp_path, capture_output=True, timeout=90, check=False)
    assert done.returncode == 1, done.stderr
    _is_the_verdict(json.loads(done.stdout))


def _is_the_verdict(document: dict[str, object]) -> None:
    assert document["outcome"] == "hang"
    assert document["culprits"] == [1]
    assert {rank["rank"]: rank["host"] for rank in document["ranks"]} == {0: "alpha", 1: "alpha", 2: "beta", 3: "beta"}
