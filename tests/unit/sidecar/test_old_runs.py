"""--keep N: older runs go; a running one, a link and whatever is no run stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoc.sidecar.old_runs import prune
from hangdoc.sidecar.run_directory import RUN_LOCK, RunDirectory


def name(number: int) -> str:
    return f"20260101-0000{number:02}-{number}-abcdef"


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A .hangdoc with five runs that have ended, each with files and a folder."""
    parent = tmp_path / ".hangdoc"
    for number in range(5):
        run = RunDirectory(parent / name(number))
        folder = run.make()
        (folder / "stall-1.hangdoc").write_text("x")
        (folder / "logs").mkdir()
        (folder / "logs" / "rank-0.txt").write_text("x")
        run.close()
    return parent


def left(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir() if path.name.startswith("2026"))


def test_the_newest_stay_and_the_current_run_is_one_of_them(runs: Path) -> None:
    assert prune(runs / name(4), 2) == [name(0), name(1), name(2)]
    assert left(runs) == [name(3), name(4)]
    assert prune(runs / name(4), 2) == []
    assert prune(runs / name(4), 1) == [name(3)]
    assert left(runs) == [name(4)]
    assert (runs / "latest").readlink() == Path(name(4))


def test_a_run_that_is_going_on_stays(runs: Path) -> None:
    running = RunDirectory(runs / name(1))
    running.make()
    assert name(1) not in prune(runs / name(4), 1)
    assert (runs / name(1) / "stall-1.hangdoc").exists()
    running.close()
    assert prune(runs / name(4), 1) == [name(1)]


def test_what_is_no_run_of_ours_stays(runs: Path, tmp_path: Path) -> None:
    (runs / "my-notes").mkdir()
    (runs / "20250101-000000-1-abcdeg").mkdir()  # no name of a run
    (runs / name(0) / RUN_LOCK).unlink()  # nobody knows if it runs
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / RUN_LOCK).write_text("")
    (elsewhere / "precious").write_text("x")
    link = runs / "20250101-000000-1-abcdef"
    link.symlink_to(elsewhere)
    prune(runs / name(4), 1)
    assert (runs / "my-notes").exists()
    assert (runs / "20250101-000000-1-abcdeg").exists()
    assert (runs / name(0) / "stall-1.hangdoc").exists()
    assert link.is_symlink()
    assert (elsewhere / "precious").exists()


def test_links_inside_a_run_are_removed_and_not_followed(runs: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").write_text("x")
    (runs / name(0) / "a").symlink_to(precious)
    (runs / name(0) / "b").symlink_to(precious / "file")
    assert prune(runs / name(4), 4) == [name(0)]
    assert (precious / "file").read_text() == "x"


def test_a_lock_that_is_a_link_or_a_pipe_keeps_the_run(runs: Path) -> None:
    for number in (0, 1):
        (runs / name(number) / RUN_LOCK).unlink()
    (runs / name(0) / RUN_LOCK).symlink_to(runs / name(2) / RUN_LOCK)
    os.mkfifo(runs / name(1) / RUN_LOCK)
    prune(runs / name(4), 1)
    assert all((runs / name(number) / "stall-1.hangdoc").exists() for number in (0, 1))


def test_folders_of_the_users_own_choice_are_left_alone(runs: Path) -> None:
    chosen = runs.parent / "runs"
    runs.rename(chosen)
    assert prune(chosen / name(4), 1) == []
    assert len(left(chosen)) == 5


def test_a_parent_that_is_a_link_is_not_followed(runs: Path) -> None:
    real = runs.parent / "real"
    runs.rename(real)
    runs.symlink_to(real)
    with pytest.raises(OSError, match=r"\.hangdoc"):
        prune(runs / name(4), 1)
    assert len(left(real)) == 5
