"""The meeting's place: a real TCPStore in a helper process, spoken to in its own protocol; and a shared folder."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from hangdoc.capture.find.job_store import JobStore
from hangdoc.capture.find.store_protocol import LARGEST_VALUE, StoreConnection
from hangdoc.capture.find.target import RankTarget
from hangdoc.sidecar.meeting import boards, meeting, place
from hangdoc.sidecar.meeting import helper as helper_module
from hangdoc.sidecar.meeting.boards import PART, Board, FolderBoard, StoreBoard, put_parts, take_parts
from hangdoc.sidecar.meeting.helper import StoreHelper
from hangdoc.sidecar.meeting.lead import LeadView
from hangdoc.sidecar.meeting.member import MemberView
from hangdoc.sidecar.meeting.own_folder import OwnFolder
from hangdoc.sidecar.meeting.slurm import Step
from hangdoc.sidecar.meeting.wishes import Standing

KEY = secrets.token_bytes(32)


@pytest.fixture(scope="module")
def helper() -> Iterator[StoreHelper]:
    started = StoreHelper("127.0.0.1", 0, os.getpid())
    yield started
    started.close()


@pytest.fixture
def store(helper: StoreHelper) -> Iterator[StoreConnection]:
    with contextlib.closing(StoreConnection("127.0.0.1", helper.port, seconds=10.0)) as connection:
        yield connection


@pytest.fixture(params=["store", "folder"])
def board(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Board]:
    if request.param == "folder":
        yield FolderBoard(OwnFolder(tmp_path), KEY)
        return
    helper: StoreHelper = request.getfixturevalue("helper")
    with contextlib.closing(StoreConnection("127.0.0.1", helper.port, seconds=10.0)) as connection:
        connection.delete(b"hangdoc/count")
    with contextlib.closing(StoreBoard("127.0.0.1", helper.port, KEY)) as made:
        yield made


def standing(rank: int = 0, run: str = "") -> Standing:
    where = (
        ("MASTER_ADDR", "127.0.0.1"),
        ("MASTER_PORT", "29500"),
        ("TORCHELASTIC_RUN_ID", run or os.urandom(4).hex()),
    )
    return Standing((RankTarget(rank, os.getpid(), "environment", 2, environment=where),))


def test_the_protocol_against_a_real_store(store: StoreConnection) -> None:
    assert not store.has(b"a")
    store.set(b"a", b"1")
    store.set(b"b", b"")
    assert store.has(b"a", b"b")
    assert not store.has(b"a", b"c")
    assert store.value(b"a") == b"1"
    assert store.values([b"a", b"b"]) == [b"1", b""]
    assert store.compare_set(b"c", b"", b"first") == b"first"
    assert store.compare_set(b"c", b"", b"second") == b"first"
    assert store.compare_set(b"c", b"first", b"second") == b"second"
    assert [store.add(b"n", 1), store.add(b"n", 2), store.add(b"n", 0)] == [1, 3, 3]
    assert store.delete(b"a")
    assert not store.delete(b"a")
    large = secrets.token_bytes(LARGEST_VALUE)
    store.set(b"large", large)
    assert store.value(b"large") == large
    assert store.delete(b"large")
    with pytest.raises(ValueError, match="4194305 bytes"):
        store.set(b"larger", large + b"!")


def test_torch_sees_none_of_our_keys(store: StoreConnection, helper: StoreHelper) -> None:
    store.set(b"hangdoc/ours", b"1")
    code = "import sys, torch.distributed as d\n"
    code += "s = d.TCPStore('127.0.0.1', int(sys.argv[1]), is_master=False, wait_for_workers=False)\n"
    code += "s.set('hangdoc/ours', 'theirs'); print(s.list_keys(), s.get('hangdoc/ours'))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(helper.port)], check=True, capture_output=True, text=True, timeout=60
    )
    assert "theirs" in done.stdout
    assert store.value(b"hangdoc/ours") == b"1"


def test_the_helper_listens_where_it_was_told_and_ends_with_its_parent() -> None:
    code = "import os, signal, sys\nfrom hangdoc.sidecar.meeting.helper import StoreHelper\n"
    code += "h = StoreHelper('127.0.0.2', 0, os.getpid())\nprint(h.port, h.pid, flush=True)\nsys.stdin.read()"
    parent = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**os.environ, "RANK": "0"}
    )
    try:
        assert parent.stdout is not None
        port, pid = map(int, parent.stdout.readline().split())
        StoreConnection("127.0.0.2", port, seconds=5.0).close()
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.1", port), timeout=5.0)
        assert b"RANK=" not in Path(f"/proc/{pid}/environ").read_bytes()
        assert int(Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[1]) != parent.pid
        open_files = {os.readlink(f"/proc/{pid}/fd/{fd}").partition(":")[0] for fd in os.listdir(f"/proc/{pid}/fd")}
        assert open_files <= {"pipe", "socket", "/dev/null", "anon_inode"}
    finally:
        parent.kill()
        parent.wait(10)
    deadline = time.monotonic() + 20
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_values_of_a_board(board: Board) -> None:
    assert board.get("lead") is None
    board.put("lead", b"1")
    board.put("lead", b"2")
    assert board.get("lead") == b"2"
    assert board.get_all(["lead"]) == [b"2"]
    board.drop("lead")
    board.drop("lead")
    assert board.get("lead") is None
    for member in ("b-1", "a-2", "b-1"):
        board.put(f"beat/{member}", b"x")
        board.enroll(member)
    assert "b-1" in board.members()


def test_what_the_lead_says_costs_one_question_and_is_missed_where_somebody_has_removed_it(
    helper: StoreHelper, store: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bytes] = []
    ask = StoreConnection._send
    monkeypatch.setattr(StoreConnection, "_send", lambda self, data: asked.append(data) or ask(self, data))
    with contextlib.closing(StoreBoard("127.0.0.1", helper.port, KEY)) as board:
        board.put("lead", b"1")
        assert board.get("lead") == b"1"
        asked.clear()
        board.put("lead", b"2")
        assert [board.get("lead") for _ in range(3)] == [b"2"] * 3
        assert len(asked) == 4
        store.delete(b"hangdoc/lead")
        assert board.get("lead") is None
        board.put("lead", b"3")
        assert board.get("lead") == b"3"


@pytest.mark.parametrize("size", [0, 10, PART, 2 * PART + 5])
def test_parts(board: Board, size: int) -> None:
    data = secrets.token_bytes(size)
    assert take_parts(board, "part/1/x", 4) is None
    assert put_parts(board, "part/1/x", data, 4)
    assert take_parts(board, "part/1/x", 4) == data
    assert board.get("part/1/x") is None
    assert board.get("part/1/x/0") is None


def test_too_many_parts_are_refused(board: Board) -> None:
    assert not put_parts(board, "part/2/x", bytes(2 * PART + 1), 2)
    with pytest.raises(ValueError, match="too large"):
        take_parts(board, "part/2/x", 2)
    board.put("part/3/x", b"99999999999999")
    with pytest.raises(ValueError, match="too large"):
        take_parts(board, "part/3/x", 2)


@pytest.mark.parametrize("forged", [b"", b"garbage", bytes(LARGEST_VALUE)])
def test_a_forged_value_is_refused(helper: StoreHelper, store: StoreConnection, forged: bytes) -> None:
    with contextlib.closing(StoreBoard("127.0.0.1", helper.port, KEY)) as board:
        store.set(b"hangdoc/lead", forged)
        assert store.has(b"hangdoc/lead")  # it has arrived
        with pytest.raises(ValueError, match="not sealed by a watch of this job"):
            board.get("lead")
        assert board.get_all(["lead"]) == [None]
        board.put("lead", b"true")
        assert board.get("lead") == b"true"
    stranger = StoreBoard("127.0.0.1", helper.port, bytes(32))
    with contextlib.closing(stranger), pytest.raises(ValueError, match="not sealed"):
        stranger.get("lead")


def test_a_forged_number_of_members_costs_nothing(helper: StoreHelper, store: StoreConnection) -> None:
    store.delete(b"hangdoc/count")
    store.add(b"hangdoc/count", 1 << 60)
    with contextlib.closing(StoreBoard("127.0.0.1", helper.port, KEY)) as board:
        began = time.monotonic()
        assert isinstance(board.members(), list)
        assert time.monotonic() - began < 10
    store.delete(b"hangdoc/count")


def test_no_more_is_taken_of_the_others_than_records_are_large(
    helper: StoreHelper, store: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"beat/{number}" for number in range(5)]
    with contextlib.closing(StoreBoard("127.0.0.1", helper.port, KEY)) as board:
        for name in names:
            board.put(name, bytes(1000))
        monkeypatch.setattr(boards, "_AT_ONCE", 2)
        assert board.get_all(names) == [bytes(1000)] * 5
        monkeypatch.setattr(boards, "_MOST_TOGETHER", 3000)
        assert board.get_all(names) == [bytes(1000)] * 3 + [None] * 2
        store.set(b"hangdoc/beat/1", bytes(1 << 20))
        assert store.has(b"hangdoc/beat/1")
        assert board.get_all(names) == [bytes(1000), None, bytes(1000), bytes(1000), None]


def test_no_more_is_taken_of_a_folder_than_records_are_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    board = FolderBoard(OwnFolder(tmp_path), KEY)
    names = [f"beat/{number}" for number in range(5)]
    for name in names:
        board.put(name, bytes(1000))
    board.put(names[1], bytes(1 << 20))
    monkeypatch.setattr(boards, "_MOST_TOGETHER", 3000)
    assert board.get_all(names) == [bytes(1000), None, bytes(1000), bytes(1000), None]


def test_names_that_are_as_large_as_values_may_be_hold_nobody_up(
    helper: StoreHelper, store: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.delete(b"hangdoc/count")
    for number in range(1, 4):
        store.set(b"hangdoc/member/%d" % number, bytes(LARGEST_VALUE))
    store.add(b"hangdoc/count", 3)
    with contextlib.closing(StoreBoard("127.0.0.1", helper.port, KEY)) as board:
        board.enroll("m-1")
        ask, asked = board._connection.value, []
        monkeypatch.setattr(board._connection, "value", lambda key: asked.append(key) or ask(key))
        assert board.members() == ["m-1"]
        assert asked == []  # no large value is held
        monkeypatch.setattr(boards, "_NEW_SECONDS", 0.0)
        board._known.clear()
        assert board.members() == []  # what there is no time for is left to the next look
    store.delete(b"hangdoc/count")


@pytest.mark.parametrize("count", [1 << 60, -5])
def test_who_cannot_be_counted_says_so(helper: StoreHelper, store: StoreConnection, count: int) -> None:
    store.delete(b"hangdoc/count")
    store.add(b"hangdoc/count", count)
    board = StoreBoard("127.0.0.1", helper.port, KEY)
    with contextlib.closing(board), pytest.raises(ValueError, match=f"has counted {count + 1} watches"):
        board.enroll("m-1")
    store.delete(b"hangdoc/count")


def test_a_store_that_is_filled_takes_no_more_of_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_module, "_MOST_HELD", 64 << 20)
    filled = StoreHelper("127.0.0.1", 0, os.getpid())
    with contextlib.closing(filled):
        before = _kilobytes(filled.pid)
        with contextlib.closing(StoreBoard("127.0.0.1", filled.port, KEY)) as board:
            board.put("lead", b"before")
            store = StoreConnection("127.0.0.1", filled.port, seconds=10.0)
            with contextlib.suppress(OSError), contextlib.closing(store):
                for number in range(100):
                    store.set(b"junk%d" % number, secrets.token_bytes(LARGEST_VALUE))
                    assert store.has(b"junk%d" % number)
            assert _kilobytes(filled.pid) - before < 80 << 10
            assert board.get("lead") == b"before"  # the meeting goes on


def _kilobytes(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS:"))


def test_a_meeting_whose_counter_somebody_has_made_text_goes_on_in_another_store(
    helper: StoreHelper, store: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "job_store", lambda targets: JobStore("127.0.0.1", helper.port, "127.0.0.1"))
    lead, member = standing(0, "text"), standing(1, "text")
    name = b"hangdoc/" + place.job_name(lead.targets).encode()
    watches = [meeting.Meeting("auto"), meeting.Meeting("auto")]
    try:
        for watch, ranks in zip(watches, (lead, member), strict=True):
            watch.tell(replace(ranks, at=time.monotonic()))
            watch.begin()
        assert _met(watches, (lead, member))
        note = json.loads(store.value(name))
        with contextlib.closing(StoreConnection("127.0.0.1", note["port"], seconds=10.0)) as talk:
            talk.set(b"hangdoc/count", b"text")
        watches[0].wait_for(lambda view: not isinstance(view, LeadView), 30.0)
        assert "closed the connection" in getattr(watches[0].view, "why", "")
        assert _met(watches, (lead, member))
        assert json.loads(store.value(name))["port"] != note["port"]
    finally:
        for watch in watches:
            watch.close(20.0)


def _met(watches: Sequence[meeting.Meeting], ranks: Sequence[Standing]) -> bool:
    """True once the first watch leads the second."""
    deadline = time.monotonic() + 90.0
    while time.monotonic() < deadline:
        for watch, each in zip(watches, ranks, strict=True):
            watch.tell(replace(each, at=time.monotonic()))
        first, second = (watch.view for watch in watches)
        if isinstance(first, LeadView) and isinstance(second, MemberView) and not second.silent:
            heard = [seat.beat.ranks for seat in first.fitting() if not seat.silent(time.monotonic())]
            if heard == [ranks[1].ranks]:
                return True
        time.sleep(0.2)
    return False


@pytest.mark.skipif(os.geteuid() != 0, reason="only root watches another user's job")
def test_the_python_of_another_user_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(helper_module.importlib.util, "find_spec", lambda _: None)
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder.chmod(0o755)
        library = folder / "torch" / "lib" / "libtorch_cpu.so"
        library.parent.mkdir(parents=True)
        library.write_bytes(bytes(4096))
        code = (
            f"import mmap, os, sys; m = mmap.mmap(os.open({str(library)!r}, 0), 0, prot=1); "
            "os.setuid(int(sys.argv[1])); print(m[0], flush=True); input()"
        )
        for user in (0, 65534):
            line = [os.path.realpath(sys.executable), "-S", "-c", code, str(user)]
            with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as rank:
                assert rank.stdout is not None
                assert rank.stdout.readline() == b"0\n"
                if user == 0:
                    assert helper_module._torch(rank.pid)[1] == str(folder)
                else:
                    with pytest.raises(OSError, match="another user's"):
                        helper_module._torch(rank.pid)
                rank.kill()
    finally:
        shutil.rmtree(folder)


def test_a_value_of_more_than_we_take_is_refused(helper: StoreHelper) -> None:
    with contextlib.closing(StoreConnection("127.0.0.1", helper.port, seconds=10.0, largest_value=100)) as connection:
        connection.set(b"long", bytes(101))
        with pytest.raises(ValueError, match="101 bytes"):
            connection.value(b"long")


def test_files_of_a_folder_are_opened_with_care(tmp_path: Path) -> None:
    board = FolderBoard(OwnFolder(tmp_path), KEY)
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "lead").symlink_to(tmp_path / "secret")
    with pytest.raises(ValueError, match="lead is no file of ours: it is a link"):
        board.get("lead")
    os.mkfifo(tmp_path / "verdict__1")
    with pytest.raises(ValueError, match="no file of ours"):
        board.get("verdict/1")
    with (tmp_path / "beat__x").open("wb") as file:
        file.truncate(LARGEST_VALUE + 1)
    with pytest.raises(ValueError, match="more than 4194304 bytes"):
        board.get("beat/x")


def test_lead_and_member_find_each_other_in_the_jobs_store(
    helper: StoreHelper, store: StoreConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "job_store", lambda targets: JobStore("127.0.0.1", helper.port, "127.0.0.1"))
    ranks = standing()
    name = b"hangdoc/" + place.job_name(ranks.targets).encode()
    with pytest.raises(place.NoPlaceError, match="no watch beside rank 0"):
        place.open_place("auto", ranks, leads=False)
    store.set(name, b"left by an earlier run")
    lead = place.open_place("auto", ranks, leads=True)
    try:
        assert lead.helper is not None
        assert lead.helper.port != helper.port
        lead.board.put("lead", b"hello")
        member = place.open_place("auto", ranks, leads=False)
        assert member.board.get("lead") == b"hello"
        member.close()
        good = json.loads(store.value(name))
        for change in (
            {"address": "example.org"}, {"address": None}, {"port": 0}, {"port": "1"}, {"key": "ab"}, {"key": None},
        ):  # fmt: skip
            store.set(name, json.dumps({**good, **change}).encode())
            with pytest.raises(place.NoPlaceError):
                place.open_place("auto", ranks, leads=False)
        for note in (b"", b"[]", b"[" * 1000, bytes(3000)):
            store.set(name, note)
            with pytest.raises(place.NoPlaceError):
                place.open_place("auto", ranks, leads=False)
        place.announce(lead, ranks)
        place.open_place("auto", ranks, leads=False).close()
    finally:
        lead.close()


def test_lead_and_member_find_each_other_in_a_folder(tmp_path: Path) -> None:
    ranks = standing()
    with pytest.raises(place.NoPlaceError, match="no watch beside rank 0"):
        place.open_place(str(tmp_path), ranks, leads=False)
    lead = place.open_place(str(tmp_path), ranks, leads=True)
    lead.board.put("lead", b"hello")
    assert place.open_place(str(tmp_path), ranks, leads=False).board.get("lead") == b"hello"
    again = place.open_place(str(tmp_path), ranks, leads=True)  # the next run has another key
    assert again.board.get("lead") is None
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o700}


def test_an_address_of_ones_own(free_port: int) -> None:
    ranks, meet = standing(), f"127.0.0.1:{free_port}"
    with pytest.raises(place.NoPlaceError):
        place.open_place(meet, ranks, leads=False)
    lead = place.open_place(meet, ranks, leads=True)
    try:
        lead.board.put("lead", b"hello")
        member = place.open_place(meet, ranks, leads=False)
        assert member.board.get("lead") == b"hello"
        member.close()
    finally:
        lead.close()


# --- Slurm's variables ----------------------------------------------------------------------------------------------


def step(port: int, *, leads: bool) -> Step:
    return Step("localhost", "127.0.0.1", port, "7-0", leads)


def test_without_a_store_the_hosts_of_a_slurm_step_meet_on_its_first(free_port: int) -> None:
    first, second = standing(0, "run"), standing(1, "run")
    opens, joins = step(free_port, leads=True), step(free_port, leads=False)
    with pytest.raises(place.NoPlaceError, match="do not show a store"):
        place.open_place("auto", first, leads=True, step=opens)  # it may still come
    with pytest.raises(place.NoPlaceError, match=f"localhost, port {free_port}, where Slurm's variables lead: .*refus"):
        place.open_place("auto", second, leads=False, step=joins)
    lead = place.open_place("auto", first, leads=True, step=opens, late=True)
    try:
        assert (lead.leads, lead.by_slurm) == (True, True)
        lead.board.put("lead", b"hello")
        for leads in (False, True):  # also the watch beside rank 0, if that came last and is on another host
            member = place.open_place("auto", second, leads=leads, step=joins, late=True)
            assert (member.leads, member.by_slurm) == (False, True)
            assert member.board.get("lead") == b"hello"
            member.close()
        with pytest.raises(place.NoPlaceError, match="no key of this job's"):
            place.open_place("auto", standing(1, "another run in the step"), leads=False, step=joins)
        with pytest.raises(place.NoPlaceError, match="failed to start"):
            place.open_place("auto", first, leads=True, step=opens, late=True)  # the port is taken
    finally:
        lead.close()


def test_the_jobs_store_comes_before_slurms_variables(
    helper: StoreHelper, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    monkeypatch.setattr(place, "job_store", lambda targets: JobStore("127.0.0.1", helper.port, "127.0.0.1"))
    ranks = standing()
    lead = place.open_place("auto", ranks, leads=True, step=step(free_port, leads=True), late=True)
    with contextlib.closing(lead):
        assert (lead.leads, lead.by_slurm) == (True, False)
        member = place.open_place("auto", ranks, leads=False, step=step(free_port, leads=False), late=True)
        with contextlib.closing(member):
            assert not member.by_slurm


def test_a_lead_whom_nobody_joins_goes_where_the_others_meet(
    helper: StoreHelper, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    """The first host's ranks came to the job's store late; by then the watch beside rank 0 had called a meeting."""
    monkeypatch.setattr(meeting, "_LOOK_BACK_SECONDS", 0.2)
    monkeypatch.setattr(meeting, "_LATE_SECONDS", 0.0)
    monkeypatch.setattr(meeting, "step_of", lambda *_: step(free_port, leads=True))
    alone = meeting.Meeting("auto")
    alone.tell(standing(1, "run"))
    alone.begin()
    try:
        assert isinstance(alone.wait_for(lambda view: isinstance(view, LeadView), 60.0), LeadView)
        monkeypatch.setattr(place, "job_store", lambda targets: JobStore("127.0.0.1", helper.port, "127.0.0.1"))
        with contextlib.closing(place.open_place("auto", standing(0, "run"), leads=True)) as lead:
            lead.board.put("lead", b"{}")
            view = alone.wait_for(lambda view: not isinstance(view, LeadView), 30.0)
            assert not isinstance(view, LeadView)
            assert not isinstance(view, MemberView)  # such a lead is none
            assert "no member in the orders" in getattr(view, "why", "")
    finally:
        alone.close(20.0)
