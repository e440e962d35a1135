"""Hosts for tests: network, pid, mount and UTS namespaces of their own, joined by a virtual cable. Needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_PROGRAMS = ("ip", "unshare", "nsenter")


def missing() -> str:
    """Why there can be no such hosts here; '' if there can."""
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    if absent:
        return f"no {', '.join(absent)}"
    if os.geteuid() != 0:
        return "namespaces need root"
    done = subprocess.run(
        ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--uts", "true"], capture_output=True, timeout=30
    )
    return "" if done.returncode == 0 else f"no namespaces here: {done.stderr.decode(errors='replace')[:200]}"


@dataclass
class Host:
    """One host. ``pid``: its first process, as seen from outside."""

    name: str
    address: str
    pid: int
    process: subprocess.Popen[bytes]

    @property
    def enter(self) -> list[str]:
        """The words before a command that is to run there."""
        return ["nsenter", f"--target={self.pid}", "--net", "--pid", "--mount", "--uts"]

    def start(self, words: Sequence[str], log: Path, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a command there, with its output in ``log``."""
        with log.open("wb") as output:
            return subprocess.Popen(
                [*self.enter, *words], env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a command there to its end."""
        return subprocess.run(
            [*self.enter, *words], env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False
        )


def two_hosts(names: tuple[str, str], environment: Mapping[str, str]) -> tuple[Host, Host]:
    """Two hosts that reach each other as 10.77.0.1 and 10.77.0.2 on eth0. ``environment``: of their first processes."""
    first, second = (_host(name, f"10.77.0.{number}", environment) for number, name in enumerate(names, start=1))
    # The ends are born in the namespaces, so that no name is taken outside and tests run beside each other.
    line = ["ip", "link", "add", "eth0", "type", "veth", "peer", "name", "eth0", "netns", str(second.pid)]
    _run(["nsenter", f"--target={first.pid}", "--net", *line])
    for host in (first, second):
        net = ["nsenter", f"--target={host.pid}", "--net", "ip"]
        _run([*net, "address", "add", f"{host.address}/24", "dev", "eth0"])
        _run([*net, "link", "set", "eth0", "up"])
        _run([*net, "link", "set", "lo", "up"])
    return first, second


def _host(name: str, address: str, environment: Mapping[str, str]) -> Host:
    script = f"import socket, time; socket.sethostname({name!r}); print('up', flush=True); time.sleep(100000)"
    line = [
        "unshare",
        "--net",
        "--pid",
        "--fork",
        "--mount-proc",
        "--uts",
        "--kill-child",
        sys.executable,
        "-c",
        script,
    ]
    process = subprocess.Popen(line, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    deadline = time.monotonic() + 10
    while not (pids := children.read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return Host(name, address, int(pids[0]), process)


def end(hosts: Sequence[Host]) -> None:
    """End the hosts and everything in them."""
    for host in hosts:
        host.process.kill()  # --kill-child ends the first process, and with it the whole pid namespace
    for host in hosts:
        host.process.wait(20)
        if host.process.stdout is not None:
            host.process.stdout.close()


def _run(line: list[str]) -> None:
    done = subprocess.run(line, capture_output=True, timeout=30, check=False)
    assert done.returncode == 0, (line, done.stderr)
