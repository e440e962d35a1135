"""A job on several hosts whose ranks are played (``launchers/programs/played_ranks.py``): real watches, no torch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from conftest import MARK, end_all
from hosts import Hosts

_PROGRAMS = Path(__file__).parents[1] / "launchers" / "programs"
_SECONDS = 120.0
_C10D = """\
import signal, time
def all_reduce(seconds):
    signal.pause() if seconds is None else time.sleep(seconds)
def barrier(seconds):
    signal.pause()
"""


class PlayedJob:
    """Two ranks on each host; rank ``culprit`` calls a barrier when ``hang`` is called, the others an all_reduce.

    The store, without which the ranks do not start (``served`` False: they need none), is on the first host.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Hosts,
        environment: dict[str, str],
        *,
        run: str = "run",
        port: int = 29400,
        served: bool = True,
    ):
        self.folder = folder
        self.hosts = hosts
        self.environment = environment
        self.world = 2 * len(hosts.names)
        self.culprit = self.world - 1
        self.watches: dict[str, subprocess.Popen[bytes]] = {}
        self.store: subprocess.Popen[bytes] | None = None
        self._run, self._at = run, (hosts.address(hosts.names[0]), port) if served else None
        package = folder / "site-packages" / "torch" / "distributed"
        package.mkdir(parents=True)
        for path in (package.parent / "__init__.py", package / "__init__.py"):
            path.touch()
        (package / "distributed_c10d.py").write_text(_C10D)

    def serve(self) -> None:
        """Start the job's store on the first host."""
        assert self._at is not None
        line = [sys.executable, str(_PROGRAMS / "a_store.py"), self._at[0], str(self._at[1])]
        self.store = self.hosts[self.hosts.names[0]].start(line, self.folder / "store", self.environment)
        self._await(self.folder / "store", "up")

    def watch(self, *names: str, options: Sequence[str] = (), **changes: Any) -> None:
        """Start the ranks of these hosts, each host under a watch of its own. A name 'forger@hostc' is another watch on
        hostc. ``changes``: of what the ranks are told."""
        for name in names:
            host = name.rpartition("@")[2]
            first = 2 * self.hosts.names.index(host)
            play = {"folder": str(self.folder), "store": self._at, "run": self._run, "world": self.world}
            play |= {"ranks": [first, first + 1], "culprit": self.culprit, "launches": True, **changes}
            line = [
                sys.executable,
                "-m",
                "hangdoc",
                "watch",
                "--stall-after",
                "5",
                "--run-dir",
                str(self.run_dir(name)),
            ]
            line += [*options, "--", sys.executable, str(_PROGRAMS / "played_ranks.py"), json.dumps(play)]
            self.watches[name] = self.hosts[host].start(line, self._log(name), self.environment, self.folder)

    def hang(self) -> None:
        """From now on the ranks hang."""
        (self.folder / "hang").touch()

    def run_dir(self, name: str) -> Path:
        """Where the host's watch keeps its files."""
        return self.folder / f"run-{name}"

    def log(self, name: str) -> str:
        """What the host's watch has written."""
        return self._log(name).read_text()

    def wait_for(self, name: str, text: str, seconds: float = _SECONDS) -> None:
        """Wait until the host's log has a match of ``text``."""
        self._await(self._log(name), text, seconds)

    def has_met(self, *names: str, seconds: float = _SECONDS) -> None:
        """Wait until the watches of these hosts keep a connection: they have none but that to the meeting's store."""
        deadline = time.monotonic() + seconds
        for name in names:
            before: set[str] = set()
            while not before & (now := _connections(self.pid(name))):
                assert time.monotonic() < deadline, self.explain()
                before = now
                time.sleep(0.5)

    def pid(self, name: str) -> int:
        """The host's watch, as we see it: nsenter's child."""
        entered = self.watches[name].pid
        deadline = time.monotonic() + _SECONDS
        while not (children := Path(f"/proc/{entered}/task/{entered}/children").read_text().split()):
            assert time.monotonic() < deadline, self.explain()
            time.sleep(0.05)
        return int(children[0])

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send the host's watch, and nobody else, a signal."""
        os.kill(self.pid(name), number)

    def diagnosis(self, name: str) -> dict[str, Any]:
        """The latest diagnosis that the host's watch has saved."""
        latest = max(self.run_dir(name).glob("stall-*.json"), key=lambda path: path.stat().st_mtime_ns)
        found: dict[str, Any] = json.loads(latest.read_text())
        return found

    def explain(self) -> str:
        """What one needs to understand a failed test."""
        return "\n".join(f"--- {name}\n{self.log(name)[-4000:]}" for name in self.watches)

    def _log(self, name: str) -> Path:
        return self.folder / f"log-{name}"

    def _await(self, path: Path, text: str, seconds: float = _SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while re.search(text, path.read_text()) is None:
            assert time.monotonic() < deadline, f"{path.name}: no {text!r}\n{self.explain()}"
            time.sleep(0.1)


@contextmanager
def environment_of(mark: str) -> Iterator[dict[str, str]]:
    """For the processes of a test; none of them lives afterwards."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("HANGDOC_", "SLURM_"))}
    try:
        yield {**plain, MARK: mark, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "140"}
    finally:
        end_all(mark)


def _connections(pid: int) -> set[str]:
    """Inodes of the TCP connections that the process has open."""
    links = []
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            links.append(os.readlink(f"/proc/{pid}/fd/{name}"))
        except FileNotFoundError:  # closed meanwhile
            continue
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "01"} & {link[8:-1] for link in links if link.startswith("socket:[")}
