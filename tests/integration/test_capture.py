"""Capture on real processes: each test freezes one in its own way and looks at it from outside."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

import pytest
from conftest import MARK

from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_job
from hangdoc.capture.read import procfs
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.model.process import Process, ProcessState
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(mark: str, tmp_path: Path) -> Iterator[Start]:
    """Run a Python program; returns once it has printed a line that is 'ready'."""
    running: list[subprocess.Popen[bytes]] = []

    def run(program: str, *arguments: str, log: Path | None = None) -> subprocess.Popen[bytes]:
        script = tmp_path / f"program{len(running)}.py"
        script.write_text(textwrap.dedent(program))
        ready, inside = os.pipe()
        process = subprocess.Popen(
            [sys.executable, str(script), *arguments],
            env={**os.environ, MARK: mark, "READY": str(inside)},
            pass_fds=[inside],
            stdout=log.open("wb") if log else subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
        )
        os.close(inside)
        running.append(process)
        with os.fdopen(ready, "rb") as stream:
            assert stream.readline() == b"ready\n"
        return process

    yield run
    for process in running:
        process.kill()
        process.wait(10)


READY = """
import os
def ready():
    descriptor = int(os.environ["READY"])
    os.write(descriptor, b"ready\\n")
    os.close(descriptor)
"""


def capture(*pids: int, gap: float = 0.2, **more: object) -> JobSnapshot:
    targets = [RankTarget(rank, pid, "environment", len(pids)) for rank, pid in enumerate(pids)]
    return capture_job(CaptureRequest(targets, options=CaptureOptions(gap=gap, **more)))  # type: ignore[arg-type]


def blocked(pid: int, *wchans: str) -> None:
    """Wait until the process's main thread sleeps in one of the given kernel functions (or any state given)."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        state = procfs.look(pid)
        assert state is not None, "the program ended"
        main = state.main
        if main is not None and (main.state in wchans or any(word in (main.wchan or "") for word in wchans)):
            return
        time.sleep(0.01)
    raise AssertionError(f"never blocked in {wchans}: {state}")


def process_of(snapshot: JobSnapshot, rank: int = 0) -> Process:
    process = snapshot.ranks[rank].process
    assert process is not None
    return process


def last(rank: RankSnapshot) -> ProcessState:
    assert rank.process is not None
    assert rank.process.last is not None
    return rank.process.last


def lines(state: ProcessState) -> list[tuple[str, str]]:
    assert state.main is not None
    return [(Path(frame.file).name, frame.function) for frame in state.main.frames]


def test_a_sleeper_its_alarm_its_line_its_locals_and_its_source(start: Start) -> None:
    program = READY + "import time\ndef nap(seconds, token='hunter2'):\n    time.sleep(seconds)\nready()\nnap(3000)\n"
    process = start(program)
    blocked(process.pid, "nanosleep")
    snapshot = capture(process.pid)
    found = process_of(snapshot)
    assert len(found.looks) == 2
    assert found.looks[0].at < found.looks[1].at
    state = last(snapshot.ranks[0])
    assert lines(state) == [("program0.py", "nap"), ("program0.py", "<module>")]
    assert state.main is not None
    assert state.main.wakes_in == pytest.approx(3000, abs=30)
    values = {local.name: local.value for local in state.main.frames[0].locals}
    assert values == {"seconds": "3000", "token": "'…'"}
    nap = next(text for text in snapshot.sources if text.function == "nap")
    assert "time.sleep(seconds)" in nap.text
    assert "hunter2" not in repr(snapshot)
    assert snapshot.ranks[0].exit is None
    assert [item.what for item in snapshot.unavailable] == ["journal"]


def test_strings_and_source_on_request(start: Start) -> None:
    process = start(
        READY + "import time\ngreeting = 'hello'\nuser, token = 'me', 'hunter2'\nready()\ntime.sleep(3000)\n"
    )
    blocked(process.pid, "nanosleep")
    kept = repr(capture(process.pid, keep_strings=True))
    assert "hello" in kept
    assert "hunter2" not in kept
    assert capture(process.pid, no_source=True).sources == ()


def test_a_program_on_the_command_line(mark: str) -> None:
    code = "import time\ndef nap():\n    time.sleep(3000)\nnap()"
    with subprocess.Popen([sys.executable, "-c", code], env={**os.environ, MARK: mark}) as process:
        try:
            blocked(process.pid, "nanosleep")
            snapshot = capture(process.pid)
        finally:
            process.kill()
    assert {text.function for text in snapshot.sources} == {"<module>", "nap"}
    assert {text.file for text in snapshot.sources} == {"<string>"}


def test_a_fifo_without_a_writer(start: Start, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    process = start(READY + "import sys\nready()\nopen(sys.argv[1]).read()\n", str(fifo))
    blocked(process.pid, "fifo", "wait_for_partner")
    (file,) = process_of(capture(process.pid)).blocking_files
    assert (file.operation, file.target, file.peers) == ("openat", str(fifo), ())


def test_a_pipe_and_who_holds_its_other_end(start: Start) -> None:
    program = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3000)"], stdout=subprocess.PIPE)
    ready()
    child.stdout.read()
    """
    process = start(READY + textwrap.dedent(program))
    blocked(process.pid, "pipe_read")
    found = process_of(capture(process.pid))
    (child,) = found.children
    (file,) = found.blocking_files
    assert file.operation == "read"
    assert file.target.startswith("pipe:[")
    assert file.peers == (child.pid,)


def test_a_file_lock_and_its_holder(start: Start, tmp_path: Path) -> None:
    program = READY + textwrap.dedent(
        """
        import fcntl, sys, time
        file = open(sys.argv[1], "w")
        if sys.argv[2] == "first":
            fcntl.flock(file, fcntl.LOCK_EX)
        ready()
        fcntl.flock(file, fcntl.LOCK_EX)
        time.sleep(3000)
        """
    )
    holder = start(program, str(tmp_path / "lock"), "first")
    waiter = start(program, str(tmp_path / "lock"), "second")
    blocked(holder.pid, "nanosleep")
    blocked(waiter.pid, "locks_lock", "flock")
    (file,) = process_of(capture(holder.pid, waiter.pid), 1).blocking_files
    assert (file.operation, file.target, file.peers) == ("flock", str(tmp_path / "lock"), (holder.pid,))


def test_a_child_it_waits_for(start: Start) -> None:
    program = """
    import subprocess, sys
    child = subprocess.Popen([sys.executable, "-c", "import time\\ndef inner(): time.sleep(3000)\\ninner()"])
    ready()
    child.wait()
    """
    process = start(READY + textwrap.dedent(program))
    blocked(process.pid, "do_wait")
    deadline = time.monotonic() + 20
    while True:
        found = process_of(capture(process.pid))
        (child,) = found.children
        if any("inner" in function for _, function in lines(child.looks[-1])) or time.monotonic() > deadline:
            break
    (file,) = found.blocking_files
    assert file.operation in ("wait4", "waitid")
    assert file.peers == (child.pid,)
    assert child.role == "child"
    assert lines(child.looks[-1])[0] == ("<string>", "inner")


def test_a_connection_and_the_rank_beyond_and_a_listening_port(start: Start, tmp_path: Path) -> None:
    serve = READY + textwrap.dedent(
        """
        import socket, sys, time
        server = socket.create_server(("127.0.0.1", 0))
        open(sys.argv[1], "w").write(str(server.getsockname()[1]))
        ready()
        connection, _ = server.accept()
        time.sleep(3000)
        """
    )
    receive = READY + textwrap.dedent(
        """
        import socket, sys
        connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
        connection.sendall(b"x" * 100)
        ready()
        connection.recv(1)
        """
    )
    server = start(serve, str(tmp_path / "port"))
    port = int((tmp_path / "port").read_text())
    client = start(receive, str(port))
    blocked(client.pid, "wait_woken", "sk_wait_data", "tcp_recv")
    blocked(server.pid, "nanosleep")
    snapshot = capture(server.pid, client.pid)
    (file,) = process_of(snapshot, 1).blocking_files
    assert file.operation == "recvfrom"
    assert file.target.endswith(f"to 127.0.0.1:{port} (ESTABLISHED)")
    assert file.peers == (server.pid,)
    (host,) = snapshot.hosts
    assert [(entry.pid, entry.address, entry.port) for entry in host.listening] == [(server.pid, "127.0.0.1", port)]
    queues = {entry.pid: entry.receive_queue for entry in host.connections}
    assert queues == {server.pid: 100, client.pid: 0}


def test_a_stopped_process_is_seen_and_stays_stopped(start: Start) -> None:
    process = start(READY + "import time\nready()\nwhile True: pass\n")
    os.kill(process.pid, signal.SIGSTOP)
    blocked(process.pid, "T")
    began = time.monotonic()
    snapshot = capture(process.pid)
    assert time.monotonic() - began < 3
    state = last(snapshot.ranks[0])
    assert state.state == "T"
    assert state.tracer_pid == 0
    assert lines(state)[-1] == ("program0.py", "<module>")
    after = procfs.look(process.pid)
    assert after is not None
    assert after.state == "T"


def test_a_spinning_process_moves(start: Start) -> None:
    process = start(READY + "ready()\nwhile True: pass\n")
    snapshot = capture(process.pid, gap=0.5)
    first, second = process_of(snapshot).looks
    assert first.main is not None
    assert second.main is not None
    assert second.main.cpu > first.main.cpu
    assert second.main.owns_gil


def test_the_log_of_a_rank(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    process = start(READY + "import time\nprint('step 7\\x07', flush=True)\nready()\ntime.sleep(3000)\n", log=log)
    snapshot = capture(process.pid)
    assert snapshot.ranks[0].log is not None
    assert snapshot.ranks[0].log.path == str(log)
    assert snapshot.ranks[0].log.lines == ("step 7\\x07",)


def test_ranks_that_die_before_and_during_the_capture_are_data(start: Start) -> None:
    sleeper = READY + "import time\nready()\ntime.sleep(3000)\n"
    dead, dying, alive = start(sleeper), start(sleeper), start(sleeper)
    dead.kill()
    dead.wait(10)

    def kill() -> None:
        dying.kill()
        dying.wait(10)

    timer = threading.Timer(0.5, kill)
    timer.start()
    snapshot = capture(dead.pid, dying.pid, alive.pid, gap=1.0)
    timer.join()
    gone, killed, well = snapshot.ranks
    assert gone.process is not None
    assert gone.process.looks == ()
    assert gone.exit is not None
    assert gone.exit.status is None
    assert killed.process is not None
    assert len(killed.process.looks) == 1
    assert killed.exit is not None
    if tuple(int(word) for word in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 15):
        assert killed.exit.signal == signal.SIGKILL
    assert well.exit is None
    assert last(well).state == "S"


def test_a_rank_never_seen(start: Start) -> None:
    process = start(READY + "import time\nready()\ntime.sleep(3000)\n")
    targets = [RankTarget(0, process.pid, "environment", 2), RankTarget(1, None, "expected", 2)]
    snapshot = capture_job(CaptureRequest(targets, options=CaptureOptions(gap=0.1)))
    assert [rank.process is None for rank in snapshot.ranks] == [False, True]
    assert snapshot.world_size == 2


@pytest.mark.parametrize("answer", [b"", b"rubbish\n", b'{"protocol": 1, "bytes": 99999999999}\n', None])
def test_a_probe_that_hangs_up_lies_or_is_silent(start: Start, tmp_path: Path, answer: bytes | None) -> None:
    process = start(READY + "import time\nready()\ntime.sleep(3000)\n")
    path = tmp_path / "p.sock"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                if answer is not None:
                    connection.sendall(answer)
                    connection.close()

    threading.Thread(target=serve, daemon=True).start()
    began = time.monotonic()
    target = RankTarget(0, process.pid, "probe", 1, socket=path)
    snapshot = capture_job(CaptureRequest([target], options=CaptureOptions(gap=0.2)))
    took = time.monotonic() - began
    server.close()
    (missing,) = [item for item in snapshot.unavailable if item.what == "journal"]
    assert missing.rank == 0
    assert last(snapshot.ranks[0]).main is not None
    assert took < 3


def test_a_job_that_forks_wildly(start: Start) -> None:
    program = """
    import time
    ready()
    end = time.monotonic() + 20
    while time.monotonic() < end:
        child = os.fork()
        if child == 0:
            time.sleep(0.02)
            os._exit(0)
        try:
            os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        time.sleep(0.002)
    """
    process = start(READY + textwrap.dedent(program))
    began = time.monotonic()
    snapshot = capture(process.pid, gap=0.5)
    assert time.monotonic() - began < 10
    assert last(snapshot.ranks[0]).main is not None


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_somebody_elses_process(start: Start) -> None:
    process = start(READY + "import time\nready()\ntime.sleep(3000)\n")
    blocked(process.pid, "nanosleep")
    metadata.version("hangdoc")  # that user may not be able to read what is imported for it
    os.seteuid(65534)
    try:
        snapshot = capture(process.pid)
    finally:
        os.seteuid(0)
    state = last(snapshot.ranks[0])
    assert state.state == "S"
    assert state.main is not None
    assert state.main.syscall is None
    assert state.main.frames == ()
    (stack,) = [item for item in snapshot.unavailable if item.what == "stack"]
    assert stack.rank == 0
    assert "run hangdoc as that user" in stack.remedy
    assert any(item.what == "sockets" for item in snapshot.unavailable)
