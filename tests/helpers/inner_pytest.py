"""A pytest session of its own, as a user starts it, with the plugin and without anything of the outer one."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

from conftest import MARK, end_all, survivors

DEADLINE = 120.0


@dataclass(frozen=True)
class Session:
    """A session that ended. ``survivors``: processes of it that lived some seconds longer."""

    status: int
    output: str
    survivors: tuple[str, ...]


def run(
    folder: Path, source: str, *options: str, plugins: tuple[str, ...] = (), env: dict[str, str] | None = None
) -> Session:
    """Run ``source`` as folder/test_it.py; of installed plugins, hangdoc's and ``plugins`` alone are loaded."""
    (folder / "test_it.py").write_text(source)
    (folder / "pytest.ini").touch()  # nothing above it configures this session
    mark = uuid.uuid4().hex
    ours = ("HANGDOC_", "PYTEST_", "COV_CORE_", "RANK", "WORLD_SIZE")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    environment |= {MARK: mark, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "COLUMNS": "80", "OMP_NUM_THREADS": "1"}
    words = [word for plugin in ("hangdoc.pytest_plugin.hooks", *plugins) for word in ("-p", plugin)]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words, *options, "test_it.py"],
        cwd=folder,
        env={**environment, **(env or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=DEADLINE)
        left = survivors(mark)
    finally:
        end_all(mark)
        process.wait(10)
    return Session(process.returncode, output, left)
