"""Real jobs for tests: started in a session of their own, with a deadline, and gone at the end, whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import settings
from xdist.scheduler.loadscope import LoadScopeScheduling

settings.register_profile("hangdoc", deadline=None)  # how long one example takes says how busy the machine is
settings.load_profile("hangdoc")

MARK = "RUN_OF_A_TEST"
"""Environment variable that every process of a test's job inherits, also those that left its process tree."""
DEADLINE = 150.0
_END_SECONDS = 10.0
_ON_DEMAND = "dump_folders"

# Where the tests themselves run in GitHub Actions, hangdoc would tell GitHub of their hangs.
# Where they run in any CI, a pytest that they start prints whole reports a second time, in its summary.
for name in ("GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "CI", "BUILD_NUMBER"):
    os.environ.pop(name, None)

# Where an image forbids it, each of the many Pythons that the tests start would compile hangdoc anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Under nohup it is ignored, and every command that the tests start would inherit that.
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


@dataclass(frozen=True)
class Finished:
    """A command that ended. ``document`` is its JSON report, None where it wrote none."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    document: dict[str, Any] | None
    run_dir: Path
    survivors: tuple[str, ...]
    """Processes of the job that were still alive some seconds after the command's end."""

    def snapshots(self) -> list[Path]:
        """The saved snapshots, oldest first."""
        return sorted(self.run_dir.glob("*.hangdoc"), key=lambda path: path.stat().st_mtime_ns)

    def explain(self) -> str:
        """What one needs to understand a failed test."""
        return (
            f"status {self.status} after {self.seconds:.1f} s; snapshots: {[*map(str, self.snapshots())]}\n"
            f"--- stdout\n{self.stdout[-3000:]}\n--- stderr\n{self.stderr[-8000:]}"
        )


Watch = Callable[..., Finished]


def pytest_configure(config: pytest.Config) -> None:
    """Started in the background of a script, we would ignore these, and so would every job of ours."""
    config.addinivalue_line("markers", f"{_ON_DEMAND}: accuracy on more folders of dumps; runs when asked for with -m")
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Accuracy on further folders of dumps takes minutes: it runs on demand. Workers get what takes long first."""
    if _ON_DEMAND not in config.getoption("markexpr"):
        unwanted = {item for item in items if item.get_closest_marker(_ON_DEMAND) is not None}
        if unwanted:
            config.hook.pytest_deselected(items=[*unwanted])
            items[:] = [item for item in items if item not in unwanted]
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: expected_place(item.nodeid))


_LONG = (
    # The jobs of a module, one test after the other.
    *("test_injection", "test_attach", "test_launchers", "test_many_hosts", "test_hosts", "test_attach_watched"),
    *("test_attach_namespaces", "test_capture_job", "test_attach_save", "test_native_ends"),
    # Half a minute and more of waiting in one test.
    *("test_false_alarms", "test_watch_acts", "test_watched_scenarios", "test_elastic_jobs"),
)
_LONG_UNITS = ("test_dump_folders", "test_hash_seed", "test_oracle", "test_registry", "test_cases", "test_digest")


def expected_place(nodeid: str) -> tuple[int, int]:
    """Where a test belongs in a row that begins with the longest, so that no worker is left with a long one at the end.

    Real jobs, which mostly wait, come before the unit tests, which fill what they leave of the processors.
    """
    file = Path(nodeid.partition("::")[0])
    unit = "unit" in file.parts
    long = _LONG_UNITS if unit else _LONG
    return unit, long.index(file.stem) if file.stem in long else len(long)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    config.option.loadscopereorder = False  # the number of tests says little of how long they take
    return OneWorkerForSharedJobs(config, log)


class OneWorkerForSharedJobs(LoadScopeScheduling):
    """Tests that share the jobs of a module or a class run in one worker, or each worker would start those anew."""

    _SHARED = frozenset(f"test_{name}" for name in ("attach", "attach_namespaces", "capture_job", "injection"))
    _SHARED |= {"test_attach_save", "test_attach_watched", "test_hosts", "test_many_hosts", "test_launchers"}
    _SHARED |= {"test_dead_job", "test_dump_folders", "test_native_ends"}
    _SHARED |= {"test_pyz", "test_other_pythons", "test_other_torch"}

    def _split_scope(self, nodeid: str) -> str:
        file, _, test = nodeid.partition("::")
        if Path(file).stem in self._SHARED:
            return file
        if Path(file).stem == "test_cases":
            return file + test[test.find("[") :]  # the tests of one case share its diagnosis
        shared, _, _ = test.partition("[")[0].rpartition("::")
        return f"{file}::{shared}" if shared else nodeid


TORCH_ABORTS = "terminate called without an active exception"
"""What a rank says that gloo's worker thread aborts: it lets go of the last call when Python has begun to shut down
(torch 2.13; bare runs of DDP jobs that end right after a barrier do it as often, two in ten on a busy machine)."""


def unless_torch_aborts(run: Callable[[], Finished], tries: int = 3) -> Finished:
    """A run of a healthy job, once more where torch itself aborted the job's exit."""
    for _ in range(tries):
        finished = run()
        if TORCH_ABORTS not in finished.stderr:
            break
    return finished


def least_seconds(action: Callable[[], object], first: float, enough: float, tries: int = 5) -> float:
    """How long ``action``, which took ``first`` seconds, takes where nothing comes in between, as on a busy machine
    something does now and then: once more until it was ``enough``."""
    seconds = [first]
    while seconds[-1] >= enough and len(seconds) < tries:
        began = time.monotonic()
        action()
        seconds.append(time.monotonic() - began)
    return min(seconds)


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that carry the mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_all(mark: str) -> None:
    """Kill every process that carries the mark, until none is left or ten seconds have passed."""
    deadline = time.monotonic() + _END_SECONDS
    while (left := marked(mark)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)


def survivors(mark: str, patience: float = 20.0) -> tuple[str, ...]:
    """The processes that carry the mark once ``patience`` seconds have passed, or () as soon as there is none."""
    deadline = time.monotonic() + patience
    while left := marked(mark):
        if time.monotonic() > deadline:
            return tuple(_describe(process) for process in left)
        time.sleep(0.05)
    return ()


def _describe(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return f"{process.pid} {process.status()} {' '.join(process.cmdline())[:120]}"
    return f"{process.pid} (gone)"


@pytest.fixture(scope="session", autouse=True)
def temporary_folder_of_jobs() -> Iterator[None]:
    """What killed jobs leave in their temporary folder (torchrun's logs, sockets of multiprocessing) ends with us.

    Our own stays what it is, and so does that of all who name /tmp.
    """
    tempfile.gettempdir()  # asks the environment once
    before = os.environ.get("TMPDIR")
    folder = tempfile.mkdtemp(prefix="hd", dir="/tmp")  # short: libraries bind unix sockets there
    os.chmod(folder, 0o1777)  # as /tmp: some jobs are another user's
    os.environ["TMPDIR"] = folder
    yield
    if before is None:
        del os.environ["TMPDIR"]
    else:
        os.environ["TMPDIR"] = before
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark for this test's processes; at the end of the test none of them lives."""
    value = uuid.uuid4().hex
    yield value
    end_all(value)


@pytest.fixture
def watch(tmp_path: Path, mark: str, request: pytest.FixtureRequest) -> Watch:
    """Run a command under ``hangdoc watch`` to its end: ``watch(command, *options, env=…, deadline=…)``.

    ``python``: whose hangdoc.
    """

    def run(
        command: Sequence[str],
        *options: str,
        env: Mapping[str, str] | None = None,
        deadline: float = DEADLINE,
        stall_after: float = 5,
        on_hang: str = "abort",
        python: str = sys.executable,
    ) -> Finished:
        folder = tmp_path / uuid.uuid4().hex[:8]
        folder.mkdir()
        # Short: libraries bind unix sockets below TMPDIR, whose paths end at 107 bytes.
        scratch = Path(tempfile.mkdtemp(prefix="hd", dir="/tmp"))
        request.addfinalizer(lambda: shutil.rmtree(scratch, ignore_errors=True))
        report, run_dir = folder / "report.json", folder / "run"
        line = [python, "-m", "hangdoc", "watch", "--stall-after", str(stall_after)]
        line += ["--on-hang", on_hang, "--report", str(report), "--run-dir", str(run_dir), *options, "--"]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")},
            "OMP_NUM_THREADS": "1",
            "TMPDIR": str(scratch),
            "NO_COLOR": "1",
            MARK: mark,
            **(env or {}),
        }
        started = time.monotonic()
        with (folder / "stdout").open("wb") as stdout, (folder / "stderr").open("wb") as stderr:
            process = subprocess.Popen(
                [*line, *command],
                env=environment,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                status = process.wait(deadline)
            except subprocess.TimeoutExpired:
                end_all(mark)
                process.wait(_END_SECONDS)
                errors = (folder / "stderr").read_text(errors="replace")[-8000:]
                pytest.fail(f"no end within {deadline} s: {' '.join(command)}\n{errors}")
        seconds = time.monotonic() - started
        return Finished(
            status=status,
            stdout=(folder / "stdout").read_text(errors="replace"),
            stderr=(folder / "stderr").read_text(errors="replace"),
            seconds=seconds,
            document=json.loads(report.read_text()) if report.exists() else None,
            run_dir=run_dir,
            survivors=survivors(mark),
        )

    return run
