"""Ranks of a test are ended, and nobody else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import pytest

from hangdoc.capture.read import procfs
from hangdoc.pytest_plugin.reap import Spared, begun, end_ranks

NAP = "import time; time.sleep(300)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True); time.sleep(300)"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def begin(*command: str, wait: bool = False) -> subprocess.Popen[str]:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        if wait:
            assert process.stdout is not None
            process.stdout.readline()
        return process

    yield begin
    for process in started:
        for pid in reversed(procfs.descendants(process.pid, procfs.table())):
            os.kill(pid, signal.SIGKILL)
        process.wait(10)
        assert process.stdout is not None
        process.stdout.close()


@pytest.fixture
def spared() -> Spared:
    """Whatever this process had before the test."""
    found = Spared()
    found.add(pid for pid, entry in procfs.table().items() if entry.ppid == os.getpid())
    return found


def launched(start: Start, count: int = 2) -> tuple[subprocess.Popen[str], list[int]]:
    """A launcher with ranks below it."""
    code = f"import subprocess, sys; [subprocess.Popen([sys.executable, '-c', {NAP!r}]) for _ in range({count})]"
    launcher = start(sys.executable, "-c", f"{code}; print(flush=True); {NAP}", wait=True)
    processes = procfs.table()
    return launcher, procfs.descendants(launcher.pid, processes)[1:]


def test_the_whole_branch_of_a_rank_ends(start: Start, spared: Spared) -> None:
    launcher, ranks = launched(start)
    assert end_ranks(os.getpid(), spared.living(), ranks[:1]) == []
    assert launcher.wait(5) != 0
    # They are orphans by now, and were known by their start time.
    assert [procfs.exists(pid) for pid in ranks] == [False, False]


def test_other_branches_stay(start: Start, spared: Spared) -> None:
    bystander = start("sleep", "300")
    rank = start(sys.executable, "-c", NAP)
    assert end_ranks(os.getpid(), spared.living(), [rank.pid]) == []
    assert rank.wait(5) == -9
    assert bystander.poll() is None


def test_what_was_there_before_stays_with_all_that_it_starts(start: Start, spared: Spared) -> None:
    server, _ = launched(start, 1)
    spared.add([server.pid])
    rank = start(sys.executable, "-c", NAP)
    assert server.pid in spared.living()
    members, tops = begun(os.getpid(), spared.living(), [])
    assert (set(members), tops) == ({rank.pid}, [rank.pid])
    assert end_ranks(os.getpid(), spared.living(), procfs.descendants(server.pid, procfs.table())) == []
    assert server.poll() is None


def test_a_number_that_was_given_anew_is_not_spared(start: Start) -> None:
    rank = start(sys.executable, "-c", NAP)
    spared = Spared({rank.pid: 1.5})
    assert spared.living() == frozenset()


def test_a_launcher_that_does_not_listen_is_killed(start: Start, spared: Spared) -> None:
    launcher = start(sys.executable, "-c", DEAF, wait=True)
    began = time.monotonic()
    assert end_ranks(os.getpid(), spared.living(), []) == []
    assert launcher.wait(5) == -9
    assert time.monotonic() - began > 2  # it was asked first


def test_multiprocessings_servers_stay_and_what_the_fork_server_forked_ends(start: Start) -> None:
    code = (
        "import multiprocessing, time; context = multiprocessing.get_context('forkserver'); "
        "rank = context.Process(target=time.sleep, args=(300,), daemon=True); rank.start(); "
        "print(rank.pid, flush=True); rank.join(); print(rank.exitcode, flush=True); time.sleep(300)"
    )
    parent = start(sys.executable, "-c", code)
    assert parent.stdout is not None
    rank = int(parent.stdout.readline())
    processes = procfs.table()
    servers = [pid for pid in procfs.descendants(parent.pid, processes) if processes[pid].ppid == parent.pid]
    assert len(servers) == 2
    assert end_ranks(parent.pid, (), [rank]) == []
    assert int(parent.stdout.readline()) in (-9, 255)  # the server reports it
    assert [procfs.exists(pid) for pid in servers] == [True, True]
