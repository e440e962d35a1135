"""Injection into real ranks that were started bare: the journal comes back, the job goes on as if nothing had been."""

from __future__ import annotations

import contextlib
import glob
import json
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from conftest import MARK, end_all
from own_launcher import by_hand

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_job
from hangdoc.capture.inject import injection, safety
from hangdoc.capture.inject.exchange import Exchange
from hangdoc.capture.inject.gdb import Gdb, find_gdb
from hangdoc.capture.read import procfs
from hangdoc.capture.read.blocked_calls import parse_call
from hangdoc.capture.read.children import subject
from hangdoc.capture.read.probe_client import ProbeDetails
from hangdoc.capture.read.process_looks import look_at
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.model.process import ProcessState
from hangdoc.model.snapshot import Unavailable

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = [
    pytest.mark.skipif(find_gdb() is None, reason="gdb is not installed"),
]


Looks = tuple[dict[int, ProcessState], dict[int, ProcessState]]


@dataclass
class Job:
    launcher: subprocess.Popen[bytes]
    pids: dict[int, int]
    folder: Path


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Four ranks that wait in four ways (programs/held.py), frozen."""
    folder = tmp_path_factory.mktemp("held")
    mark = f"injection-{os.getpid()}-{time.monotonic_ns()}"
    command = by_hand(f"4:{PROGRAMS / 'held.py'}", "--", str(folder / "go"), str(folder))
    with (folder / "output").open("wb") as output:
        launcher = subprocess.Popen(
            command,
            env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=output,
        )
    try:
        yield Job(launcher, _frozen(launcher, folder), folder)
    finally:
        end_all(mark)
        launcher.wait(20)


def _frozen(launcher: subprocess.Popen[bytes], folder: Path) -> dict[int, int]:
    deadline = time.monotonic() + 200
    before: list[object] = []
    while time.monotonic() < deadline:
        assert launcher.poll() is None
        pids = {int(path.stem): int(path.read_text() or 0) for path in sorted(folder.glob("*.pid"))}
        if len(pids) < 4 or not all(pids.values()):
            time.sleep(0.1)
            continue
        now: list[object] = [len(os.listdir(f"/proc/{pid}/task")) for pid in pids.values()]
        # A gloo group has three threads; by then rank 0 waits for the others' gradients.
        if all(count >= 4 for count in now) and not _shut(pids, look_twice(pids)) and now == before:
            return pids
        before = now
        time.sleep(0.5)
    raise AssertionError("the job never froze")


def look(pids: dict[int, int]) -> dict[int, ProcessState]:
    processes = procfs.table()
    return look_at([subject(pid, "rank", processes) for pid in pids.values()]).states


def look_twice(pids: dict[int, int], gap: float = 0.3) -> Looks:
    first = look(pids)
    time.sleep(gap)
    return first, look(pids)


def _shut(pids: dict[int, int], looks: Looks) -> list[object]:
    seen = (safety.waiting([look[pid] for look in looks if pid in look]) for pid in pids.values())
    return [shut for shut in seen if shut is not None]


def look_at_rest(pids: dict[int, int]) -> Looks:
    """Two looks that say that all of them wait: between two sleeps a rank may just run."""
    deadline = time.monotonic() + 30
    while True:
        looks = look_twice(pids)
        shut = _shut(pids, looks)
        if not shut:
            return looks
        assert time.monotonic() < deadline, shut


def unharmed(pid: int) -> None:
    """Neither stopped nor traced, now or soon."""
    state = procfs.look(pid)
    assert state is not None
    assert state.tracer_pid == 0
    assert {thread.state for thread in state.threads} <= {"S", "R"}
    assert not procfs.is_stopped(pid)


def journal(found: ProbeDetails | Unavailable) -> ProbeDetails:
    assert isinstance(found, ProbeDetails), found
    return found


def refusal(found: ProbeDetails | Unavailable) -> str:
    assert isinstance(found, Unavailable)
    assert found.what == "journal"
    assert found.why.startswith("not injected: ")
    return found.why.removeprefix("not injected: ")


def test_the_journals_of_a_bare_job_come_back(job: Job) -> None:
    found = {rank: journal(answer) for rank, answer in injection.collect(job.pids, look_at_rest(job.pids), 60).items()}
    assert sorted(found) == [0, 1, 2, 3]
    for rank, details in found.items():
        assert details.journal.source == "injection"
        assert (details.counters.rank, details.counters.world_size) == (rank, 4)
        assert [(group.members, group.backend) for group in details.journal.groups] == [((0, 1, 2, 3), "gloo")]
        environment = dict(details.environment)
        assert environment["RANK"] == str(rank)
        assert environment["NCCL_SOCKET_IFNAME"] == "set-later"  # not in /proc/PID/environ
        assert "MASTER_SECRET" not in environment
        assert "hunter2" not in repr(details)
        values = {(value.function, value.name): value.value for value in details.journal.attributes}
        assert values["fit", "epoch"] == "3"
        assert values["fit", "token"] == "'…'"
        unharmed(job.pids[rank])
    pending = {rank: [call for call in details.journal.calls if not call.completed] for rank, details in found.items()}
    assert {rank: len(calls) for rank, calls in pending.items()} == {0: 1, 1: 0, 2: 0, 3: 0}
    (waits,) = pending[0]
    frames = found[0].journal.stack(waits.stack)
    line = next(frame.line for frame in frames if frame.file.endswith("held.py"))
    assert "loss.backward()" in (PROGRAMS / "held.py").read_text().splitlines()[line - 1]


def test_a_capture_takes_them_where_it_may(job: Job) -> None:
    targets = [RankTarget(rank, pid, "environment", 4) for rank, pid in job.pids.items()]
    snapshot = capture_job(CaptureRequest(targets, options=CaptureOptions(gap=0.3, inject=True)))
    assert [item for item in snapshot.unavailable if item.what == "journal"] == []
    assert [rank.journal.source if rank.journal else None for rank in snapshot.ranks] == ["injection"] * 4
    bare = capture_job(CaptureRequest(targets, options=CaptureOptions(gap=0.3)))
    assert [rank.journal for rank in bare.ranks] == [None] * 4
    assert len([item for item in bare.unavailable if item.what == "journal"]) == 4


def test_a_stopped_rank_is_left_alone(job: Job) -> None:
    os.kill(job.pids[1], signal.SIGSTOP)
    _until(lambda: _state(job.pids[1]) == "T")
    try:
        found = injection.collect({1: job.pids[1]}, look_twice(job.pids), 20)
        assert "state T" in refusal(found[1])
        assert procfs.is_stopped(job.pids[1])
    finally:
        os.kill(job.pids[1], signal.SIGCONT)
    _until(lambda: not procfs.is_stopped(job.pids[1]))


def test_a_rank_that_stops_after_the_looks_is_left_alone(job: Job) -> None:
    looks = look_at_rest(job.pids)
    os.kill(job.pids[1], signal.SIGSTOP)
    _until(lambda: _state(job.pids[1]) == "T")
    try:
        assert "state T" in refusal(injection.collect({1: job.pids[1]}, looks, 20)[1])
        assert procfs.is_stopped(job.pids[1])
    finally:
        os.kill(job.pids[1], signal.SIGCONT)
    _until(lambda: not procfs.is_stopped(job.pids[1]))
    unharmed(job.pids[1])


def test_a_traced_rank_is_left_to_its_tracer(job: Job) -> None:
    program = find_gdb()
    assert program is not None
    debugger = Gdb(program)
    debugger.attach(job.pids[2], time.monotonic() + 20)
    try:
        found = injection.collect({2: job.pids[2]}, look_twice(job.pids), 20)
        assert f"process {debugger.pid} traces it" in refusal(found[2])
    finally:
        assert debugger.end()
    unharmed(job.pids[2])


def test_no_deadline_no_harm(job: Job) -> None:
    looks = look_at_rest(job.pids)
    for seconds in (0.0, 0.05, 0.15, 0.3):
        injection.collect({0: job.pids[0]}, looks, seconds)
        _until(lambda: not procfs.is_stopped(job.pids[0]) and _untraced(job.pids[0]))
        unharmed(job.pids[0])


def test_hangdoc_may_die_at_any_moment(job: Job) -> None:
    """Killed while gdb holds the process, or runs code in it, gdb finishes and lets go by itself."""
    pid = job.pids[0]
    code = (
        "import sys, pickle; from hangdoc.capture.inject import injection;"
        f"looks = pickle.load(sys.stdin.buffer); print('go', flush=True); injection.collect({{0: {pid}}}, looks, 30)"
    )
    looks = look_at_rest({0: pid})
    for seconds in (0.1, 0.3, 0.45, 0.6):
        with subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": str(job.folder)},
        ) as hangdoc:
            assert hangdoc.stdin is not None
            assert hangdoc.stdout is not None
            pickle.dump(looks, hangdoc.stdin)
            hangdoc.stdin.close()
            hangdoc.stdout.readline()
            time.sleep(seconds)
            hangdoc.kill()
        _until(lambda: not procfs.is_stopped(pid) and _untraced(pid))
        unharmed(pid)


def test_the_job_goes_on_and_nothing_is_left_in_it(job: Job) -> None:
    (job.folder / "go").touch()
    assert job.launcher.wait(60) == 0, (job.folder / "output").read_text()
    left = [json.loads((job.folder / f"{rank}.json").read_text()) for rank in range(4)]
    assert [rank["changed"] for rank in left] == [{}] * 4
    assert len({json.dumps(rank["weights"]) for rank in left}) == 1
    assert "hangdoc" not in (job.folder / "output").read_text()


Odd = Callable[..., int]


@pytest.fixture(scope="module")
def odd_ranks() -> Iterator[subprocess.Popen[bytes]]:
    """Imports torch once for them all (programs/odd_rank.py)."""
    mark = f"odd-{os.getpid()}-{time.monotonic_ns()}"
    process = subprocess.Popen(
        [sys.executable, str(PROGRAMS / "odd_rank.py")],
        env={**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    try:
        yield process
    finally:
        end_all(mark)
        process.communicate(timeout=20)


@pytest.fixture
def odd(odd_ranks: subprocess.Popen[bytes], tmp_path: Path) -> Iterator[Odd]:
    """One rank in a state of its own; the pid once it has said that it is ready."""
    running: list[int] = []

    def start(state: str) -> int:
        assert odd_ranks.stdin is not None
        assert odd_ranks.stdout is not None
        odd_ranks.stdin.write(f"{state} {tmp_path / 'fifo'}\n".encode())
        running.append(int(odd_ranks.stdout.readline()))
        return running[-1]

    yield start
    for pid in running:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        if (tmp_path / "fifo").exists():  # the child of the vfork may wait for a writer for ever
            os.close(os.open(tmp_path / "fifo", os.O_RDWR))
        _until(lambda pid=pid: not procfs.exists(pid))  # type: ignore[misc]


def _until(holds: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _state(pid: int) -> str:
    found = procfs.stat(pid)
    return found.state if found is not None else "gone"


def _untraced(pid: int) -> bool:
    state = procfs.look(pid)
    return state is not None and state.tracer_pid == 0 and all(thread.state != "t" for thread in state.threads)


@pytest.mark.parametrize(
    ("state", "settled", "call", "reason"),
    [
        ("hold_lock", "S", "clock_nanosleep", "holds Python's global lock"),
        ("run", "R", None, "it does not wait"),
        ("uninterruptible", "D", None, "is in state D"),
        ("no_group", "S", "clock_nanosleep", "no native thread waits there"),
        ("ending", "S", "", "Python stack cannot be seen"),  # in pause(2), which the table does not name
    ],
)
def test_gates_that_are_shut(odd: Odd, state: str, settled: str, call: str | None, reason: str) -> None:
    pid = odd(state)

    def there() -> bool:
        found = procfs.look(pid)
        if found is None or found.state != settled or found.main is None:
            return False
        inside = parse_call(found.main.syscall)
        return call is None or (inside is not None and inside.name == call)

    _until(there)
    looks = look_twice({0: pid})
    text = refusal(injection.collect({0: pid}, looks, 20)[0])
    assert reason in text or (state == "run" and "holds Python's global lock" in text)
    after = procfs.look(pid)
    assert after is not None
    assert after.tracer_pid == 0
    assert after.state not in "Tt"


def test_a_lock_taken_after_the_looks_is_seen(odd: Odd) -> None:
    """The looks saw a rank that waits; by the time gdb holds it, a thread of C has the global lock."""
    pid = odd("hold_lock")
    _until(lambda: (main := getattr(procfs.look(pid), "main", None)) is not None and main.state == "S")
    first, second = look_twice({0: pid})

    def innocent(state: ProcessState) -> ProcessState:
        return replace(state, threads=tuple(replace(thread, owns_gil=False) for thread in state.threads))

    looks = ({pid: innocent(first[pid])}, {pid: innocent(second[pid])})
    assert "holds Python's global lock" in refusal(injection.collect({0: pid}, looks, 20)[0])
    unharmed(pid)


def test_a_rank_that_waits_is_the_counterproof(odd: Odd) -> None:
    pid = odd("sleep")
    _until(lambda: (main := getattr(procfs.look(pid), "main", None)) is not None and main.state == "S")
    details = journal(injection.collect({0: pid}, look_at_rest({0: pid}), 20)[0])
    assert details.journal.groups[0].members == (0,)
    unharmed(pid)


def test_a_process_that_is_gone(odd: Odd) -> None:
    pid = odd("sleep")
    looks = look_twice({0: pid})
    os.kill(pid, signal.SIGKILL)
    _until(lambda: not procfs.exists(pid))
    refusal(injection.collect({0: pid}, looks, 20)[0])


Pretend = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def pretend(mark: str, tmp_path: Path) -> Iterator[Pretend]:
    """A process that passes for a rank (programs/pretend_rank.py), with its standard output."""
    running: list[subprocess.Popen[bytes]] = []

    def start(mode: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(PROGRAMS / "pretend_rank.py"), str(tmp_path), mode]
        process = subprocess.Popen(
            command, env={**os.environ, MARK: mark}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in running:
        process.kill()
        process.communicate(timeout=20)


def goes_on(process: subprocess.Popen[bytes], folder: Path) -> None:
    (folder / "go").touch()
    assert process.communicate(timeout=20)[0] == b"well ended\n"
    assert process.returncode == 0


def test_a_pretended_rank_is_the_counterproof(pretend: Pretend, tmp_path: Path) -> None:
    process = pretend("answer")
    details = journal(injection.collect({0: process.pid}, look_at_rest({0: process.pid}), 20)[0])
    assert details.journal.groups[0].members == (0,)
    goes_on(process, tmp_path)


def test_a_failure_of_the_code_inside_is_told(pretend: Pretend, tmp_path: Path) -> None:
    process = pretend("fail")
    text = refusal(injection.collect({0: process.pid}, look_at_rest({0: process.pid}), 20)[0])
    assert "the code inside failed: AttributeError" in text
    unharmed(process.pid)
    goes_on(process, tmp_path)


def test_code_that_lasts_holds_nobody(pretend: Pretend, tmp_path: Path) -> None:
    process = pretend("last")
    text = refusal(injection.collect({0: process.pid}, look_at_rest({0: process.pid}), 6)[0])
    assert "did not answer in time" in text
    unharmed(process.pid)
    (tmp_path / "enough").touch()
    goes_on(process, tmp_path)


def test_the_borrowed_thread_is_back_before_anybody_waits_for_it(pretend: Pretend, tmp_path: Path) -> None:
    """As a process group that is destroyed joins its threads without giving back Python's lock."""
    process = pretend("meet")
    journal(injection.collect({0: process.pid}, look_at_rest({0: process.pid}), 20)[0])
    unharmed(process.pid)
    goes_on(process, tmp_path)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGALRM, signal.SIGINT, signal.SIGCHLD])
def test_a_signal_meanwhile_reaches_the_process(pretend: Pretend, tmp_path: Path, number: signal.Signals) -> None:
    """The code inside lasts until the signal is there; but for SIGCHLD it ends the process."""
    process = pretend("last")
    looks = look_at_rest({0: process.pid})
    sender = threading.Timer(1.5, lambda: os.kill(process.pid, number))
    finisher = threading.Timer(2.0, (tmp_path / "enough").touch)
    sender.start()
    finisher.start()
    found = injection.collect({0: process.pid}, looks, 20)[0]
    finisher.join()
    if number == signal.SIGCHLD:
        journal(found)
        unharmed(process.pid)
        goes_on(process, tmp_path)
    else:
        assert process.wait(20) == -number


NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
needs_another_user = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"), reason="a process of another user takes root and setpriv"
)
PLANTER = """
import glob, os, sys, time
before, kind, name, target = set(sys.argv[5:]), *sys.argv[2:5]
print("ready", flush=True)
while True:
    for folder in set(glob.glob("/tmp/hangdoc-*")) - before:
        for place in (folder, folder + "/out"):
            try:
                path = os.path.join(place, name)
                os.symlink(target, path) if kind == "link" else os.mkfifo(path)
            except OSError:
                pass
    time.sleep(0.002)
"""


@needs_another_user
@pytest.mark.parametrize(
    ("kind", "name"), [("link", "failure"), ("link", "answer"), ("link", "go"), ("fifo", "failure"), ("fifo", "answer")]
)
def test_another_user_gains_nothing_by_what_he_plants(tmp_path: Path, mark: str, kind: str, name: str) -> None:
    """He plants links and pipes wherever he may while root asks his process, and sees no file of root's."""
    secret, created = tmp_path / "secret", tmp_path / "created-by-root"
    secret.write_text("hunter2")
    secret.chmod(0o600)
    target = created if name == "go" else secret
    folder = Path(tempfile.mkdtemp(prefix="theirs-", dir="/tmp"))
    shutil.chown(folder, 65534, 65534)
    environment = {**os.environ, MARK: mark, "HOME": str(folder)}
    try:
        rank = subprocess.Popen(
            [*NOBODY, sys.executable, str(PROGRAMS / "pretend_rank.py"), str(folder), "answer"],
            env=environment, cwd=folder, stdout=subprocess.PIPE
        )  # fmt: skip
        assert rank.stdout is not None
        if rank.stdout.readline() != b"ready\n":
            pytest.skip("another user cannot run this Python")
        looks = look_at_rest({0: rank.pid})
        planter = subprocess.Popen(
            [*NOBODY, sys.executable, "-c", PLANTER, "planter", kind, name, str(target), *glob.glob("/tmp/hangdoc-*")],
            env=environment, cwd=folder, stdout=subprocess.PIPE
        )  # fmt: skip
        assert planter.stdout is not None
        planter.stdout.readline()
        before = set(glob.glob("/tmp/hangdoc-*"))
        began = time.monotonic()
        answer = injection.collect({0: rank.pid}, looks, 10)[0]
        assert time.monotonic() - began < 25
        assert "hunter2" not in repr(answer)
        assert not created.exists()
        if name == "go":
            assert isinstance(answer, ProbeDetails)
        else:
            assert "cannot be read" in refusal(answer) and ("link" in answer.why or "regular file" in answer.why)
        unharmed(rank.pid)
        planter.kill()
        planter.wait()  # or he goes on planting where we clear away, as the rank may with its late answer
        end_all(mark)
        # What he planted stays with him; ours is gone. Folders without it belong to other tests.
        for left in map(Path, set(glob.glob("/tmp/hangdoc-*")) - before):
            if any(os.path.lexists(place / name) for place in (left, left / "out")):
                shutil.rmtree(left)
    finally:
        end_all(mark)
        shutil.rmtree(folder, ignore_errors=True)


@needs_another_user
def test_another_users_process_answers_and_nothing_stays_behind(mark: str) -> None:
    folder = Path(tempfile.mkdtemp(prefix="theirs-", dir="/tmp"))
    shutil.chown(folder, 65534, 65534)
    try:
        rank = subprocess.Popen(
            [*NOBODY, sys.executable, str(PROGRAMS / "pretend_rank.py"), str(folder), "answer"],
            env={**os.environ, MARK: mark, "HOME": str(folder)}, cwd=folder, stdout=subprocess.PIPE
        )  # fmt: skip
        assert rank.stdout is not None
        if rank.stdout.readline() != b"ready\n":
            pytest.skip("another user cannot run this Python")
        with Exchange(65534, 65534) as exchange:
            exchange.put("go")
            path = exchange.path
            assert (path / "go").stat().st_uid == 0 and path.stat().st_mode & 0o022 == 0
            with pytest.raises(FileExistsError):
                exchange.put("go")
        assert not path.exists()
        details = journal(injection.collect({0: rank.pid}, look_at_rest({0: rank.pid}), 20)[0])
        assert details.journal.groups[0].members == (0,)
    finally:
        end_all(mark)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("planted", ["fifo", "link to a fifo", "device", "folder"])
def test_what_a_process_names_as_torchs_version_is_not_waited_for(tmp_path: Path, planted: str) -> None:
    library = tmp_path / "torch" / "lib" / "libtorch_python.so"
    library.parent.mkdir(parents=True)
    version = tmp_path / "torch" / "version.py"
    if planted == "folder":
        version.mkdir()
    elif planted == "fifo":
        os.mkfifo(version)
    else:
        os.mkfifo(tmp_path / "pipe")
        version.symlink_to("/dev/zero" if planted == "device" else tmp_path / "pipe")
    assert safety._recorder(str(library)) is None
