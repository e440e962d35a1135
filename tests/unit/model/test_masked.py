"""A whole job without secrets, in every place of a snapshot and in everything that is written from it."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
from cases import case, names
from secret_corpus import ARGUMENTS, LINES, VARIABLE_SECRETS, VARIABLES

from hangdoc.capture.load import open_saved
from hangdoc.diagnosis import diagnose
from hangdoc.model.codec import dump_snapshot, load_snapshot
from hangdoc.model.journal import Attribute, Call, Journal, ProcessGroup, StoreWait
from hangdoc.model.masked import masked
from hangdoc.model.process import Frame, Local, OpenFile, Process, ProcessExit, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, LogTail, RankSnapshot, Unavailable
from hangdoc.report import document
from hangdoc.report.terminal import render

TEXTS = tuple(line for line, _ in LINES)
WORDS = tuple(word for words, _ in ARGUMENTS for word in words)
NUMBERS = ("81726354", "81726355")
SECRETS = [secret for _, secret in (*LINES, *ARGUMENTS)] + VARIABLE_SECRETS + list(NUMBERS)


def job() -> JobSnapshot:
    frame = Frame("/job/train.py", 3, "f", (Local("password", NUMBERS[0]), Local("step", "7")))
    state = ProcessState(1.0, "S", threads=(Thread(7, "python", "S", frames=(frame,)),))
    blocked = tuple(OpenFile(3, text, operation="read") for text in TEXTS)
    process = Process(7, 1, "rank", argv=WORDS, looks=(state, state), blocking_files=blocked, locked_files=TEXTS)
    journal = Journal(
        "probe",
        groups=tuple(ProcessGroup(str(number), (0, 1), text) for number, text in enumerate(TEXTS)),
        calls=tuple(Call("0", number + 1, number + 1, "all_reduce", 0) for number in range(2000)),
        store_waits=(StoreWait("wait", TEXTS, 0),),
        stacks=((frame,),),
        attributes=(Attribute("/job/train.py", 3, "f", "api_key", NUMBERS[1], "self.config"),),
        failure=TEXTS[0],
        handled=TEXTS[1],
    )
    ranks = tuple(
        RankSnapshot(
            rank,
            "host",
            "probe",
            world_size=2,
            environment=tuple(sorted(VARIABLES)),
            process=replace(process, pid=7 + rank),
            exit=ProcessExit(1.0, 1, exception=TEXTS[2], stack=(frame,)) if rank else None,
            journal=journal,
            log=LogTail("/job/log", TEXTS),
        )
        for rank in range(2)
    )
    return JobSnapshot(
        taken=2.0,
        mode="watch",
        command=("torchrun", *WORDS),
        stalled_for=60.0,
        world_size=2,
        ranks=ranks,
        log=LogTail("/job/out", TEXTS),
        unavailable=tuple(Unavailable("stack", text, text, 0) for text in TEXTS),
    )


@pytest.fixture(scope="module")
def shown() -> JobSnapshot:
    return masked(job())


def assert_clean(text: str) -> None:
    assert [secret for secret in SECRETS if secret in text] == []


def test_in_memory_and_in_what_is_written(shown: JobSnapshot, tmp_path: Path) -> None:
    assert [secret for secret in SECRETS if secret not in repr(job())] == []
    assert_clean(repr(shown))
    for outcome in (shown, replace(shown, ended=True, exit_status=1)):
        diagnosis = diagnose(outcome)
        assert_clean(render(diagnosis, width=200))
        assert_clean(document.render(diagnosis))
        dump_snapshot(outcome, tmp_path / "x.hangdoc")
        assert_clean(gzip.decompress((tmp_path / "x.hangdoc").read_bytes()).decode())
        assert_clean(repr(open_saved(tmp_path / "x.hangdoc")))


def test_what_is_no_secret_is_as_before(shown: JobSnapshot) -> None:
    assert shown.ranks[0].journal is not None
    assert shown.ranks[0].journal.calls == tuple(job().ranks[0].journal.calls)  # type: ignore[union-attr]
    assert shown.ranks[0].process is not None
    locals_ = shown.ranks[0].process.looks[0].threads[0].frames[0].locals
    assert locals_ == (Local("password", "…"), Local("step", "7"))
    assert masked(shown) == shown


def test_a_snapshot_of_an_older_version_is_masked_when_it_is_read(tmp_path: Path) -> None:
    dump_snapshot(job(), tmp_path / "old.hangdoc")
    assert_clean(repr(open_saved(tmp_path / "old.hangdoc")))


@pytest.mark.parametrize("name", names()[::8])
def test_nothing_in_real_jobs_looks_like_a_secret(name: str) -> None:
    before = load_snapshot(case(name))
    assert masked(before) == before
