"""A job whose hosts, made of namespaces, are each under a `hangdoc watch` of their own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from conftest import MARK
from helpers import hosts as namespaces


class WatchedHosts:
    """``logs``: what each watch and its ranks wrote. The run directory of host a is ``folder / "run-a"``."""

    def __init__(self, folder: Path, mark: str, *names: str) -> None:
        self.folder = folder
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
        self.environment = {**plain, MARK: mark, "OMP_NUM_THREADS": "1", "NO_COLOR": "1", "COLUMNS": "140"}
        self.hosts = namespaces.Hosts(*names, environment=self.environment)
        self.watches: dict[str, subprocess.Popen[bytes]] = {}

    def launch(
        self, name: str, command: Sequence[str], options: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> None:
        """Start the command on the host, watched."""
        line = [sys.executable, "-m", "hangdoc", "watch", "--run-dir", str(self.folder / f"run-{name}"), *options]
        with (self.folder / f"log-{name}").open("wb") as log:
            environment = {**self.environment, **(env or {})}
            self.watches[name] = self.hosts.start(
                name, [*line, "--", *command], environment=environment, cwd=self.folder, log=log
            )

    def log(self, name: str) -> str:
        return (self.folder / f"log-{name}").read_text()

    def wait_for(self, name: str, text: str, seconds: float = 150, count: int = 1) -> None:
        """Wait until the host's log has ``count`` matches of ``text``."""
        deadline = time.monotonic() + seconds
        while len(re.findall(text, self.log(name))) < count:
            assert time.monotonic() < deadline, self.explain()
            time.sleep(0.2)

    def explain(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)}" for name in self.watches)

    def diagnosis(self, name: str) -> dict[str, object]:
        """The latest diagnosis that the host's watch has saved."""
        latest = max((self.folder / f"run-{name}").glob("stall-*.json"), key=lambda path: path.stat().st_mtime_ns)
        found: dict[str, object] = json.loads(latest.read_text())
        return found
