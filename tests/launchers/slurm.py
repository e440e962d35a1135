"""A Slurm of its own: munged, slurmctld and slurmd in the foreground, on free ports, in one folder."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from hosts import Host

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
START_SECONDS = 40.0


def missing() -> str:
    """Why there can be no Slurm here; '' if there can."""
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    if absent:
        return f"no {', '.join(absent)}: apt-get install slurmctld slurmd slurm-client munge"
    return "" if os.geteuid() == 0 else "slurmd runs as root only"


def start(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Start it; what to add to the environment of srun. Its processes carry ``environment``."""
    name = socket.gethostname().partition(".")[0]
    return _start(folder, environment, {name: ("127.0.0.1", [])})


def start_on(hosts: Sequence[Host], folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Start it with a node on each of the hosts and the controller on the first of them."""
    return _start(folder, environment, {host.name: (host.address, host.enter) for host in hosts})


def _start(folder: Path, environment: Mapping[str, str], nodes: Mapping[str, tuple[str, list[str]]]) -> dict[str, str]:
    """``nodes``: name → (address, the words before a command that is to run there)."""
    for name in ("state", "spool", "munge"):
        (folder / name).mkdir(mode=0o700, parents=True)
    key = folder / "munge" / "key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o400)
    configuration = folder / "slurm.conf"
    configuration.write_text(_configuration(folder, {name: address for name, (address, _) in nodes.items()}))
    added = {"SLURM_CONF": str(configuration)}
    environment = {**environment, **added, "PATH": f"{environment['PATH']}:/usr/sbin:/usr/local/sbin"}
    first = next(enter for _, enter in nodes.values())
    lines = [
        # One for all nodes: its socket is a file.
        [*first, "munged", "--foreground", "--force", f"--key-file={key}", *_munge_files(folder / "munge")],
        [*first, "slurmctld", "-D", "-f", str(configuration)],
        *([*enter, "slurmd", "-D", "-N", name, "-f", str(configuration)] for name, (_, enter) in nodes.items()),
    ]
    for number, line in enumerate(lines):
        with (folder / f"{number}.out").open("wb") as output:
            subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    deadline = time.monotonic() + START_SECONDS
    while True:
        line = [*first, "sinfo", "--noheader", "--Node", "--format=%T"]
        done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=30)
        if done.stdout.split().count("idle") == len(nodes):
            return added
        if time.monotonic() > deadline:
            logs = "\n".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("*.out"))
            raise RuntimeError(f"Slurm did not start: {done.stdout}{done.stderr}\n{logs}")
        time.sleep(0.2)


def _munge_files(folder: Path) -> list[str]:
    names = {"socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return [f"--{option}={folder / name}" for option, name in names.items()]


def _configuration(folder: Path, nodes: Mapping[str, str]) -> str:
    """``nodes``: name → address."""
    host, address = next(iter(nodes.items()))
    lines = "\n".join(
        f"NodeName={name} NodeAddr={where} CPUs=8 RealMemory=1000 State=UNKNOWN" for name, where in nodes.items()
    )
    return f"""\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={_free_port()}
SlurmdPort={_free_port()}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
{lines}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
