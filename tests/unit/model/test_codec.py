"""Snapshots survive the disk unchanged, and nothing else is taken for one."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import gzip
import json
import math
import os
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hangdoc.errors import BadSnapshot, CannotLook, HangdocError, UsageError
from hangdoc.model import codec
from hangdoc.model.codec import dump_snapshot, load_snapshot, snapshot_from_bytes, snapshot_to_bytes
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup, StoreWait
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import Frame, Local, OpenFile, Process, ProcessExit, ProcessState, Thread
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, LogTail, Module, RankSnapshot, SourceText, Unavailable

FRAME = Frame("/home/me/train.py", 61, "train", (Local("step", "519"),))
SNAPSHOT = JobSnapshot(
    taken=1_700_000_000.5,
    mode="watch",
    command=("torchrun", "train.py"),
    stalled_for=31.0,
    world_size=2,
    launcher=Process(10, 1, "launcher", children=(Process(11, 10, "rank", comm="python"),)),
    ranks=(
        RankSnapshot(
            rank=0,
            host="a",
            identity="probe",
            environment=(("RANK", "0"),),
            process=Process(
                11,
                10,
                "rank",
                looks=(ProcessState(1.0, "S", threads=(Thread(11, "python", "S", frames=(FRAME,)),)),),
                blocking_files=(OpenFile(3, "pipe:[1]", (12,)),),
            ),
            journal=Journal(
                "probe",
                groups=(ProcessGroup("0", (0, 1), "default_pg", "gloo"),),
                calls=(Call("0", 1, 1, "all_reduce", 0, ((2, 3),), ("Float",)),),
                point_to_points=(PointToPoint("0", 2, "send", 1, 0, 0),),
                store_waits=(StoreWait("get", ("key",), 0),),
                stacks=((FRAME,),),
                counters=(("0", 2, 1),),
            ),
            log=LogTail("/tmp/log", ("one", "two")),
        ),
        RankSnapshot(rank=1, host="a", identity="probe", exit=ProcessExit(2.0, signal=9, oom_kills=1)),
    ),
    hosts=(HostSnapshot("a", (ListeningPort(11, "::", 29500),), (Connection(11, "l", 1, "r", 2, "LISTEN"),), 2),),
    sources=(SourceText("/home/me/train.py", "train", 60, "def train():\n    pass\n"),),
    modules=(Module("/home/me/train.py", "sha256:0", "x = '…3fa9c1d2'\n", "9c0d", (("ready", "07b2e6f4"),)),),
    unavailable=(Unavailable("stack", "gone", rank=1),),
)


def test_a_full_snapshot_survives(tmp_path):
    path = tmp_path / "stall.hangdoc"
    dump_snapshot(SNAPSHOT, path)
    assert load_snapshot(path) == SNAPSHOT
    assert path.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["stall.hangdoc"]


def test_the_plain_json_is_read_too():
    assert snapshot_from_bytes(gzip.decompress(snapshot_to_bytes(SNAPSHOT))) == SNAPSHOT


def test_same_snapshot_same_bytes():
    assert snapshot_to_bytes(SNAPSHOT) == snapshot_to_bytes(SNAPSHOT)


texts = st.text(max_size=20)
numbers = st.integers(-(2**60), 2**60)
frames = st.builds(Frame, texts, numbers, texts, st.lists(st.builds(Local, texts, texts)).map(tuple))
calls = st.builds(
    Call,
    texts,
    numbers,
    numbers,
    texts,
    numbers,
    st.lists(st.lists(numbers, max_size=3).map(tuple)).map(tuple),
)
journals = st.builds(
    Journal,
    source=texts,
    calls=st.lists(calls, max_size=4).map(tuple),
    stacks=st.lists(st.lists(frames, max_size=3).map(tuple), max_size=3).map(tuple),
    counters=st.lists(st.tuples(texts, numbers, numbers), max_size=3).map(tuple),
)
ranks = st.builds(
    RankSnapshot,
    rank=numbers,
    host=texts,
    identity=texts,
    environment=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    journal=st.none() | journals,
)
snapshots = st.builds(
    JobSnapshot,
    taken=st.floats(allow_nan=False),
    mode=texts,
    command=st.lists(texts, max_size=3).map(tuple),
    give_up_after=st.floats(allow_nan=False),
    world_size=st.none() | numbers,
    ranks=st.lists(ranks, max_size=3).map(tuple),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(snapshots)
def test_every_snapshot_survives(snapshot):
    assert snapshot_from_bytes(snapshot_to_bytes(snapshot)) == snapshot


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"\x1f\x8b\x08\x00" + tail))
def test_arbitrary_bytes_are_refused(data):
    with pytest.raises(BadSnapshot) as caught:
        snapshot_from_bytes(data)
    assert caught.value.remedy


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_snapshots_are_refused_or_read(data):
    good = bytearray(snapshot_to_bytes(SNAPSHOT))
    for _ in range(data.draw(st.integers(1, 4))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(BadSnapshot):
        snapshot_from_bytes(bytes(good))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.sampled_from([field.name for field in dataclasses.fields(JobSnapshot)]), json_values)
def test_a_field_of_another_type_is_refused_or_read(name, value):
    document = json.loads(gzip.decompress(snapshot_to_bytes(SNAPSHOT)))
    document[name] = value
    with contextlib.suppress(BadSnapshot):
        snapshot_from_bytes(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({}, "not a hangdoc snapshot"),
        ({"schema": "other/1"}, "not a hangdoc snapshot"),
        ({"schema": 7}, "not a hangdoc snapshot"),
        ({"schema": "hangdoc.snapshot/2", "ranks": "new"}, "this version reads hangdoc.snapshot/1"),
        (
            {"schema": "hangdoc.snapshot/2", "taken": 1, "mode": "watch"},
            "this version reads hangdoc.snapshot/1",
        ),
        ({"schema": "hangdoc.diagnosis/1", "outcome": "hang"}, "is a diagnosis"),
        ({"schema": "hangdoc.snapshot/1", "taken": "now", "mode": "watch"}, "damaged"),
        ({"schema": "hangdoc.snapshot/1", "taken": "1.5", "mode": "watch"}, "damaged"),
        ({"schema": "hangdoc.snapshot/1", "taken": 1, "mode": "watch", "world_size": True}, "damaged"),
    ],
)
def test_foreign_documents_are_named(document, words):
    with pytest.raises(BadSnapshot, match=words):
        snapshot_from_bytes(json.dumps(document).encode())


def test_a_snapshot_of_a_version_without_whole_modules_has_none():
    document = json.loads(gzip.decompress(snapshot_to_bytes(SNAPSHOT)))
    del document["modules"]
    assert snapshot_from_bytes(json.dumps(document).encode()) == dataclasses.replace(SNAPSHOT, modules=())


def test_unknown_fields_are_ignored():
    document = json.loads(gzip.decompress(snapshot_to_bytes(SNAPSHOT)))
    document["added_later"] = document["ranks"][0]["added_later"] = {"any": "thing"}
    assert snapshot_from_bytes(json.dumps(document).encode()) == SNAPSHOT


@pytest.mark.parametrize("length", [1, 2, 10, 200, -1])
def test_a_cut_file_is_refused(tmp_path, length):
    path = tmp_path / "cut.hangdoc"
    path.write_bytes(snapshot_to_bytes(SNAPSHOT)[:length])
    with pytest.raises(BadSnapshot):
        load_snapshot(path)


def test_what_follows_the_snapshot_is_refused():
    with pytest.raises(BadSnapshot, match="follows"):
        snapshot_from_bytes(snapshot_to_bytes(SNAPSHOT) + b"more")


def test_a_bomb_is_refused_without_expanding_it(monkeypatch):
    monkeypatch.setattr(codec, "MAX_EXPANDED", 1 << 20)
    with pytest.raises(BadSnapshot, match="expands to more than 1 MiB"):
        snapshot_from_bytes(gzip.compress(b" " * (4 << 20)))


def test_snapshots_of_several_hosts_share_what_memory_there_is():
    data = snapshot_to_bytes(SNAPSHOT)
    text = gzip.decompress(data)
    values = sum(map(text.count, (b",", b"[", b"{"))) + len(text) // 80
    room = codec.Allowance(80 * (values + codec._unfolded(SNAPSHOT)))
    assert snapshot_from_bytes(data, allowance=room) == SNAPSHOT
    with pytest.raises(BadSnapshot, match="too large for this host's memory"):
        snapshot_from_bytes(data, allowance=room)
    with pytest.raises(BadSnapshot):
        snapshot_from_bytes(b"", allowance=room)
    assert not room.reading.locked()


def test_a_large_file_is_refused_unread(tmp_path):
    path = tmp_path / "large.hangdoc"
    with path.open("wb") as file:
        file.truncate(codec.MAX_COMPRESSED + 1)
    with pytest.raises(BadSnapshot, match="too large"):
        load_snapshot(path)


def test_deep_nesting_is_refused():
    with pytest.raises(BadSnapshot):
        snapshot_from_bytes(b'{"schema":"hangdoc.snapshot/1","ranks":' + b"[" * 100_000)
    deep = Process(1, 0, "child")
    for pid in range(2, 400):
        deep = Process(pid, 0, "child", children=(deep,))
    with pytest.raises(HangdocError, match="nested too deeply"):
        snapshot_to_bytes(dataclasses.replace(SNAPSHOT, launcher=deep))


def test_a_fork_chain_of_sixty_survives():
    deep = Process(1, 0, "child")
    for pid in range(2, 61):
        deep = Process(pid, 0, "child", children=(deep,))
    snapshot = dataclasses.replace(SNAPSHOT, launcher=deep)
    assert snapshot_from_bytes(snapshot_to_bytes(snapshot)) == snapshot


def test_undecodable_names_become_readable():
    snapshot = dataclasses.replace(SNAPSHOT, command=(os.fsdecode(b"caf\xe9.py"),))
    assert snapshot_from_bytes(snapshot_to_bytes(snapshot)).command == ("caf\\udce9.py",)


def test_infinity_survives():
    snapshot = dataclasses.replace(SNAPSHOT, give_up_after=math.inf)
    assert snapshot_from_bytes(snapshot_to_bytes(snapshot)) == snapshot


def test_no_such_file_is_no_bad_snapshot(tmp_path):
    with pytest.raises(CannotLook, match="no such file") as caught:
        load_snapshot(tmp_path / "none")
    assert not isinstance(caught.value, BadSnapshot)


@pytest.mark.timeout(60)
def test_a_fifo_does_not_block(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(BadSnapshot, match="not a regular file"):
        load_snapshot(tmp_path / "fifo")


def test_an_unreadable_file_names_the_remedy(tmp_path, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(codec.os, "open", refuse)
    with pytest.raises(BadSnapshot, match="may not be read") as caught:
        load_snapshot(tmp_path / "x")
    assert "chmod" in caught.value.remedy


def test_an_odd_path_is_refused():
    with pytest.raises(BadSnapshot):
        load_snapshot("a\0b")
    with pytest.raises(UsageError):
        dump_snapshot(SNAPSHOT, "a\0b")


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "stall.hangdoc"
    path.write_text("old")
    real = os.fdopen

    class Full:
        def __init__(self, file):
            self.file = file

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def write(self, _data):
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(codec.os, "fdopen", lambda *a, **k: Full(real(*a, **k)))
    with pytest.raises(HangdocError, match="No space left") as caught:
        dump_snapshot(SNAPSHOT, path)
    assert "Free some space" in caught.value.remedy
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["stall.hangdoc"]


def test_a_directory_that_is_none_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError):
        dump_snapshot(SNAPSHOT, tmp_path / "none" / "x.hangdoc")
    with pytest.raises(UsageError):
        dump_snapshot(SNAPSHOT, tmp_path)


def test_importing_the_codec_does_not_import_pydantic():
    code = "import sys, hangdoc.model.codec; sys.exit('pydantic' in sys.modules or 'rich' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
