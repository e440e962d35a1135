"""What hosts answer: snapshots, words, garbage, nothing. The command that reaches them is a small shell script."""

from __future__ import annotations

import gzip
import time
from dataclasses import replace
from pathlib import Path

import pytest
from cases import case
from hosts_of_a_case import on_two_hosts

from hangdoc.capture import asking, remote
from hangdoc.capture.asking import HostsRequest
from hangdoc.capture.remote import snapshot_of_hosts
from hangdoc.capture.transports import rsh
from hangdoc.diagnosis import diagnose
from hangdoc.errors import CannotLook
from hangdoc.model.codec import dump_snapshot, load_snapshot
from hangdoc.model.snapshot import JobSnapshot

JOB = load_snapshot(case("uneven_batches"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A host answers with what is in the file of its name, or does what the script of its name does."""
    for name, part in zip("ab", on_two_hosts(JOB, {0, 1}), strict=True):
        dump_snapshot(part, tmp_path / name)
    (tmp_path / "ask").write_text('#!/bin/sh\nhost=$1; cd "$(dirname "$0")"; [ -x $host ] && exec ./$host; cat $host\n')
    (tmp_path / "ask").chmod(0o700)
    return tmp_path


def asked(folder: Path, *hosts: str, seconds: float = 20.0) -> JobSnapshot:
    return snapshot_of_hosts(HostsRequest(hosts, rsh(f"{folder}/ask {{host}}"), ["hangdoc"], seconds=seconds))


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o700)


def notes(snapshot: JobSnapshot) -> list[str]:
    return [note.why for note in snapshot.unavailable if note.what == "hosts"]


def test_the_answers_are_joined(folder: Path) -> None:
    whole = asked(folder, "a", "b")
    assert notes(whole) == []
    assert diagnose(whole).culprits == (2,)
    assert {rank.rank: rank.host for rank in whole.ranks} == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_a_login_script_may_chatter_before_the_snapshot(folder: Path) -> None:
    script(folder, "noisy", "echo Welcome to node b; cat b")
    assert diagnose(asked(folder, "a", "noisy")).culprits == (2,)


@pytest.mark.parametrize(
    ("does", "why", "remedy"),
    [
        ("exit 7", "the command of --rsh exits with 7", ""),
        ("echo no route to host >&2; exit 255", "no route to host", ""),
        ("echo 'sh: hangdoc: not found' >&2; exit 127", "sh: hangdoc: not found", "--remote-hangdoc"),
        ("printf 'hangdoc: no job runs\\n  Look there.\\n' >&2; exit 3", "no job runs", "Look there."),
        ("printf 'hangdoc: \\033[31mred\\n' >&2; exit 3", "\\x1b[31mred", ""),
        ("true", "sent no snapshot: its answer is empty", "same version"),
        ("echo hello", "sent no snapshot: its answer is not a hangdoc snapshot", "same version"),
        ("head -c 500 b", "sent no snapshot: its answer is cut short", "same version"),
        ("sleep 30", "did not answer within 2 s", "--host-timeout"),
    ],
)
def test_a_host_without_a_snapshot_is_named_and_not_blamed(folder: Path, does: str, why: str, remedy: str) -> None:
    script(folder, "c", does)
    began = time.monotonic()
    whole = asked(folder, "a", "c", seconds=2.0 if does.startswith("sleep") else 20.0)
    assert time.monotonic() - began < 25
    (note,) = [note for note in whole.unavailable if note.what == "hosts"]
    assert note.why == f"c: {why}"
    assert remedy in note.remedy
    found = diagnose(whole)
    assert not {2, 3} & {*found.culprits, *(rank for side in found.alternatives for rank in side)}
    with pytest.raises(CannotLook, match="c: "):
        asked(folder, "c", seconds=2.0 if does.startswith("sleep") else 20.0)


def test_what_expands_without_end_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.model.codec.MAX_EXPANDED", 1 << 20)
    (folder / "bomb").write_bytes(gzip.compress(b"[" * (4 << 20)))
    assert "expands to more than 1 MiB" in notes(asked(folder, "a", "bomb"))[0]
    monkeypatch.setattr(asking, "MOST_BYTES", 1 << 20)
    script(folder, "flood", "head -c 3000000 /dev/zero")
    assert notes(asked(folder, "a", "flood")) == ["flood: sent more than 1 MiB"]


def test_hosts_share_what_memory_there_is(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "spare_memory", lambda: 1000)
    with pytest.raises(CannotLook, match="too large for this host's memory"):
        asked(folder, "a", "b")


def test_hosts_that_say_the_same_are_one_note(folder: Path) -> None:
    for name in ("n1", "n2", "n3"):
        script(folder, name, "echo no route to host >&2; exit 255")
    (note,) = notes(asked(folder, "a", "n1", "n2", "n3"))
    assert note in ("n[1-3]: no route to host", "n1, n2, n3: no route to host")


def test_a_host_that_shows_another_job_is_left_out_and_named(folder: Path) -> None:
    stranger = on_two_hosts(JOB, {0, 1})[1]
    ranks = tuple(replace(rank, environment=(("WORLD_SIZE", "16"),)) for rank in stranger.ranks)
    dump_snapshot(replace(stranger, ranks=ranks), folder / "s")
    # It is asked first, but two hosts show the other job.
    whole = asked(folder, "s", "a", "b")
    assert diagnose(whole).culprits == (2,)
    (note,) = notes(whole)
    assert note.startswith("s shows another job and is left out: its WORLD_SIZE is 16, and 4 in a")
