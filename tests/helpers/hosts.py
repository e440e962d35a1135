"""Hosts for tests: namespaces (network, names, processes, mounts) that a switch joins, each with a /proc of its own."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Host:
    """One of them. ``pid``: its first process, as seen from outside."""

    name: str
    address: str
    pid: int

    @property
    def enter(self) -> list[str]:
        """The words before a command that is to run there."""
        return _into(self.pid, "--net", "--uts", "--pid", "--mount")

    def start(
        self, words: Sequence[str], log: Path, environment: Mapping[str, str], cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a command there; its stdout and stderr go to ``log``."""
        with log.open("wb") as output:
            return self.popen(words, environment, output, cwd)

    def popen(
        self, words: Sequence[str], environment: Mapping[str, str], output: IO[bytes], cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """As ``start``, into a file that is open."""
        return subprocess.Popen(
            [*self.enter, *words],
            env={**environment, "GLOO_SOCKET_IFNAME": "eth0"},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )

    def run(self, *words: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run a command there to its end."""
        line = [*self.enter, *words]
        return subprocess.run(line, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=90, check=False)

    def shell(self, line: str) -> str:
        """What the shell command ``line`` writes there. Raises if it fails."""
        return _shell(self.enter, line)


class Hosts:
    """``names`` are the hosts: the first has the address 10.77.0.1, the next 10.77.0.2. They share the file system.

    ``environment``: of their first processes.
    """

    def __init__(self, *names: str, environment: Mapping[str, str] | None = None) -> None:
        self.names = names
        self._environment = dict(environment or os.environ)
        self._folder = Path(tempfile.mkdtemp(prefix="hosts-"))
        self._switch = self._idle("--net")
        self._roots = {name: self._idle("--net", "--uts", "--pid", "--mount-proc", "--kill-child") for name in names}
        self._hosts = {name: Host(name, self.address(name), self._inside(name)) for name in names}
        self._join()

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts.values())

    def __getitem__(self, name: str) -> Host:
        return self._hosts[name]

    def address(self, name: str) -> str:
        """The host's address."""
        return f"10.77.0.{self.names.index(name) + 1}"

    def start(
        self, name: str, command: Sequence[str], *, environment: Mapping[str, str], cwd: Path, log: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        """Run the command on the host; its stdout and stderr go to ``log``."""
        return self[name].popen(command, environment, log, cwd)

    def run(self, name: str, line: str) -> str:
        """What the shell command ``line`` writes on the host. Raises if it fails."""
        return self[name].shell(line)

    def end(self, name: str) -> None:
        """End the host and every process of it, at once: the others hear nothing more from it."""
        self._roots[name].kill()  # --kill-child ends its first process, and with that the whole pid namespace
        self._roots[name].wait(_SECONDS)

    def close(self) -> None:
        """End every process of the hosts, and the hosts."""
        for process in (*self._roots.values(), self._switch):
            process.kill()
            process.wait(_SECONDS)
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
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
        switch = _into(self._switch.pid, "--net")
        _shell(switch, "ip link add br0 type bridge && ip link set br0 up")
        table = self._folder / "hosts"
        table.write_text("127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in self))
        for number, host in enumerate(self):
            line = f"ip link add port{number} type veth peer name eth0 netns {host.pid} && ip link set port{number} up"
            _shell(switch, f"{line} && ip link set port{number} master br0")
            line = f"hostname {host.name} && ip link set lo up && ip addr add {host.address}/24 dev eth0"
            host.shell(f"{line} && ip link set eth0 up && mount --bind {shlex.quote(str(table))} /etc/hosts")

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


def _into(pid: int, *namespaces: str) -> list[str]:
    return ["nsenter", f"--target={pid}", *namespaces]


def _shell(entering: Sequence[str], line: str) -> str:
    done = subprocess.run([*entering, "sh", "-c", line], check=False, capture_output=True, text=True, timeout=_SECONDS)
    if done.returncode:
        raise RuntimeError(f"{line}: {done.stderr}")
    return done.stdout
