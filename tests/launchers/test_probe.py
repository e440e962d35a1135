"""The probe in real ranks, under every launcher; and the job where there is no probe."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MARK, end_all

from hangdoc.capture.read.probe_client import ProbeBye, ProbeClient, ProbeCounters, ProbeDetails, read_bye

PROGRAMS = Path(__file__).parents[1] / "integration" / "programs"
PROBED = str(PROGRAMS / "probed.py")
PROBE = Path(__file__).parents[2] / "hangdoc" / "probe"
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
# The same ranks, and no agent that imports torch for itself.
RANKS = (sys.executable, str(Path(__file__).parent / "programs" / "two_ranks.py"), sys.executable)
PATIENCE = 120.0


@dataclass
class Job:
    """A job under the probe. ``folder`` holds the sockets and the notes."""

    process: subprocess.Popen[bytes]
    folder: Path
    output: Path

    def text(self) -> str:
        return self.output.read_text(errors="replace")

    def until(self, what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not what():
            assert time.monotonic() < deadline, (
                f"did not come to pass: {os.listdir(self.folder)}\n{self.text()[-4000:]}"
            )
            time.sleep(0.05)

    def end(self) -> int:
        return self.process.wait(PATIENCE)

    def sockets(self) -> list[Path]:
        return sorted(self.folder.glob("*.sock"))

    def counters(self) -> list[ProbeCounters]:
        found = []
        for path in self.sockets():
            with contextlib.closing(ProbeClient(path)) as client:
                found.append(client.counters(5))
        return sorted((one for one in found if one is not None), key=lambda one: (one.rank is None, one.rank))

    def ready(self, count: int = 1, ranks: Sequence[int] = (0, 1)) -> None:
        self.until(lambda: self.text().count("ready") >= count)
        self.until(lambda: [one.rank for one in self.counters()] == list(ranks))

    def client(self, rank: int) -> ProbeClient:
        pid = next(one.pid for one in self.counters() if one.rank == rank)
        return ProbeClient(self.folder / f"{pid}.sock")

    def details(self, rank: int) -> ProbeDetails:
        with contextlib.closing(self.client(rank)) as client:
            found = client.details(10)
        assert isinstance(found, ProbeDetails), found
        return found

    def notes(self) -> dict[int | None, ProbeBye]:
        found = [read_bye(path) for path in self.folder.glob("*.bye")]
        assert None not in found
        return {note.details.counters.rank: note for note in found if note is not None}


Start = Callable[..., Job]


@contextlib.contextmanager
def starting(outputs: Path, mark: str) -> Iterator[Start]:
    """Start a command with the probe on its path; ``env`` adds variables, None takes one away. ``settings``: what the
    watch was told to record."""
    with tempfile.TemporaryDirectory(prefix="hd-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        started = []

        def run(
            *command: str, env: Mapping[str, str | None] | None = None, settings: Mapping[str, object] | None = None
        ) -> Job:
            if settings is not None:
                Path(folder, "record.json").write_text(json.dumps(settings))
            wanted: dict[str, str | None] = {
                **{name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")},
                "HANGDOC_PROBE": folder,
                "PYTHONPATH": str(PROBE),
                "OMP_NUM_THREADS": "1",
                "PYTHONUNBUFFERED": "1",  # what a job prints is read while it runs, and in its order
                MARK: mark,
                **(env or {}),
            }
            output = outputs / f"output{len(started)}"
            with output.open("wb") as file:
                process = subprocess.Popen(
                    command,
                    env={name: value for name, value in wanted.items() if value is not None},
                    cwd=outputs,
                    stdin=subprocess.DEVNULL,
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            started.append(process)
            return Job(process, Path(folder), output)

        yield run
        for process in started:
            process.kill()
            process.wait(10)


@pytest.fixture
def start(tmp_path: Path, mark: str) -> Iterator[Start]:
    with starting(tmp_path, mark) as run:
        yield run


@pytest.fixture(scope="class")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    mark = uuid.uuid4().hex
    try:
        with starting(tmp_path_factory.mktemp("everything"), mark) as run:
            job = run(*TORCHRUN, PROBED, "everything")
            job.ready(2)
            yield job
    finally:
        end_all(mark)


class TestEverythingARankCanSay:
    """One job, which stands still for all of them."""

    def test_torchrun_and_everything_a_rank_can_say(self, everything: Job) -> None:
        assert len(everything.sockets()) == 2, "the agent made a store too and is no rank"
        everything.until(lambda: [one.point_to_points for one in everything.counters()] == [4, 3])
        first, second = everything.counters()
        assert (first.rank, first.world_size, first.local_rank, first.restart) == (0, 2, 0, 0)
        assert (second.rank, second.initialized, second.in_store) == (1, True, False)
        assert first.groups == second.groups and sorted(first.groups) == ["0", "1"]

        details = everything.details(0)
        journal = details.journal
        assert details.unavailable == ()
        assert {group.key: (group.description, group.backend) for group in journal.groups} == {
            ("0", (0, 1)): ("default_pg", "gloo"),
            ("1", (0, 1)): ("the pair", "gloo"),
        }
        made = [[frame.function for frame in journal.stack(group.created_at)] for group in journal.groups]
        assert all("everything" in stack for stack in made)
        assert "everything" in [frame.function for frame in details.first_store]

        world = [call for call in journal.calls if call.group == "0"]
        assert [(call.op, call.completed) for call in world] == [("all_reduce", True)] * 4
        assert world[-1].input_sizes == ((2, 3),)
        assert all(call.stack >= 0 and journal.stack(call.stack)[-1].function == "<module>" for call in journal.calls)
        assert [call.op for call in journal.calls if call.group == "1"] == ["barrier"]

        sent, anyone, barrier, last = journal.point_to_points
        assert (sent.op, sent.peer, sent.tag, sent.op_id, sent.completed) == ("send", 1, 7, 4, True)
        assert (anyone.op, anyone.peer, anyone.op_id, anyone.completed) == ("recv_anysource", -1, 5, True)
        assert (barrier.op, barrier.op_id, barrier.completed) == ("monitored_barrier", 6, True)
        assert (last.op, last.peer, last.completed) == ("recv", 1, False)
        # A monitored barrier takes two numbers.
        assert [call.op_id for call in world] == [1, 2, 3, 8] and last.op_id == 9
        assert "everything" in [frame.function for frame in journal.stack(last.stack)]
        assert last.thread_id == world[0].thread_id

        attributes = {(found.owner, found.name, found.value) for found in everything.details(1).journal.attributes}
        assert attributes == {("self", "warm", "True"), ("self", "token", "'…'"), ("self", "epochs", "3")}
        assert "hunter2" not in str(everything.details(1))
        assert any(root.endswith("site-packages") for root in details.library_roots)
        assert set(everything.text().split()) == {"ready"}, "the probe prints nothing"

    def test_the_sockets_are_private(self, everything: Job) -> None:
        assert {path.stat().st_mode & 0o777 for path in everything.sockets()} == {0o600}

    def test_a_stalled_client_keeps_nobody_waiting(self, everything: Job) -> None:
        path = everything.sockets()[0]
        with contextlib.ExitStack() as stack:
            for _ in range(3):  # they ask, and never read
                rude = stack.enter_context(socket.socket(socket.AF_UNIX))
                rude.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
                rude.connect(str(path))
                rude.sendall(b'{"q": "details"}\n' * 200)
            confused = stack.enter_context(socket.socket(socket.AF_UNIX))
            confused.connect(str(path))
            confused.sendall(b"GET / HTTP/1.1\r\n\r\n")
            confused.settimeout(5)
            assert confused.recv(10) == b""
            client = ProbeClient(path)
            assert client.counters(5) is not None
            assert isinstance(client.details(5), ProbeDetails)
            client.close()
            for _ in range(12):  # more than it keeps
                stack.enter_context(socket.socket(socket.AF_UNIX)).connect(str(path))
            assert ProbeClient(path).counters(5) is not None


def test_spawn_tells_its_ranks_though_the_environment_does_not(start: Start, free_port: int) -> None:
    job = start(sys.executable, str(PROGRAMS / "probed_spawn.py"), "wait", str(free_port))
    job.ready(2)
    assert [one.world_size for one in job.counters()] == [2, 2]


def test_forked_ranks_are_ranks(start: Start, free_port: int) -> None:
    job = start(sys.executable, str(PROGRAMS / "probed_spawn.py"), "fork", str(free_port))
    job.ready(2)


@pytest.mark.parametrize("kind", ["raises"])
def test_spawned_ranks_say_why_they_end(start: Start, free_port: int, kind: str) -> None:
    job = start(sys.executable, str(PROGRAMS / "probed_spawn.py"), kind, str(free_port))
    assert job.end() == 1
    notes = job.notes()
    assert notes[1].exception == "LookupError"
    assert notes[1].stack[0].function == "work"
    assert "hunter2" not in str(notes[1])


def test_fabric_script_launcher(start: Start) -> None:
    job = start(sys.executable, str(PROGRAMS / "probed_fabric.py"))
    job.ready(1)
    (group, *_) = job.details(1).journal.groups
    assert "launch" in [frame.function for frame in job.details(1).journal.stack(group.created_at)]


def test_accelerate_launch(start: Start, free_port: int) -> None:
    launcher = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2")
    job = start(*launcher, "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no",
                "--main_process_port", str(free_port), PROBED, "everything")  # fmt: skip
    job.ready(2)


def test_a_rank_that_waits_for_another_to_start(start: Start, free_port: int) -> None:
    for rank in (0, 1):
        env = {"RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
        job = start(sys.executable, PROBED, "alone_in_store", env=env)
    job.until(lambda: [one.rank for one in job.counters() if one.in_store] == [0, 1])
    assert all(not one.initialized and one.world_size == 3 for one in job.counters())
    wait = job.details(1).journal.store_waits[0]
    # The server waits for everybody in its constructor; who finds it complete enough waits in gloo's.
    assert (wait.operation, wait.keys[0]) in (("connect", "127.0.0.1"), ("group", "0"))
    stack = job.details(1).journal.stack(wait.stack)
    assert "alone_in_store" in [frame.function for frame in stack]


def test_a_key_that_is_never_set(start: Start) -> None:
    job = start(*RANKS, PROBED, "key_never_set")
    job.ready(2)
    job.until(lambda: all(one.in_store for one in job.counters()))
    journal = job.details(0).journal
    (wait,) = journal.store_waits
    assert (wait.operation, wait.keys) == ("get", ("never",))
    assert journal.stack(wait.stack)[0].function == "key_never_set"


def test_a_users_own_store(start: Start, free_port: int) -> None:
    env = {"MASTER_PORT": str(free_port)}
    jobs = [start(sys.executable, PROBED, "own_store", str(rank), env=env) for rank in (0, 1)]
    assert [job.end() for job in jobs] == [0, 0]
    assert sorted(jobs[0].notes()) == [0, 1]


def test_a_rank_that_ends_leaves_its_history(start: Start) -> None:
    job = start(*TORCHRUN, PROBED, "destroyed")
    before = time.time()
    assert job.end() == 0
    notes = job.notes()
    assert sorted(notes) == [0, 1]
    assert not list(job.folder.glob("*.tmp"))
    for note in notes.values():
        assert note.exception is None and note.stack == () and before - 60 < note.at < time.time() + 1
        journal = note.details.journal
        assert [call.op for call in journal.calls] == ["all_reduce", "barrier"]
        assert journal.groups[0].key == ("0", (0, 1)), "remembered past destroy_process_group"
    assert notes[0].details.journal.point_to_points[0].peer == 1


ENDS_WHILE_ASKED = """
import atexit, os, threading, time
atexit.register(lambda: os.write(1, b"answered" if answered else b"cut off"))  # before torch, so after the probe's
import torch, torch.distributed as dist
native, asked, answered = torch._C._distributed_c10d, threading.Event(), []
dump = native._dump_fr_trace
def slowly(*arguments):
    if threading.get_ident() != threading.main_thread().ident:
        asked.set()
        time.sleep(1.5)
        answered.append(True)
    return dump(*arguments)
native._dump_fr_trace = slowly
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
os.write(1, b"ready ")
asked.wait(60)
"""


def test_python_does_not_end_while_the_probe_is_inside_torch(start: Start) -> None:
    job = start(sys.executable, "-c", ENDS_WHILE_ASKED, env={"RANK": "0", "WORLD_SIZE": "1"})
    job.until(lambda: "ready" in job.text())
    with contextlib.closing(ProbeClient(job.sockets()[0])) as client:
        client.details(30)  # whether the answer still gets out is another matter
    assert job.end() == 0
    assert "answered" in job.text()


def test_a_rank_that_raises_tells_the_type_the_place_and_its_masked_text(start: Start) -> None:
    job = start(*RANKS, PROBED, "raises")
    assert job.end() == 1
    note = job.notes()[1]
    assert note.exception == "LookupError"
    assert [frame.function for frame in note.stack] == ["raises", "<module>"]
    assert note.message == "no such sample; password=…"
    assert "hunter2" not in str(note)
    assert [path.stat().st_mode & 0o777 for path in job.folder.glob("*.bye")] == [0o600] * 2


def test_without_a_recorder_groups_and_point_to_point_remain(start: Start) -> None:
    job = start(*RANKS, PROBED, "no_recorder")
    job.ready(2)
    job.until(lambda: [one.point_to_points for one in job.counters()] == [4, 3])
    assert job.counters()[0].groups["0"][1] == -1
    details = job.details(0)
    assert details.journal.calls == () and len(details.journal.groups) == 2
    assert "gave no history" in details.unavailable[0].why


def test_torch_compile_does_not_trace_the_probe(start: Start) -> None:
    job = start(*RANKS, PROBED, "compiled")
    assert job.end() == 0, job.text()
    assert job.text().split() == ["end"] * 2
    assert [call.op for call in job.notes()[0].details.journal.point_to_points] == ["send"] * 3


def test_phases_of_compiled_steps_where_the_watch_asks_for_them(start: Start) -> None:
    program = str(PROGRAMS / "steps.py")
    settings = {"record": ["collectives", "phases"], "entries": 10}
    job = start(*RANKS, program, settings=settings)
    assert job.end() == 0, job.text()
    # torch warns of compiled DDP, with the probe and without.
    assert [line for line in job.text().splitlines() if not line.startswith("[rank")] == ["clean"] * 2
    for note in job.notes().values():
        journal = note.details.journal
        assert journal.point_to_points == ()
        assert len(journal.calls) == 10
        # Of twelve steps, each with a batch, a backward pass, the forward pass before it, and an optimizer's step.
        names = [phase.name for phase in journal.phases]
        assert len(names) == 10
        assert set(names[:4]) == {"data", "backward", "forward", "optimizer"}
        assert all(0 < phase.begun_ns <= phase.ended_ns for phase in journal.phases)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_that_another_process_made_record_their_phases_and_not_its(start: Start, method: str) -> None:
    program = str(PROGRAMS / "forked_steps.py")
    job = start(sys.executable, program, method, settings={"record": ["collectives", "phases"]})
    assert job.end() == 0, job.text()
    notes = job.notes()
    for rank in (0, 1):
        phases = notes[rank].details.journal.phases
        # Nothing loads data, so there is no forward pass either; the parent's five steps are its own.
        assert [phase.name for phase in phases] == ["backward", "optimizer"] * 3
        assert all(0 < phase.begun_ns <= phase.ended_ns for phase in phases)


def test_the_probes_thread_collects_none_of_the_jobs_garbage(start: Start) -> None:
    job = start(*RANKS, PROBED, "finalizes")
    job.ready(2)
    for rank in (0, 1):
        assert len(job.details(rank).journal.groups) == 1
    assert "finalized-elsewhere" not in job.text()


def test_a_held_gil_is_silence_and_not_a_wait(start: Start) -> None:
    job = start(*RANKS, PROBED, "holds_gil")
    job.until(lambda: job.text().count("ready") == 2 and len(job.sockets()) == 2)
    # From the word to the call it takes a moment.
    job.until(lambda: all(ProbeClient(path).counters(0.3) is None for path in job.sockets()))
    for path in job.sockets():
        began = time.monotonic()
        assert ProbeClient(path).counters(0.3) is None
        assert time.monotonic() - began < 5


def test_children_of_a_rank_do_not_speak_for_it(start: Start) -> None:
    job = start(*RANKS, PROBED, "forks")
    job.ready(2)
    assert len(job.sockets()) == 2
    assert job.notes() == {}, "the forked child ended through atexit"


# Where there must be nothing


@pytest.mark.parametrize(
    ("flags", "env"),
    [
        ((), {"HANGDOC_PROBE": None}),
        ((), {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}),
        ((), {"HANGDOC_PROBE": "/nowhere"}),
        ((), {"HANGDOC_PROBE": "/usr"}),
        (("-I",), {}),  # which is -E too
    ],
)
def test_no_probe_and_the_job_runs_as_ever(
    start: Start, free_port: int, flags: tuple[str, ...], env: dict[str, str | None]
) -> None:
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    job = start(sys.executable, *flags, PROBED, "raises", env={**own, **env})
    assert job.end() == 0
    assert job.text() == "end\n"
    assert os.listdir(job.folder) == []


def test_with_the_probe_the_output_is_the_same(start: Start, free_port: int) -> None:
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    job = start(sys.executable, PROBED, "raises", env=own)
    assert job.end() == 0
    assert job.text() == "end\n"
    assert sorted(path.suffix for path in job.folder.iterdir()) == [".bye", ".fault", ".rank", ".sock"]


def test_a_folder_that_others_can_enter_is_refused(start: Start, free_port: int) -> None:
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        job = start(sys.executable, PROBED, "raises", env={**own, "HANGDOC_PROBE": folder})
        assert job.end() == 0 and job.text() == "end\n"
        assert os.listdir(folder) == []


def test_a_path_too_long_for_a_socket_is_given_up_silently(start: Start, free_port: int, tmp_path: Path) -> None:
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    folder = tmp_path / ("long" * 25)
    folder.mkdir(mode=0o700)
    job = start(sys.executable, PROBED, "raises", env={**own, "HANGDOC_PROBE": str(folder)})
    assert job.end() == 0 and job.text() == "end\n"
    assert os.listdir(folder) == []


def test_the_users_own_pythonpath_stays(start: Start, tmp_path: Path, free_port: int) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.py").write_text("word = 'mine'\n")
    program = tmp_path / "program.py"
    program.write_text(f"import mine, runpy, sys\nprint(mine.word)\nrunpy.run_path({PROBED!r}, run_name='__main__')\n")
    own = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
    job = start(sys.executable, str(program), "raises", env={**own, "PYTHONPATH": f"{PROBE}:{tmp_path}/lib"})
    assert job.end() == 0
    assert job.text() == "mine\nend\n"
    assert sorted(job.notes()) == [0]


IMPORT_ONLY = """
import os, sys
import torch
print(len(os.listdir("/proc/self/task")))
print(" ".join(sorted(sys.modules)))
"""


def test_import_torch_alone_starts_nothing(start: Start) -> None:
    job = start(sys.executable, "-c", IMPORT_ONLY)
    assert job.end() == 0
    without = start(sys.executable, "-c", IMPORT_ONLY, env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert without.end() == 0
    threads, modules = job.text().splitlines()
    bare_threads, bare_modules = without.text().splitlines()
    assert threads == bare_threads
    ours = {name for name in set(modules.split()) - set(bare_modules.split()) if "hangdoc" in name}
    assert ours == {"hangdoc_probe", "hangdoc_probe_hooks", "hangdoc_probe_lines", "hangdoc_probe_program"}
    assert os.listdir(job.folder) == []


def test_a_subclass_of_a_group_does_not_call_us_for_ever(start: Start) -> None:
    job = start(sys.executable, PROBED, "threaded_subclass")
    assert job.end() == 0
    assert "refused: RuntimeError" in job.text() and "Recursion" not in job.text()
