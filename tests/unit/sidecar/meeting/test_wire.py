"""What of a snapshot goes to other hosts, and what the lead makes of theirs."""

from __future__ import annotations

import gzip
import hashlib
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.capture.read import procfs
from hangdoc.errors import BadSnapshot
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.journal import Attribute, Journal
from hangdoc.model.marks import Marks
from hangdoc.model.process import Frame, Local, Process, ProcessState, Thread
from hangdoc.model.same_job import Part
from hangdoc.model.snapshot import HostSnapshot, JobSnapshot, Module, RankSnapshot, SourceText
from hangdoc.sidecar.meeting.wire import joined, packed, placed_elsewhere, unpacked

CODE = "def train():\n    key = 1\n    barrier()\n"


def host(name: str, rank: int, file: str, *, text: str = CODE.rstrip(), pid: int = 4711) -> JobSnapshot:
    frame = Frame(file, 3, "train", (Local("key", "'private'"),))
    stat = procfs.stat(pid)
    started = procfs.start_time(stat) if stat is not None else 1.0
    look = ProcessState(time.time(), "S", threads=(Thread(pid, "python", "S", frames=(frame,)),))
    journal = Journal("probe", stacks=((frame,),), attributes=(Attribute(file, 3, "train", "flag", "True"),))
    ranks = [
        RankSnapshot(r, name, "probe" if r == rank else "expected", world_size=2,
                     process=Process(pid, 1, "rank", started=started, looks=(look, look)) if r == rank else None,
                     journal=journal if r == rank else None)
        for r in range(2)
    ]  # fmt: skip
    sources = (SourceText(file, "train", 1, text),)
    return JobSnapshot(1.0, "watch", ("train",), ranks=tuple(ranks), hosts=(HostSnapshot(name),), sources=sources)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(CODE)
    os.utime(path, (1, 1))
    return str(path)


def test_values_and_sources_stay_where_they_are(program: str) -> None:
    shown = host("b", 1, program)
    shown = replace(shown, launcher=shown.ranks[1].process)
    sent = packed(shown, send_sources=False)
    text = snapshot_to_bytes(snapshot_from_bytes(sent))
    plain = gzip.decompress(text).decode()
    for private in ("private", "key", "flag", "barrier()"):
        assert private not in plain
    everything = gzip.decompress(packed(host("b", 1, program), send_sources=True)).decode()
    for private in ("private", "flag", "barrier()"):
        assert private in everything


def test_the_lead_reads_its_own_copy_of_the_same_file(program: str) -> None:
    own = replace(host("a", 0, program, pid=os.getpid()), sources=())
    other = unpacked(packed(host("b", 1, program), send_sources=False), "b", {1})
    whole = joined(Part("a", own), [Part("b", other)], read_sources=True)
    assert [(text.file, text.text.rstrip()) for text in whole.sources] == [(program, CODE.rstrip())]
    assert [(rank.rank, rank.host, rank.process is not None) for rank in whole.ranks] == [
        (0, "a", True),
        (1, "b", True),
    ]
    assert not [note for note in whole.unavailable if note.what == "source"]


def test_a_file_that_differs_is_left_out_and_named(program: str) -> None:
    own = replace(host("a", 0, program, pid=os.getpid()), sources=())
    other = packed(host("b", 1, program, text=CODE.rstrip().replace("1", "2")), send_sources=False)
    whole = joined(Part("a", own), [Part("b", unpacked(other, "b", {1}))], read_sources=True)
    assert whole.sources == ()
    assert [note.why for note in whole.unavailable] == [f"{program} is not the same on all hosts"]


def test_a_file_that_the_lead_has_not_is_named(program: str) -> None:
    own = replace(host("a", 0, program, pid=os.getpid()), sources=())
    other = unpacked(packed(host("b", 1, "/elsewhere/train.py"), send_sources=False), "b", {1})
    whole = joined(Part("a", own), [Part("b", other)], read_sources=True)
    assert whole.sources == ()
    assert any("/elsewhere/train.py" in note.why and "--meet-send-sources" in note.remedy for note in whole.unavailable)


def with_module(snapshot: JobSnapshot, file: str, text: str) -> JobSnapshot:
    """``snapshot`` with the file whole."""
    module = Module(file, f"sha256:{hashlib.sha256(text.encode()).hexdigest()}", text, "theirs", (("word", "0" * 8),))
    return replace(snapshot, modules=(module,))


def test_of_a_module_only_the_digest_travels(program: str) -> None:
    shown = with_module(host("b", 1, program), program, CODE)
    (sent,) = unpacked(packed(shown, send_sources=False), "b", {1}).modules
    assert sent == Module(program, shown.modules[0].digest)
    assert unpacked(packed(shown, send_sources=True), "b", {1}).modules == shown.modules


def test_the_lead_has_its_own_copy_of_a_module_that_only_another_host_has_run(program: str) -> None:
    marks = Marks()
    mine = Module("/job/train.py", "sha256:1", f"x = '…{marks.of('ready/a')}'", marks.name)
    own = replace(host("a", 0, program, pid=os.getpid()), sources=(), modules=(mine,))
    rules = Path(program).with_name("rules.py")
    text = "def rule():\n    return 'ready/a'\n"
    rules.write_text(text)
    os.utime(rules, (1, 1))
    ran = (SourceText(str(rules), "rule", 1, "def rule():\n    return '…'"),)
    there = replace(with_module(host("b", 1, program), str(rules), text), sources=ran)
    sent = unpacked(packed(there, send_sources=False), "b", {1})
    whole = joined(Part("a", own), [Part("b", sent)], read_sources=True)
    assert [module.file for module in whole.modules] == ["/job/train.py", str(rules)]
    assert whole.modules[1].text == f"def rule():\n    return '…{marks.of('ready/a')}'\n"
    assert whole.modules[1].marks == marks.name
    assert whole.sources == ran
    assert not [note for note in whole.unavailable if note.what in ("modules", "source")]


def test_what_another_host_sends_is_replaced_by_the_same_file_with_our_marks(program: str) -> None:
    marks = Marks()
    mine = Module("/job/train.py", "sha256:1", f"x = '…{marks.of('ready/a')}'", marks.name)
    own = replace(host("a", 0, program, pid=os.getpid()), sources=(), modules=(mine,))
    gone = Module("/gone/rules.py", "sha256:2", "y = '…00000000'", "theirs")
    there = replace(
        host("b", 1, program), sources=(), modules=(replace(mine, text="x = '…00000001'", marks="theirs"), gone)
    )
    there = unpacked(packed(there, send_sources=True), "b", {1})
    assert joined(Part("a", own), [Part("b", there)], read_sources=True).modules == (gone, mine)


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("has", ["another", "none"])
def test_a_module_that_differs_or_is_missing_is_said(program: str, has: str, read: bool) -> None:
    own = replace(host("a", 0, program, pid=os.getpid()), sources=())
    rules = Path(program).with_name("rules.py")
    if has == "another":
        rules.write_text("x = 1\n")
        os.utime(rules, (1, 1))
    there = with_module(host("b", 1, program), str(rules), "x = 2\n")
    there = unpacked(packed(replace(there, sources=()), send_sources=False), "b", {1})
    whole = joined(Part("a", own), [Part("b", there)], read_sources=read)
    assert whole.modules == ()
    why = "is not the same on all hosts" if has == "another" else "not on the host that has the report"
    notes = [note.why for note in whole.unavailable if note.what == "modules"]
    assert [why in note and str(rules) in note for note in notes] == [True] * read


def test_a_host_speaks_only_for_its_own_ranks(program: str) -> None:
    forged = replace(host("b", 1, program), ranks=(*host("b", 0, program).ranks[:1], *host("b", 1, program).ranks[1:]))
    found = unpacked(packed(forged, send_sources=False), "b", {1})
    assert [rank.rank for rank in found.ranks] == [1]


def test_a_host_of_another_job_is_left_out_and_named(program: str) -> None:
    def of(run: str, snapshot: JobSnapshot) -> JobSnapshot:
        ranks = tuple(replace(rank, environment=(("TORCHELASTIC_RUN_ID", run),)) for rank in snapshot.ranks)
        return replace(snapshot, ranks=ranks)

    whole = joined(
        Part("a", of("1", host("a", 0, program))), [Part("b", of("2", host("b", 1, program)))], read_sources=False
    )
    assert [rank.process is not None for rank in whole.ranks] == [True, False]
    assert any("b shows another job: its TORCHELASTIC_RUN_ID is 2" in note.why for note in whole.unavailable)


@pytest.mark.parametrize("data", [b"", b"garbage", b"{}", b"\x1f\x8b\x08\x00", b'{"schema": "hangdoc.snapshot/1"}'])
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(BadSnapshot, match="the snapshot of b"):
        unpacked(data, "b", {1})


def test_a_rank_of_a_silent_host_lives_elsewhere(program: str) -> None:
    placed = placed_elsewhere(host("a", 0, program), {0: "x", 1: "b", 2: "c"})  # 2: nothing here promised it
    assert [(rank.rank, rank.identity, rank.host) for rank in placed.ranks] == [
        (0, "probe", "a"),
        (1, "elsewhere", "b"),
        (2, "elsewhere", "c"),
    ]
