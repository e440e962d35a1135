"""pyproject.toml of others, and broken ones, under the real command line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cases import case

from hangdoc.interpreter import command

CASE = case("uneven_batches")
BROKEN = {
    "key": "[tool.hangdoc]\nstal-after = 11\n",
    "value": "[tool.hangdoc]\nstall-after = -5\n",
    "TOML": "[tool.hangdoc\n",
    "depth": "[tool.hangdoc]\nx = " + 5000 * "[" + 5000 * "]",
}


def hangdoc(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command("from hangdoc.__main__ import main; sys.exit(main())", *words),
        env={name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")},
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("kind", BROKEN)
def test_a_broken_file_stops_only_who_uses_it(tmp_path: Path, kind: str) -> None:
    (tmp_path / "pyproject.toml").write_text(BROKEN[kind])
    without = [["explain", "HD102"], ["--help"], ["--version"], ["watch", "--help"], ["diagnose", "--help"]]
    for words in without if kind == "key" else without[:1]:
        done = hangdoc(tmp_path, *words)
        assert (done.returncode, done.stderr) == (0, ""), words
    done = hangdoc(tmp_path, "watch", "touch", "ran")
    first, *rest = done.stderr.splitlines()
    assert (done.returncode, (tmp_path / "ran").exists()) == (0, True)
    assert first.startswith(f"hangdoc: {tmp_path}/pyproject.toml") and first.endswith("; watching without it")
    assert [line.split(" pid ")[0] for line in rest] == ["hangdoc: watching"]
    done = hangdoc(tmp_path, "diagnose", str(CASE))
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr and "pyproject.toml" in done.stderr


def test_a_working_directory_that_is_gone_has_no_file(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    line = f"cd {gone} && rmdir {gone} && exec {sys.executable} -m hangdoc explain HD102"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    line = f"mkdir {gone}; cd {gone} && rmdir {gone} && exec {sys.executable} -m hangdoc diagnose {CASE}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.skipif(os.geteuid() != 0, reason="a stranger's file takes another user, and root to make it his")
def test_a_strangers_file_makes_root_write_and_inject_nothing(tmp_path: Path) -> None:
    """In a parent of the working directory, as anybody may plant it in /tmp."""
    folder = tmp_path / "shared"
    work = folder / "work"
    work.mkdir(parents=True)
    victim = tmp_path / "root-only"
    victim.write_text("keep")
    table = f'[tool.hangdoc]\nsave = "{victim}"\nreport = "{tmp_path}/a.txt"\ninject = true\njson = true\n'
    (folder / "pyproject.toml").write_text(table)
    shutil.chown(folder / "pyproject.toml", 65534, 65534)
    sleeper = "import torch; print(flush=True); import sys; sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", sleeper], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path
    ) as job:
        try:
            assert job.stdout is not None
            job.stdout.readline()
            stranger = hangdoc(work, "attach", str(job.pid))
            shutil.chown(folder / "pyproject.toml", 0, 0)
            own = hangdoc(work, "attach", str(job.pid))
        finally:
            job.kill()
    assert (victim.read_text(), sorted(path.name for path in tmp_path.iterdir())) == ("keep", ["root-only", "shared"])
    assert stranger.returncode == own.returncode == 0
    (line,) = stranger.stderr.splitlines()
    assert "pyproject.toml is ignored: " in line and "belongs to" in line
    assert stranger.stdout.startswith("hangdoc ")
    # Our own file may say how to print; what to write or inject, it says in vain, and is told so.
    (line,) = own.stderr.splitlines()
    assert "attach takes save, report, inject from its command line alone" in line
    assert own.stdout.startswith("{")
