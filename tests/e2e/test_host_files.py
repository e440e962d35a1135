"""`hangdoc diagnose a.hangdoc b.hangdoc …`: the snapshots of several hosts, one verdict."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from cases import case
from hosts_of_a_case import on_two_hosts

from hangdoc.cli import main
from hangdoc.model.codec import dump_snapshot, load_snapshot


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    job = load_snapshot(case("uneven_batches"))
    paths = (tmp_path / "a.hangdoc", tmp_path / "b.hangdoc")
    for path, part in zip(paths, on_two_hosts(job, {0, 1}), strict=True):
        dump_snapshot(part, path)
    return paths


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    status = main(["diagnose", *map(str, words)])
    said = capsys.readouterr()
    return status, said.out, said.err


@pytest.mark.parametrize("order", [1, -1])
def test_two_hosts_give_the_verdict_of_the_whole_job(
    files: tuple[Path, Path], order: int, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = run(capsys, "--json", *files[::order])
    assert (status, err) == (1, "")
    found = json.loads(out)
    assert (found["cause"]["code"], found["culprits"]) == ("HD102", [2])
    assert found["culprit_processes"][0]["host"] == "b"
    assert {rank["rank"]: rank["host"] for rank in found["ranks"]} == {0: "a", 1: "a", 2: "b", 3: "b"}


def test_a_host_of_another_job_is_refused_and_named(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = files
    job = load_snapshot(second)
    ranks = tuple(
        replace(rank, environment=(("MASTER_PORT", "1"), ("TORCHELASTIC_RUN_ID", "other"))) for rank in job.ranks
    )
    dump_snapshot(replace(job, ranks=ranks), second)
    job = load_snapshot(first)
    ranks = tuple(replace(rank, environment=(("TORCHELASTIC_RUN_ID", "mine"),)) for rank in job.ranks)
    dump_snapshot(replace(job, ranks=ranks), first)
    status, out, err = run(capsys, *files)
    assert (status, out) == (3, "")
    assert f"{second} shows another job than {first}: its TORCHELASTIC_RUN_ID is other, and mine in {first}" in err
    assert "Diagnose the snapshots of one job together" in err


def test_dumps_are_not_joined_with_snapshots(
    files: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = load_snapshot(files[1])
    dump_snapshot(replace(job, mode="dump"), files[1])
    status, out, err = run(capsys, *files)
    assert (status, out) == (3, "")
    assert "Put the dumps of all hosts into one directory" in err
