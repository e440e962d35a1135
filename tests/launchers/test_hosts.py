"""attach --hosts over a real ssh and --slurm by a real srun, between hosts in namespaces."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hosts import Host, why_not
from two_host_job import HANGDOC, PROGRAM, Job, running

from hangdoc import api

sys.path.insert(0, str(Path(__file__).parent))
import slurm

pytestmark = pytest.mark.timeout(400)
SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_MISSING = why_not() or ("" if SSHD else "no sshd: apt-get install openssh-server")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    if _MISSING:
        pytest.skip(_MISSING)
    with running(tmp_path_factory.mktemp("hosts")) as found:
        _serve(found)
        yield found


def _serve(job: Job) -> None:
    """sshd on both hosts, and an `ssh` in front of the path that has a key for it."""
    folder = job.folder / "ssh"
    (folder / "bin").mkdir(parents=True)
    for name in ("host", "user"):
        line = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(line, check=True, timeout=30)
    (folder / "sshd_config").write_text(
        f"HostKey {folder}/host\nAuthorizedKeysFile {folder}/user.pub\nStrictModes no\nPermitRootLogin yes\n"
        f"UsePAM no\nPidFile none\nPasswordAuthentication no\n"
    )
    (folder / "config").write_text(
        f"IdentityFile {folder}/user\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
    )
    (folder / "bin" / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {folder}/config "$@"\n')
    (folder / "bin" / "ssh").chmod(0o700)
    job.environment["PATH"] = f"{folder}/bin:{job.environment['PATH']}"
    for host in job.hosts:
        # In the host's own mount namespace: sshd wants a folder there.
        assert host.run("sh", "-c", "mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd").returncode == 0
        line = [str(SSHD), "-D", "-e", "-f", str(folder / "sshd_config"), "-o", f"ListenAddress={host.address}"]
        host.start(line, folder / f"{host.name}.log", job.environment)
    deadline = time.monotonic() + 20
    for host in job.hosts:
        while (done := job.hosts[0].run("ssh", host.address, "true", env=job.environment)).returncode:
            logs = "".join(path.read_text() for path in folder.glob("*.log"))
            assert time.monotonic() < deadline, (done.stderr, logs)
            time.sleep(0.2)


def _is_the_verdict(document: dict[str, object]) -> None:
    assert (document["outcome"], document["culprits"]) == ("hang", [1])
    assert [note for note in document["unavailable"] if note["what"] in ("hosts", "other hosts", "ranks")] == []


def test_ssh_reaches_hosts_by_name_and_by_node_set(job: Job) -> None:
    first, second = (host.address for host in job.hosts)
    for names in (f"{first},{second}", "10.77.0.[1-2]"):
        if "[" in names:
            pytest.importorskip("ClusterShell", reason="pip install 'hangdoc[hosts]'")
        done = job.attach("--hosts", names, "--json", at=job.hosts[0])
        assert (done.returncode, done.stderr) == (1, "")
        document = json.loads(done.stdout)
        _is_the_verdict(document)
        assert {rank["host"] for rank in document["ranks"]} == {"alpha", "beta"}


def test_the_command_that_a_look_at_one_host_prints_sees_the_whole_job(job: Job) -> None:
    alpha = job.hosts[0]
    done = job.attach(str(job.pids[1]), at=alpha)
    found = re.search(r"see the whole job:\s+`(.*?)`", done.stdout)
    assert found is not None, done.stdout
    line = [*alpha.enter, *shlex.split(found[1]), "--json"]
    again = subprocess.run(line, env=job.environment, cwd=job.folder, capture_output=True, timeout=120, check=False)
    assert again.returncode == 1, again.stderr
    document = json.loads(again.stdout)
    _is_the_verdict(document)
    assert {rank["rank"]: rank["pid"] for rank in document["ranks"]} == job.pids


def test_where_hosts_are_many_one_asks_the_others(job: Job) -> None:
    alpha, beta = job.hosts
    ssh = f"{job.folder}/ssh/bin/ssh {{host}}"
    accepted = lambda: (job.folder / "ssh" / "beta.log").read_text().count(f"from {alpha.address} ")  # noqa: E731
    before = accepted()
    done = job.attach("--hosts", f"{alpha.address},{beta.address}", "--fan-out", "1", "--rsh", ssh, "--json", at=beta)
    assert (done.returncode, done.stderr) == (1, "")
    document = json.loads(done.stdout)
    _is_the_verdict(document)
    assert {rank["rank"]: rank["pid"] for rank in document["ranks"]} == job.pids
    assert accepted() > before, "beta was not asked by alpha"
    # Where hosts cannot reach each other, as alpha has no key of its own, all are asked from here.
    names = ["--hosts", f"{alpha.address},{beta.address}", "--fan-out", "1", "--json"]
    document = json.loads(job.attach(*names, at=beta).stdout)
    _is_the_verdict(document)


def test_a_host_without_sshd_is_named(job: Job) -> None:
    done = job.attach(
        str(job.pids[0]), "--hosts", "10.77.0.2,10.77.0.9", "--host-timeout", "8", "--json", at=job.hosts[0]
    )
    assert done.returncode == 1, done.stderr
    notes = [note["why"] for note in json.loads(done.stdout)["unavailable"] if note["what"] == "hosts"]
    assert len(notes) == 1
    assert notes[0].startswith("10.77.0.9: ")


# --- Slurm --------------------------------------------------------------------------------------------------------


@pytest.fixture
def slurm_job(tmp_path: Path) -> Iterator[tuple[Job, str]]:
    """(a job of two nodes with two ranks each that hangs, its number)."""
    why = why_not() or slurm.missing()
    if why:
        pytest.skip(why)
    with running(tmp_path, by_srun) as found:
        rank = Path(f"/proc/{found.outer_pid(0)}/environ").read_bytes().decode().split("\0")
        yield found, dict(entry.partition("=")[::2] for entry in rank)["SLURM_JOB_ID"]


def by_srun(hosts: Sequence[Host], marks: Path, environment: dict[str, str]) -> list[tuple[Host, list[str]]]:
    environment |= slurm.start_on(hosts, marks.parent / "slurm", environment)
    environment |= {"MASTER_ADDR": hosts[0].address, "MASTER_PORT": "29500"}
    line = ["srun", "-N", "2", "--ntasks-per-node", "2", sys.executable, str(PROGRAM), "environment", str(marks)]
    return [(hosts[0], line)]


def test_slurm_reaches_every_node(slurm_job: tuple[Job, str]) -> None:
    job, number = slurm_job
    done = job.attach("--slurm", number, "--json", at=job.hosts[0])
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    _is_the_verdict(document)
    assert {rank["rank"]: rank["host"] for rank in document["ranks"]} == {0: "alpha", 1: "alpha", 2: "beta", 3: "beta"}
    assert {rank["rank"]: rank["pid"] for rank in document["ranks"]} == job.pids
    # A look at one node says the same command.
    done = job.attach(str(job.pids[2]), at=job.hosts[1])
    assert f"attach --slurm {number}" in done.stdout
    # All of it as one file, with a folder that the nodes share.
    (job.folder / "logs").mkdir()
    (job.folder / "logs" / "train.log").write_text("[rank0]: NCCL version 2.21.5\n")
    # Whoever enters a namespace of mounts loses the working directory.
    line = [*HANGDOC, "collect", f"{job.folder}/logs", "--slurm", number, "-o", f"{job.folder}/job.hangdoc"]
    collected = job.hosts[0].start(line, job.folder / "said", job.environment, job.folder)
    assert collected.wait(120) == 0, (job.folder / "said").read_text()
    assert "the processes of 4 ranks on 2 hosts" in (job.folder / "said").read_text()
    assert api.diagnose(job.folder / "job.hangdoc").culprits == (1,)
