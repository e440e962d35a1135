"""What a job says may be made to hurt the reader: by memory, by time, by files that are none, in another's name."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import pickle
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hangdoc import interpreter
from hangdoc.capture.find.target import RankTarget
from hangdoc.capture.host import capture_job
from hangdoc.capture.read import probe_client, procfs
from hangdoc.capture.read.probe_client import ProbeClient, ProbeDetails, read_bye
from hangdoc.capture.request import CaptureOptions, CaptureRequest
from hangdoc.capture.safe import foreign, pickles
from hangdoc.model.snapshot import Unavailable

MIB = 1 << 20
BOMBS = {
    "memo": b"\x80\x02Nr\xff\xff\xff\x0f.",  # 268 million places of 8 bytes
    "memo, whole": b"\x80\x02}r\xff\xff\xff\x07.",  # a dict, and 2 GiB
    "sets": b"\x80\x04" + 24 * MIB * b"\x8f" + b".",
    "lists": b"\x80\x02" + 48 * MIB * b"]" + b".",
    "laughs": pickle.dumps(
        {"version": "2.10", "x": __import__("functools").reduce(lambda x, _: [x] * 10, range(12), 1)}
    ),
    "deep": b"\x80\x02}X\x01\x00\x00\x00a" + 100_000 * b"]" + 99_999 * b"a" + b"s.",
}


def dump(calls: int) -> dict[str, Any]:
    frames = [{"name": f"f{number}", "filename": "/job/train.py", "line": number} for number in range(40)]
    entry = {"collective_seq_id": 1, "profiling_name": "gloo:all_reduce", "process_group": ("0", "default_pg")}
    entries = [{**entry, "frames": frames[number % 20 : number % 20 + 20]} for number in range(calls)]
    return {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}


def header(body: bytes, **changes: Any) -> bytes:
    known = {"protocol": 1, "pid": 7, "rank": 1, "bytes": len(body), "parts": [len(body)], "torch": "2.13.0", **changes}
    return json.dumps(known).encode() + b"\n"


@contextlib.contextmanager
def listening(path: Path, reply: bytes, before: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Another process that answers every question with ``reply``."""
    ready = multiprocessing.get_context("fork").Event()

    def serve() -> None:
        before()
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        path.chmod(0o777)
        listener.listen()
        ready.set()
        while True:
            with contextlib.suppress(OSError), listener.accept()[0] as connection:
                connection.recv(4096)
                connection.sendall(reply)

    process = multiprocessing.get_context("fork").Process(target=serve, daemon=True)
    process.start()
    try:
        assert ready.wait(30)
        yield
    finally:
        process.kill()
        process.join()


def peak(code: str, *words: str) -> tuple[int, str]:
    """The largest resident memory, in MiB, of a Python that runs ``code``, or of one that it starts; what it said.

    Its own is read from /proc: what getrusage() tells begins with the memory of the process that it was forked from.
    """
    own = "import resource, subprocess; from hangdoc.capture.safe import foreign, pickles\n"
    end = (
        "\nlargest = next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM:'))"
        "\nprint(max(int(largest), resource.getrusage(-1).ru_maxrss) >> 10)"
    )
    done = subprocess.run(
        interpreter.command(own + code + end, *words),
        env=interpreter.environment(), capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    *said, number = done.stdout.splitlines()
    return int(number), "\n".join(said)


@pytest.mark.parametrize("name", BOMBS)
def test_a_pickle_never_takes_more_than_its_share(tmp_path: Path, name: str) -> None:
    (tmp_path / "bomb").write_bytes(BOMBS[name])
    began = time.monotonic()
    code = (
        "try: print(type(pickles.unpickle(open(sys.argv[1], 'rb').read())))\n"
        "except ValueError as error: print('refused:', error)"
    )
    memory, said = peak(code, str(tmp_path / "bomb"))
    assert said.startswith("refused: "), said
    assert memory < 1100
    assert time.monotonic() - began < 40


def test_the_reader_is_refused_classes(tmp_path: Path) -> None:
    class Touch:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.system, (f"touch {tmp_path}/touched",)

    with pytest.raises(ValueError, match="names nothing"):
        pickles.unpickle(pickle.dumps({"x": Touch()}))
    assert not (tmp_path / "touched").exists()


def test_a_sound_dump_comes_back_whole_and_shares_its_frames() -> None:
    sent = dump(300)
    found = pickles.unpickle(pickle.dumps(sent, protocol=2))
    assert found == json.loads(json.dumps(sent))
    stacks = [entry["frames"] for entry in found["entries"]]
    assert stacks[0][5] is stacks[1][4] is stacks[20][5]


@pytest.mark.parametrize("data", [b"", b"\x80", pickle.dumps([1]), b"no pickle", b"\x80\x02}"])
def test_what_is_no_dump_is_a_value_error(data: bytes) -> None:
    with pytest.raises(ValueError):
        pickles.unpickle(data)


def test_things_that_json_has_not_are_left_out() -> None:
    found = pickles.unpickle(pickle.dumps({"a": b"bytes", 3: {1, 2}, (1, 2): 5, "entries": 7, "x": float("inf")}))
    assert found == {"a": None, "3": None, "entries": 7, "x": float("inf")}


def test_json_that_explodes_is_refused_before_it_is_parsed() -> None:
    assert foreign.parse_json(b'[{"a": [1, 2]}]') == [{"a": [1, 2]}]
    for part in (b"[],", b"{},", b'{"a":1},', b'"",'):
        with pytest.raises(ValueError, match="MiB"):
            foreign.parse_json(b"[" + part * (16 * MIB // len(part)) + b"0]")


@pytest.mark.parametrize("name", ["memo", "sets"])
def test_a_bomb_behind_a_socket_costs_the_history_alone(tmp_path: Path, name: str) -> None:
    """The rank, which may be hostile, is still a rank; nobody waits for its history."""
    reply = header(BOMBS[name]) + BOMBS[name]
    with listening(tmp_path / "7.sock", reply):
        code = (
            "from pathlib import Path; from hangdoc.capture.read.probe_client import ProbeClient\n"
            "found = ProbeClient(Path(sys.argv[1])).details(5)\n"
            "print(type(found).__name__, [note.why for note in found.unavailable])"
        )
        began = time.monotonic()
        memory, said = peak(code, str(tmp_path / "7.sock"))
        assert time.monotonic() - began < 40
    assert said.startswith("ProbeDetails") and "cannot be read" in said
    assert memory < 1100


def test_a_capture_waits_for_no_bomb(tmp_path: Path) -> None:
    """It ends as if the rank had been silent, while another process may still be busy with the bomb."""
    with subprocess.Popen(["sleep", "100"]) as rank:
        try:
            target = RankTarget(0, rank.pid, "environment", 1, socket=tmp_path / "7.sock")
            began = time.monotonic()
            with listening(tmp_path / "7.sock", b""):
                capture_job(CaptureRequest([target], options=CaptureOptions(gap=0.2)))
            silent = time.monotonic() - began
            (tmp_path / "7.sock").unlink()
            began = time.monotonic()
            with listening(tmp_path / "7.sock", header(BOMBS["laughs"]) + BOMBS["laughs"]):
                snapshot = capture_job(CaptureRequest([target], options=CaptureOptions(gap=0.2)))
            took = time.monotonic() - began
        finally:
            rank.kill()
    assert took < 3 * silent + 3
    assert [note.rank for note in snapshot.unavailable if note.what == "journal"] == [0]


def test_counters_are_small(tmp_path: Path) -> None:
    body = b"{" + b" " * (8 * MIB) + b"}"
    for reply in (header(body) + body, b"[" * (8 * MIB)):
        with listening(tmp_path / f"{len(reply)}.sock", reply):
            assert ProbeClient(tmp_path / f"{len(reply)}.sock").counters(20) is None


def test_the_look_ahead_reads_by_itself_within_its_limit(tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(BOMBS["memo, whole"])
    code = (
        "foreign.limit_memory(1 << 29); print(resource.getrlimit(resource.RLIMIT_AS)[0] >> 20)\n"
        "pickles.subprocess = None\n"
        "try: pickles.unpickle(open(sys.argv[1], 'rb').read())\nexcept MemoryError: print('refused')"
    )
    memory, said = peak(code, str(tmp_path / "bomb"))
    assert said.split() == ["512", "refused"] and memory < 512


# Other users


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, and then himself again")


def become_nobody() -> None:
    os.setgid(65534)
    os.setuid(65534)


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may write to, as a job's environment may name it."""
    import tempfile

    folder = Path(tempfile.mkdtemp(prefix="shared-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_another_user_does_not_answer_for_a_rank(shared: Path) -> None:
    path = shared / "7.sock"
    body = pickle.dumps(dump(1))
    with listening(path, header(body) + body, become_nobody):
        for client in (ProbeClient(path), ProbeClient(path, os.getpid())):
            found = client.details(10)
            assert isinstance(found, Unavailable) and "user 65534 answers in its place" in found.why
            assert client.counters(10) is None
        theirs = subprocess.Popen(["sleep", "60"], preexec_fn=become_nobody)
        try:
            assert procfs.users(theirs.pid) == {65534}
            assert isinstance(ProbeClient(path, theirs.pid).details(10), ProbeDetails)
        finally:
            theirs.kill()
            theirs.wait()


@needs_root
def test_a_root_that_is_asked_in_a_users_name_hears_nothing(shared: Path) -> None:
    """The user's environment names a socket of root's: no word is said there."""
    heard: list[bytes] = []
    theirs = subprocess.Popen(["sleep", "60"], preexec_fn=become_nobody)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(shared / "root.sock"))
        listener.listen()
        (shared / "7.sock").symlink_to("root.sock")
        try:
            found = ProbeClient(shared / "7.sock", theirs.pid).details(5)
        finally:
            theirs.kill()
            theirs.wait()
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(100))
    assert isinstance(found, Unavailable) and "user 0 answers" in found.why
    assert heard == [b""]


@needs_root
def test_notes_of_another_user_are_none(tmp_path: Path) -> None:
    path = tmp_path / "7.bye"
    path.write_bytes(header(b"", at=1.5, parts=[]))
    assert read_bye(path) is not None and probe_client.read_introduction(path) is not None
    os.chown(path, 65534, 65534)
    assert read_bye(path) is None and probe_client.read_introduction(path) is None


@pytest.mark.parametrize("planted", ["link", "fifo", "endless"])
def test_notes_that_are_no_plain_files_are_none(tmp_path: Path, planted: str) -> None:
    path = tmp_path / "7.bye"
    if planted == "link":
        (tmp_path / "real").write_bytes(header(b"", at=1.5, parts=[]))
        path.symlink_to("real")
    elif planted == "fifo":
        os.mkfifo(path)
    else:
        path.write_bytes(b"{")
        os.truncate(path, 1 << 40)
    assert read_bye(path) is None


def test_a_pickle_may_not_refer_to_anything_outside_itself() -> None:
    with pytest.raises(ValueError, match="outside itself"):
        pickles.load_builtins(b"\x80\x02U\x01xQ.")
