"""``hangdoc attach`` with pids that are no job's: one clear line, the right exit status, and what to do instead."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

PYTHON = [sys.executable, "-c", "print(flush=True); import time; time.sleep(100)"]


def attach(*arguments: str, before: Sequence[str] = ()) -> subprocess.CompletedProcess[str]:
    line = [*before, sys.executable, "-m", "hangdoc", "attach", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    return subprocess.run(line, env=environment, cwd="/", capture_output=True, text=True, timeout=60)


def refused(pid: int, *words: str) -> None:
    done = attach(str(pid))
    assert (done.returncode, done.stdout) == (3, "")
    what, remedy = done.stderr.splitlines()
    assert what.startswith("hangdoc: ")
    assert remedy.startswith("  ")
    for word in (str(pid), *words):
        assert word in what


@contextmanager
def running(*command: str) -> Iterator[int]:
    """Begun by a shell that ends: a child of this process would lead to whatever job other tests made of it."""
    begin = ["sh", "-c", '"$@" </dev/null & echo $!', "sh", *command]
    with subprocess.Popen(begin, stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pid = int(shell.stdout.readline())
        try:
            if command[0] == sys.executable:
                shell.stdout.readline()
            yield pid
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_gone() -> None:
    with subprocess.Popen(["true"]) as process:
        pid = process.pid
    refused(pid, "no process")
    assert attach("99999999999999999999999").returncode in (2, 3)


def test_a_zombie_without_a_job() -> None:
    process = subprocess.Popen(["true"])
    deadline = time.monotonic() + 10
    while Path(f"/proc/{process.pid}/stat").read_text().split()[2] != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.01)
    try:
        refused(process.pid, "zombie", "no job")
    finally:
        process.wait()


def test_a_thread_of_the_kernel() -> None:
    try:
        name = Path("/proc/2/comm").read_text().strip()
    except OSError:
        name = ""
    if name != "kthreadd":
        pytest.skip("no kernel threads are seen in this pid namespace")
    refused(2, "kernel")


def test_not_python() -> None:
    with running("sleep", "100") as pid:
        refused(pid, "not Python")


def test_python_without_torch() -> None:
    with running(*PYTHON) as pid:
        refused(pid, "without torch")


def test_the_first_process() -> None:
    refused(1, "first process")


def test_hangdocs_own_shell() -> None:
    line = f"echo $$; {sys.executable} -m hangdoc attach $$; echo $?"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, cwd="/")
    pid, status = done.stdout.split()
    assert status == "3"
    assert f"process {pid} (bash) is above hangdoc itself" in done.stderr


@pytest.mark.parametrize("text", ["abc", "12a", "", "-5", "0", "1.5"])
def test_text(text: str) -> None:
    done = attach("--", text)
    assert (done.returncode, done.stdout) == (2, "")
    assert "PID" in done.stderr


def test_a_report_of_no_known_format_is_refused_before_the_look(tmp_path: Path) -> None:
    done = attach(str(os.getpid()), "--report", str(tmp_path / "report.doc"))
    assert done.returncode == 2
    assert ".json" in done.stderr


def test_a_snapshot_that_cannot_be_kept_costs_no_verdict(tmp_path: Path) -> None:
    with running(sys.executable, "-c", "import torch; print(flush=True); import time; time.sleep(100)") as pid:
        done = attach(str(pid), "--save", str(tmp_path / "missing" / "job.hangdoc"))
        assert done.returncode == 2
        assert "hangdoc ✔" in done.stdout or "hangdoc ◔" in done.stdout
        assert "cannot write" in done.stderr
        saved = tmp_path / "job.hangdoc"
        assert attach(str(pid), "--json", "--save", str(saved)).returncode == 0
    assert saved.stat().st_mode & 0o077 == 0


def test_the_list_always_says_something() -> None:
    done = attach()
    assert done.returncode == 0
    assert "hangdoc" in done.stdout


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_another_users_process() -> None:
    with running(*PYTHON) as pid:
        done = attach(str(pid), before=["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"])
    assert done.returncode == 3
    assert f"process {pid} (" in done.stderr
    assert "belongs to root" in done.stderr
    assert re.search(rf"sudo (/\S+/hangdoc|/\S+ -m hangdoc) attach {pid}$", done.stderr.strip()), done.stderr
