"""Dumps that a rank's recorder left in files: which are its own and of now, and what is done about all others."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hangdoc.capture.dumps.read_folder import read_dump_folder
from hangdoc.capture.read import own_dumps
from hangdoc.capture.read.own_dumps import DumpingRank, dump_variables, read_own_dumps
from hangdoc.capture.safe.open_files import User

THREAD = 140_000_000_000_000
HOUR = 3600.0


def dump(*, issued: float, completed: bool = False, size: int = 4, thread: int = THREAD) -> bytes:
    """What a recorder of nccl writes (torch 2.13): one call, issued at that time, in a group of that size."""
    entry = {
        "frames": [{"name": "train", "filename": "/job/train.py", "line": 12}],
        "record_id": 0,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "thread_id": str(thread),
        "collective_seq_id": 1,
        "p2p_seq_id": 0,
        "op_id": 1,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": int(issued * 1e9),
        "input_sizes": [[3]],
        "input_dtypes": ["Float"],
        "state": "completed" if completed else "scheduled",
        "retired": completed,
        "timeout_ms": 20_000,
        "is_p2p": False,
    }
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(size)))}}
    return pickle.dumps({"version": "2.10", "pg_config": config, "pg_status": {}, "entries": [entry]}, protocol=2)


@pytest.fixture
def rank(tmp_path: Path) -> Iterator[DumpingRank]:
    """Rank 3 of 4: a real process that was started with a prefix for its dumps."""
    environment = {**os.environ, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    code = "import sys; print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, **pipes) as process:  # type: ignore[call-overload]
        try:
            process.stdout.readline()
            user = User(os.geteuid(), os.getegid())
            variables = dump_variables(process.pid)
            yield DumpingRank(3, process.pid, time.time() - HOUR, user, variables, frozenset({THREAD}), 4)
        finally:
            process.kill()


def written(path: Path, data: bytes, at: float | None = None) -> Path:
    path.write_bytes(data)
    if at is not None:
        os.utime(path, (at, at))
    return path


def told(rank: DumpingRank, *, quiet_since: float | None = None) -> str:
    """The reason why its dump is no use; '' where it is read, 'none' where there is none."""
    journals, notes = read_own_dumps([rank], quiet_since=quiet_since)
    assert [note.rank for note in notes] == [3] * len(notes)
    return "" if journals else notes[0].why if notes else "none"


def test_a_dump_of_a_call_that_timed_out_is_read(rank: DumpingRank, tmp_path: Path) -> None:
    now = time.time()
    written(tmp_path / "trace_3", dump(issued=now - 60), now - 30)
    journals, notes = read_own_dumps([rank])
    (call,) = journals[3].calls
    assert (journals[3].source, call.op, call.completed, notes) == ("dump", "all_reduce", False, [])
    assert journals[3].groups[0].members == (0, 1, 2, 3)


def test_its_journal_has_all_that_a_folders_has(rank: DumpingRank, tmp_path: Path) -> None:
    """The same file, read as the rank's own and as one of a folder: threads and stacks are numbered differently."""
    now = time.time()
    content = pickle.loads(dump(issued=now - 60))
    (first,) = content["entries"]
    first["retired"] = True  # the watchdog gave up on it
    content["entries"] = [first | {"record_id": 7}]
    content["pg_status"] = {
        "0": {"last_enqueued_collective": 3, "last_started_collective": 2, "last_completed_collective": 1}
    }
    written(tmp_path / "trace_3", pickle.dumps(content, protocol=2), now - 30)
    own = read_own_dumps([rank])[0][3]
    assert (own.gave_up, own.status, own.active_only) == ((0,), (("0", 3, 2, 1),), True)
    assert own.latest_ns == own.moved_ns == int((now - 60) * 1e9)
    assert own.written_ns / 1e9 == pytest.approx(now - 30, abs=0.001)
    of_folder = read_dump_folder(tmp_path).journals[3]
    alike = [
        replace(each, calls=tuple(replace(call, thread_id=0, stack=0) for call in each.calls), stacks=())
        for each in (own, of_folder)
    ]
    assert replace(alike[0], written_ns=alike[1].written_ns) == alike[1]
    assert abs(own.written_ns - of_folder.written_ns) < 1_000


@pytest.mark.parametrize("variable", ["TORCH_HCCL_DEBUG_INFO_TEMP_FILE", "TORCHCOMM_FR_DUMP_TEMP_FILE"])
def test_other_writers_have_variables_of_their_own(rank: DumpingRank, tmp_path: Path, variable: str) -> None:
    assert variable in own_dumps._NAMES
    other = replace(rank, variables={**rank.variables, variable: f"{tmp_path}/other_"})
    content = dump(issued=time.time() - 60)
    if variable.startswith("TORCHCOMM"):
        content = json.dumps(pickle.loads(content)).encode()
    written(tmp_path / "other_3", content)
    journals, notes = read_own_dumps([other])
    assert ([call.op for call in journals[3].calls], notes) == (["all_reduce"], [])
    # PyTorch's own comes first, and is refused where it is no use.
    written(tmp_path / "trace_3", dump(issued=time.time() - 60, size=8))
    assert "8 ranks" in told(other)


def test_a_dump_from_before_the_stall_says_nothing_of_now(rank: DumpingRank, tmp_path: Path) -> None:
    now = time.time()
    written(tmp_path / "trace_3", dump(issued=now - 40), now - 30)
    assert "may have gone on" in told(rank)
    assert "may have gone on" in told(rank, quiet_since=now - 10)
    assert told(rank, quiet_since=now - 35) == ""


def test_a_file_of_an_earlier_run_is_not_there(rank: DumpingRank, tmp_path: Path) -> None:
    old = rank.started - 60
    written(tmp_path / "trace_3", dump(issued=old - 60), old)
    assert told(rank, quiet_since=0.0) == "none"
    written(tmp_path / "trace_3", dump(issued=old - 60))  # copied since
    assert "earlier run" in told(rank, quiet_since=0.0)


def test_another_jobs_dump_is_not_this_ranks(rank: DumpingRank, tmp_path: Path) -> None:
    now = time.time()
    written(tmp_path / "trace_3", dump(issued=now - 60, size=8))
    assert "a job of 8 ranks" in told(rank, quiet_since=0.0)
    written(tmp_path / "trace_3", dump(issued=now - 60, thread=THREAD + 1))
    assert "another process" in told(rank, quiet_since=0.0)
    assert told(replace(rank, threads=frozenset()), quiet_since=0.0) == ""


def test_a_strangers_file_is_refused(rank: DumpingRank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path / "trace_3", dump(issued=time.time() - 60))
    monkeypatch.setattr(own_dumps, "as_user", lambda _user, what: what())
    stranger = replace(rank, user=User(rank.user.uid + 1, rank.user.gid))
    assert told(stranger, quiet_since=0.0) == f"its dump {tmp_path}/trace_3: it belongs to user {os.geteuid()}"


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x80\x02cos\nsystem\n(S'true'\ntR.", dump(issued=1e9)[:-20]])
def test_a_broken_or_hostile_pickle_is_a_note(rank: DumpingRank, tmp_path: Path, data: bytes) -> None:
    written(tmp_path / "trace_3", data)
    assert told(rank, quiet_since=0.0).startswith(f"its dump {tmp_path}/trace_3: ")


@pytest.mark.parametrize("kind", ["fifo", "folder", "device"])
def test_what_is_no_file_is_not_opened(rank: DumpingRank, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "trace_3"
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    began = time.monotonic()
    assert "regular file" in told(rank, quiet_since=0.0)
    assert time.monotonic() - began < 5


def test_the_usual_places_are_looked_at_in_silence(rank: DumpingRank, tmp_path: Path) -> None:
    """A stranger's dump may lie there, and no user has asked for any."""
    usual = replace(rank, variables={"HOME": str(tmp_path)})
    assert told(usual, quiet_since=0.0) == "none"
    folder = tmp_path / ".cache" / "torch"
    folder.mkdir(parents=True)
    written(folder / "comm_lib_trace_rank_3", b"garbage")
    assert told(usual, quiet_since=0.0) == "none"
    written(folder / "comm_lib_trace_rank_3", dump(issued=time.time() - 60))
    assert told(usual, quiet_since=0.0) == ""


def test_a_relative_prefix_begins_in_the_ranks_own_folder(rank: DumpingRank, tmp_path: Path) -> None:
    (tmp_path / "dumps").mkdir()
    written(tmp_path / "dumps" / "r3", dump(issued=time.time() - 60))
    assert told(replace(rank, variables={"TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "dumps/r"}), quiet_since=0.0) == ""


def test_of_a_rank_that_ended_the_watchs_own_paths_count(rank: DumpingRank, tmp_path: Path) -> None:
    written(tmp_path / "trace_3", dump(issued=time.time() - 60))
    assert told(replace(rank, pid=None, threads=frozenset()), quiet_since=0.0) == ""


def test_variables_come_from_the_process(rank: DumpingRank, tmp_path: Path) -> None:
    found: Any = dump_variables(rank.pid or 0)
    assert found["TORCH_FR_DUMP_TEMP_FILE"] == f"{tmp_path}/trace_"
    assert set(found) <= {*own_dumps._NAMES}
    assert dump_variables(1 << 22) == {}
