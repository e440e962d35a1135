"""Hosts for tests: namespaces (network, names, processes, mounts) that a switch joins, each with a /proc of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

NEEDED = ("unshare", "nsenter", "ip", "mount")
_SECONDS = 10.0


def why_not() -> str:
    """Why this machine cannot have such hosts; '' if it can."""
    if os.geteuid() != 0:
        return "hosts made of namespaces need root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"hosts made of namespaces need {', '.join(missing)}"
    trial = ["unshare", "--net", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child"]
    trial += ["sh", "-c", "ip link add x type veth peer name y && ip link add z type bridge"]
    done = subprocess.run(trial, check=False, capture_output=True, text=True, timeout=_SECONDS)
    return f"no namespaces here: {done.stderr.strip()[:200]}" if done.returncode else ""


class Hosts:
    """``names`` are the hosts: the first has the address 10.77.0.1, the next 10.77.0.2. They share the file system."""

    def __init__(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        self.names = names
        self._environment = dict(environment or os.environ)
        self._folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        self._switch = self._idle("--net")
        self._roots = {name: self._idle("--net", "--uts", "--pid", "--mount-proc", "--kill-child") for name in names}
        self._join()

    def address(self, name: str) -> str:
        """The host's address."""
        return f"10.77.0.{self.names.index(name) + 1}"

    def start(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str], cwd: Path, log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Run the command on the host; its stdout and stderr go to ``log``."""
        return subprocess.Popen(
            [*self._entering(name), *command],
            env={**environment, "GLOO_SOCKET_IFNAME": "eth0"},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )

    def run(self, name: str, line: str) -> str:
        """What the shell command ``line`` writes on the host. Raises if it fails."""
        return self._shell(self._entering(name), line)

    def close(self) -> None:
        """End every process of the hosts, and the hosts."""
        for process in (*self._roots.values(), self._switch):
            process.kill()
            process.wait(_SECONDS)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _idle(self, *namespaces: str) -> subprocess.Popen[bytes]:
        """A process that does nothing in namespaces of its own. It ends with us: its stdin does."""
        fork = ["--fork"] if "--pid" in namespaces else []
        process = subprocess.Popen(
            ["unshare", *namespaces, "--mount", *fork, "sh", "-c", "echo ready; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=self._environment,
        )
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    def _join(self) -> None:
        self._shell(self._into(self._switch.pid, "--net"), "ip link add br0 type bridge && ip link set br0 up")
        table = self._folder / "hosts"
        table.write_text("127.0.0.1 localhost\n" + "".join(f"{self.address(name)} {name}\n" for name in self.names))
        for number, name in enumerate(self.names):
            inside = self._inside(name)
            line = f"ip link add port{number} type veth peer name eth0 netns {inside} && ip link set port{number} up"
            self._shell(self._into(self._switch.pid, "--net"), f"{line} && ip link set port{number} master br0")
            line = f"hostname {name} && ip link set lo up && ip addr add {self.address(name)}/24 dev eth0"
            line += f" && ip link set eth0 up && mount --bind {shlex.quote(str(table))} /etc/hosts"
            self.run(name, line)

    def _inside(self, name: str) -> int:
        """The first process of the host; ``unshare --fork`` is its parent, and not in its pid namespace."""
        parent = self._roots[name].pid
        deadline = time.monotonic() + _SECONDS
        while time.monotonic() < deadline:
            children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
            if children:
                return int(children[0])
            time.sleep(0.01)
        raise TimeoutError(name)

    def _entering(self, name: str) -> list[str]:
        return self._into(self._inside(name), "--net", "--uts", "--pid", "--mount")

    @staticmethod
    def _into(pid: int, *namespaces: str) -> list[str]:
        return ["nsenter", f"--target={pid}", *namespaces]

    @staticmethod
    def _shell(entering: Sequence[str], line: str) -> str:
        command = [*entering, "sh", "-c", line]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_SECONDS)
        if done.returncode:
            raise RuntimeError(f"{line}: {done.stderr}")
        return done.stdout
