from __future__ import annotations

import pytest

from hangdoc.capture.read import procfs
from hangdoc.capture.read.children import role_of, subject


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> dict[int, procfs.Stat]:
    monkeypatch.setattr(procfs, "argv", lambda pid: ("python", str(pid)))
    made = [
        *((10, 1, "python"), (12, 10, "pt_data_worker"), (11, 10, "pt_data_worker"), (13, 11, "gcc")),
        *((20, 10, "python"), (21, 20, "sleep")),
    ]
    return {pid: procfs.Stat(pid, comm, "S", ppid, 0.0, float(pid), 0) for pid, ppid, comm in made}


def test_family(processes: dict[int, procfs.Stat]) -> None:
    found = subject(10, "rank", processes, {10, 20})
    assert [(member.pid, member.role) for member in found.family()] == [
        (10, "rank"),
        (11, "dataloader-worker"),
        (13, "compiler"),
        (12, "dataloader-worker"),
    ]


def test_ranks_that_are_children_of_a_rank_are_left_out_with_their_families(
    processes: dict[int, procfs.Stat],
) -> None:
    assert {member.pid for member in subject(10, "rank", processes).family()} == {10, 11, 12, 13, 20, 21}
    assert {member.pid for member in subject(20, "rank", processes, {10, 20}).family()} == {20, 21}


def test_gone(processes: dict[int, procfs.Stat]) -> None:
    found = subject(99, "rank", processes)
    assert (found.pid, found.comm, found.children) == (99, "", ())


def test_a_job_that_forks_wildly_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(procfs, "argv", lambda pid: ())
    many = {pid: procfs.Stat(pid, "x", "S", 1 if pid == 10 else 10, 0.0, 0.0, 0) for pid in range(10, 5000)}
    assert len(list(subject(10, "rank", many).family())) == 65


@pytest.mark.parametrize(
    ("comm", "argv", "role"),
    [
        ("pt_data_worker", (), "dataloader-worker"),
        ("cc1plus", (), "compiler"),
        ("python", ("python", "/v/torch/_inductor/compile_worker/__main__.py"), "compiler"),
        ("python", ("python", "-c", "from multiprocessing.spawn import spawn_main"), "child"),
        ("sleep", ("sleep", "1"), "child"),
    ],
)
def test_roles(comm: str, argv: tuple[str, ...], role: str) -> None:
    assert role_of(comm, argv) == role


def test_a_child_brings_the_variables_of_the_job_that_it_would_find(monkeypatch: pytest.MonkeyPatch) -> None:
    inherited = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    monkeypatch.setattr(procfs, "environment", lambda pid: {**inherited, "NCCL_DEBUG": "INFO"} if pid == 11 else None)
    entries = {pid: procfs.Stat(pid, "python", "S", ppid, 0.0, 0.0, 0) for pid, ppid in ((10, 1), (11, 10), (12, 10))}
    found = subject(10, "rank", entries)
    assert found.environment == ()
    assert [dict(child.environment) for child in found.children] == [inherited, {}]
