"""The roster: who was a rank, also of ranks that ended before anybody looked at them. Real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hangdoc.capture.find.target import RankTarget
from hangdoc.model.journal import Journal, ProcessGroup
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.sidecar.command import Run
from hangdoc.sidecar.ranks import Roster


@pytest.fixture
def launcher() -> Iterator[subprocess.Popen[bytes]]:
    """A process whose children would be the ranks."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def roster(launcher: subprocess.Popen[bytes], tmp_path: Path) -> Iterator[Roster]:
    found = Roster(Run(("torchrun",), "run", launcher.pid, tmp_path))
    yield found
    found.close()


def note(folder: Path, pid: int, rank: int, restart: int = 0) -> None:
    """What the probe of a rank writes when it starts."""
    who = {"pid": pid, "rank": rank, "world_size": 2, "local_rank": rank, "restart": restart}
    who |= {"protocol": 1, "bytes": 0, "parts": []}
    path = folder / f"{pid}.rank"
    path.write_bytes(json.dumps(who).encode() + b"\n")
    path.chmod(0o600)


def zombie(status: int) -> subprocess.Popen[bytes]:
    """A process that has ended and is not reaped yet."""
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({status})"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    return process


def here_and_expected() -> list[RankTarget]:
    return [RankTarget(0, os.getpid(), "probe", world_size=2), RankTarget(1, None, "expected", world_size=2)]


def test_a_rank_that_ended_before_it_was_found_is_known_by_its_note(roster: Roster, tmp_path: Path) -> None:
    process = zombie(7)
    try:
        note(tmp_path, process.pid, 1)
        before = time.time()
        roster.update(here_and_expected())
        roster.wait(5.0)
    finally:
        process.wait(10.0)
    assert roster.members()[1].target.pid == process.pid
    end = roster.exits()[1]
    assert end.status == 7
    assert end.lived_at is not None
    assert end.earliest <= before <= end.at
    assert [target.rank for target in roster.targets()] == [0, 1]


def test_a_rank_that_ended_and_was_reaped_is_known_without_a_status(roster: Roster, tmp_path: Path) -> None:
    process = zombie(7)
    process.wait(10.0)
    note(tmp_path, process.pid, 1)
    roster.update(here_and_expected())
    end = roster.exits()[1]
    assert (end.status, end.signal) == (None, None)
    assert end.lived_at is not None


def test_a_note_proves_nothing_while_its_process_lives(
    roster: Roster, tmp_path: Path, launcher: subprocess.Popen[bytes]
) -> None:
    """A helper that runs its parent's script again, or another process that has the number by now."""
    note(tmp_path, launcher.pid, 1)
    roster.update(here_and_expected())
    assert 1 not in roster.members()


@pytest.mark.parametrize(("rank", "restart"), [(0, 0), (1, 1), (2, 0)])
def test_a_note_of_another_rank_or_restart_is_not_used(rank: int, restart: int, roster: Roster, tmp_path: Path) -> None:
    process = zombie(0)
    process.wait(10.0)
    note(tmp_path, process.pid, rank, restart)
    roster.update(here_and_expected())
    assert list(roster.members()) == [0]
    assert roster.exits() == {}


def test_a_broken_note_is_none(roster: Roster, tmp_path: Path) -> None:
    (tmp_path / "4711.rank").write_bytes(b"{")
    (tmp_path / "4712.rank").symlink_to("/etc/passwd")
    roster.update(here_and_expected())
    assert list(roster.members()) == [0]


def test_a_rank_lived_until_it_was_last_asked_for(roster: Roster) -> None:
    """On a busy machine the round before may have taken long: the end came at some time since."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        roster.update([RankTarget(0, process.pid, "probe", world_size=1)])
        roster.wait(0.0)
        asked = time.time()
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        time.sleep(0.2)
        roster.wait(5.0)
        end = roster.exits()[0]
    assert end.lived_at is not None
    assert end.lived_at <= asked
    assert end.at >= asked + 0.2


def ended_rank(roster: Roster, rank: int, **environment: str) -> None:
    """A rank that the roster has seen live and end."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        roster.update([RankTarget(rank, process.pid, "probe", environment=tuple(environment.items()))])
        process.kill()
        deadline = time.monotonic() + 20
        while not roster.has_ended(process.pid):
            assert time.monotonic() < deadline
            roster.wait(0.5)


def test_ranks_of_an_earlier_round_do_not_count_though_their_numbers_do_not_come_again(roster: Roster) -> None:
    """Another node has come and has ranks 0 and 1 now: ours has 2 and 3, and torchrun counts no restart."""
    for rank in (0, 1):
        ended_rank(roster, rank, WORLD_SIZE="2", GROUP_RANK="0")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        later = (("WORLD_SIZE", "4"), ("GROUP_RANK", "1"))
        roster.update([RankTarget(2, process.pid, "probe", environment=later)])
        assert list(roster.members()) == [2]
        process.kill()


def test_ranks_that_ended_before_another_one_came_count(roster: Roster) -> None:
    ended_rank(roster, 0, WORLD_SIZE="2", GROUP_RANK="0")
    ended_rank(roster, 1, WORLD_SIZE="2", GROUP_RANK="0")
    assert list(roster.members()) == [0, 1]


def test_what_has_started_ranks_is_their_launcher_and_no_rank(roster: Roster) -> None:
    """srun gives torchrun the variables of a rank, and torchrun starts the ranks."""
    roster.update([RankTarget(1, os.getpid(), "environment", world_size=4)])
    assert [member.target.rank for member in roster.members().values()] == [1]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as rank:
        roster.update([RankTarget(2, rank.pid, "probe", world_size=4)])
        found = [member.target.rank for member in roster.members().values()]
        rank.kill()
    assert found == [2]


def test_ranks_that_the_launcher_has_started_anew_are_told_once_as_they_were(roster: Roster) -> None:
    ended_rank(roster, 0, TORCHELASTIC_MAX_RESTARTS="3")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        again = (("TORCHELASTIC_MAX_RESTARTS", "3"),)
        roster.update([RankTarget(0, process.pid, "probe", restart=1, environment=again)])
        ended = roster.take_ended_round()
        assert ended is not None
        assert ended.roster is not None
        assert (ended.restart, ended.most) == (1, 3)
        assert ended.roster.exits()[0].signal == 9
        assert roster.members()[0].process.pid == process.pid
        roster.update([RankTarget(0, process.pid, "probe", restart=1, environment=again)])
        assert roster.take_ended_round() is None
        process.kill()


def test_a_rank_that_ended_after_a_restart_is_no_further_one(roster: Roster, tmp_path: Path) -> None:
    ended_rank(roster, 0)
    mine = RankTarget(0, os.getpid(), "probe", world_size=2, restart=1, parent=7)
    roster.update([mine])
    assert roster.take_ended_round() is not None
    process = zombie(7)
    try:
        note(tmp_path, process.pid, 1, 1)
        roster.update([mine, RankTarget(1, None, "expected", world_size=2, restart=1)])
        assert roster.take_ended_round() is None
        assert sorted(roster.members()) == [0, 1]
    finally:
        process.wait(10.0)


def test_an_agent_that_counts_no_failure_keeps_its_new_ranks(roster: Roster) -> None:
    """Rank 1, of agent 8, has failed; agent 7 has started rank 0 anew for it, before agent 8 has its own."""
    ended_rank(roster, 1)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        mine = RankTarget(0, process.pid, "probe", world_size=2, parent=7)
        roster.update([mine])
        assert roster.take_ended_round() is None
        roster.update([mine, RankTarget(1, os.getpid(), "probe", world_size=2, restart=1, parent=8)])
        assert [member.target.restart for member in roster.members().values()] == [0, 1]
        ended = roster.take_ended_round()
        assert ended is not None
        assert ended.roster is not None
        assert list(ended.roster.members()) == [1]
        assert ended.roster.exits()[1].signal == 9
        process.kill()


def test_what_a_rank_said_in_a_stall_is_kept_for_its_end_unless_the_job_moved_since(roster: Roster) -> None:
    journal = Journal("probe", groups=(ProcessGroup("0", (0, 1)),))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        roster.update([RankTarget(0, process.pid, "probe", world_size=2)])
        said = JobSnapshot(taken=50.0, mode="watch", ranks=(RankSnapshot(0, "here", "probe", journal=journal),))
        roster.keep_journals(said)
        process.kill()
    assert {rank: (kept.journal, kept.at) for rank, kept in roster.kept_journals().items()} == {0: (journal, 50.0)}
    roster.forget_journals()
    assert roster.kept_journals() == {}
