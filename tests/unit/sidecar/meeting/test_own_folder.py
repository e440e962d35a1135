"""A meeting's folder where others may write, too: what they have put in its place is neither used nor emptied."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hangdoc.capture.find.target import RankTarget
from hangdoc.sidecar.meeting import place
from hangdoc.sidecar.meeting.own_folder import OwnFolder
from hangdoc.sidecar.meeting.wishes import Standing

STRANGER = 65534
JOB = (("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "29500"))
RANKS = Standing((RankTarget(0, os.getpid(), "environment", 2, environment=JOB),))


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Where the meeting's folder would be, below a folder that everybody may write to."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    return shared / f"hangdoc-{place.job_name(RANKS.targets)}"


@pytest.fixture
def dear(tmp_path: Path) -> Path:
    """A folder of ours with a file that is dear to us."""
    folder = tmp_path / "dear"
    folder.mkdir(mode=0o700)
    (folder / "thesis").write_text("years of work")
    return folder


@pytest.mark.parametrize("leads", [True, False])
def test_a_link_to_a_folder_of_ours_is_not_followed(planted: Path, dear: Path, leads: bool) -> None:
    planted.symlink_to(dear)
    (dear / "key").write_text("ab" * 32)
    with pytest.raises(place.NoPlaceError, match="a file or a link"):
        place.open_place(str(planted.parent), RANKS, leads=leads)
    assert sorted(path.name for path in dear.iterdir()) == ["key", "thesis"]


@pytest.mark.parametrize("leads", [True, False])
def test_a_folder_that_others_may_write_to_is_left_alone(planted: Path, leads: bool) -> None:
    planted.mkdir()
    planted.chmod(0o777)
    (planted / "key").write_text("ab" * 32)
    with pytest.raises(place.NoPlaceError, match="others may write to it"):
        place.open_place(str(planted.parent), RANKS, leads=leads)
    assert (planted / "key").read_text() == "ab" * 32


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("leads", [True, False])
def test_another_users_folder_is_left_alone(planted: Path, leads: bool) -> None:
    planted.mkdir(mode=0o700)
    (planted / "key").write_text("ab" * 32)
    os.chown(planted, STRANGER, STRANGER)
    with pytest.raises(place.NoPlaceError, match=f"it belongs to user {STRANGER}"):
        place.open_place(str(planted.parent), RANKS, leads=leads)
    assert (planted / "key").exists()


def test_what_is_put_there_later_changes_nothing(planted: Path, dear: Path) -> None:
    lead = place.open_place(str(planted.parent), RANKS, leads=True)
    planted.rename(planted.with_name("away"))  # as somebody may where there is no sticky bit
    planted.symlink_to(dear)
    lead.board.put("lead", b"hello")
    assert lead.board.get("lead") == b"hello"
    lead.close()
    assert [path.name for path in dear.iterdir()] == ["thesis"]


def test_nothing_is_left_when_the_meeting_ends(planted: Path) -> None:
    lead = place.open_place(str(planted.parent), RANKS, leads=True)
    member = place.open_place(str(planted.parent), RANKS, leads=False)
    member.board.put("beat/x", b"1")
    member.close()
    assert planted.exists()
    lead.close()
    assert list(planted.parent.iterdir()) == []


def test_a_second_lead_of_one_name_keeps_its_folder(planted: Path) -> None:
    """The first one ends late: two jobs on one host were given one name."""
    first = place.open_place(str(planted.parent), RANKS, leads=True)
    planted.rename(planted.with_name("away"))
    second = place.open_place(str(planted.parent), RANKS, leads=True)
    second.board.put("lead", b"hello")
    first.close()
    assert second.board.get("lead") == b"hello"
    second.close()


def test_an_earlier_runs_files_are_removed_and_folders_are_not(planted: Path) -> None:
    planted.mkdir(mode=0o700)
    (planted / "beat__x").write_text("")
    (planted / "below").mkdir()
    folder = OwnFolder(planted)
    folder.clear()
    assert folder.names() == ["below"]
    folder.close()


def test_a_place_that_is_not_there_is_said_to_be_none(tmp_path: Path) -> None:
    with pytest.raises(place.NoPlaceError, match="is no folder"):
        place.open_place(str(tmp_path / "gone"), RANKS, leads=True)
    with pytest.raises(place.NoPlaceError, match="no watch beside rank 0"):
        place.open_place(str(tmp_path / "gone"), RANKS, leads=False)
