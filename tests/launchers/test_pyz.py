"""hangdoc.pyz, built by the command in the guide, captures under a Python that has nothing installed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pythons import found

from hangdoc.model.codec import snapshot_from_bytes

pytestmark = pytest.mark.timeout(400)
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "hangdoc" / "guide" / "hosts.md"
PYTHONS = ("3.10", "3.11", "3.13")
"""The oldest that hangdoc runs on, and two that hosts and images of today have."""


@pytest.fixture(scope="module")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (Path(sys.executable).parent / "shiv").exists():
        pytest.skip("no shiv: pip install shiv")
    written = re.search(r"<!-- pyz -->\n```bash\n(.*)\n```", PAGE.read_text(encoding="utf-8"))
    assert written is not None
    folder = tmp_path_factory.mktemp("pyz")
    words = [str(ROOT) if word == "." else word for word in shlex.split(written[1])]
    line = [str(Path(sys.executable).parent / words[0]), *words[1:]]
    subprocess.run(line, cwd=folder, check=True, capture_output=True, timeout=200)
    return folder / "hangdoc.pyz"


@pytest.fixture
def rank() -> Iterator[int]:
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": f"pyz-{os.getpid()}"}
    line = [sys.executable, "-c", "import time\ndef wait(): time.sleep(600)\nprint('up', flush=True)\nwait()"]
    process = subprocess.Popen(line, env={**os.environ, **variables}, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        yield process.pid
    finally:
        process.kill()
        process.wait(20)
        process.stdout.close()


@pytest.mark.parametrize("version", PYTHONS)
def test_it_captures_with_the_py_spy_that_it_carries(version: str, pyz: Path, rank: int, tmp_path: Path) -> None:
    python = found(version)
    if not python:
        pytest.skip(f"no Python {version}: neither in /usr/bin, nor in PATH, nor in ~/.pyenv/versions (pyenv install)")
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "SHIV_ROOT": str(tmp_path)}
    bare = [python, "-E", "-S"]  # whatever is installed beside it, it has nothing but its own library
    without = subprocess.run(
        [*bare, "-c", "import pydantic"], env=environment, capture_output=True, timeout=90, check=False
    )
    assert b"ModuleNotFoundError" in without.stderr
    line = [*bare, str(pyz), "capture", str(rank)]
    done = subprocess.run(line, env=environment, cwd=tmp_path, capture_output=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    (shown,) = snapshot_from_bytes(done.stdout).ranks
    assert shown.process is not None
    assert shown.process.last is not None
    assert [frame.function for frame in shown.process.last.threads[0].frames][:1] == ["wait"]
    done = subprocess.run([*bare, str(pyz), "attach"], env=environment, capture_output=True, timeout=90, check=False)
    assert done.returncode == 125
    assert b"only `hangdoc capture` runs without typer" in done.stderr
