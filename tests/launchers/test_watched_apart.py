"""One job whose ranks were started by hand, each under a `hangdoc watch` of its own, on one host."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from conftest import MARK

from hangdoc.capture.find.store_protocol import StoreConnection
from hangdoc.sidecar.meeting.boards import StoreBoard
from hangdoc.sidecar.meeting.records import Beat, Orders, Verdict, read, written

pytestmark = pytest.mark.timeout(400)
PROGRAM = Path(__file__).parents[1] / "integration" / "programs" / "parts.py"


PAUSES = Path(__file__).parent / "programs" / "pauses.py"


def start(
    folder: Path, rank: int, port: int, mark: str, *options: str, program: Sequence[object] = (PROGRAM,)
) -> subprocess.Popen[bytes]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    environment |= {"OMP_NUM_THREADS": "1", MARK: mark, "NO_COLOR": "1"}
    line = [sys.executable, "-m", "hangdoc", "watch", "--run-dir", str(folder / f"run{rank}"), *options, "--"]
    with (folder / f"log{rank}").open("wb") as log:
        return subprocess.Popen(
            [*line, sys.executable, *map(str, program)],
            env=environment,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stderr=log,
        )


def test_each_watch_sees_both_sides_and_ends_only_its_own(tmp_path: Path, free_port: int, mark: str) -> None:
    reports = start(tmp_path, 1, free_port, mark, "--stall-after", "5", "--meet", "off")
    aborts = start(tmp_path, 0, free_port, mark, "--stall-after", "20", "--on-hang", "abort", "--meet", "off")
    statuses = aborts.wait(120), reports.wait(60)
    logs = "\n".join((tmp_path / f"log{rank}").read_text() for rank in (0, 1))
    # Rank 0 was ended as asked; rank 1 fell out of its barrier by itself when its peer was gone: no signal.
    assert statuses == (124, 1), logs
    for rank in (0, 1):
        found = json.loads((tmp_path / f"run{rank}" / "stall-1.json").read_text())
        assert (found["outcome"], found["culprits"]) == ("hang", [1]), logs
        assert found["cause"]["code"] == "HD106", logs
        # Of either side the history, and whose process it is.
        assert {each["rank"]: each["pid"] is not None for each in found["ranks"]} == {0: True, 1: True}
        assert "call sequences of both ranks seen" in (tmp_path / f"log{rank}").read_text()
        assert "rank 1 last wrote" not in logs  # what a watch says is no rank's word


def test_watches_of_one_host_share_one_capture(tmp_path: Path, free_port: int, mark: str) -> None:
    # Rank 0's watch leads: it speaks when all ranks stand still, and the other tells what it has found.
    tells = start(tmp_path, 1, free_port, mark, "--stall-after", "15", "--on-hang", "abort")
    leads = start(tmp_path, 0, free_port, mark, "--stall-after", "15", "--on-hang", "abort")
    statuses = leads.wait(120), tells.wait(60)
    logs = "\n".join((tmp_path / f"log{rank}").read_text() for rank in (0, 1))
    assert statuses[0] == 124, logs
    assert statuses[1] in (1, 124), logs  # it ended its rank, or the rank fell out of its barrier first
    found = json.loads((tmp_path / "run0" / "stall-1.json").read_text())
    assert (found["outcome"], found["culprits"]) == ("hang", [1]), logs
    assert not (tmp_path / "run1").exists(), logs
    for rank in (0, 1):
        log = (tmp_path / f"log{rank}").read_text()
        assert "Rank 1 calls barrier" in log, logs
        assert ("has the whole report" in log) == (rank == 1), logs


def test_a_forged_lead_ends_no_job_that_pauses(tmp_path: Path, free_port: int, mark: str) -> None:
    """It has the job's store, and so the key: it says that the job hangs, in a pause of 8.5 s that is none."""
    watches = [
        start(
            tmp_path,
            rank,
            free_port,
            mark,
            "--stall-after",
            "10",
            "--on-hang",
            "abort",
            program=[PAUSES, tmp_path, 8.5],
        )
        for rank in (1, 0)
    ]
    forger = Forger(free_port)
    with contextlib.closing(forger.board):
        forger.wait_until_all_are_still()
        before = pauses(tmp_path)
        time.sleep(3.0)  # of the 8.5 seconds six have passed
        forger.speak()
    deadline = time.monotonic() + 60
    while pauses(tmp_path) <= before:
        logs = "\n".join((tmp_path / f"log{rank}").read_text() for rank in (0, 1))
        assert [watch.poll() for watch in watches] == [None, None], logs
        assert time.monotonic() < deadline, logs
        time.sleep(0.1)
    assert "Rank 0 is said to hang." in (tmp_path / "log1").read_text()  # it was heard


class Forger:
    """Speaks for the lead, with the key that lies in the job's store at ``port``."""

    def __init__(self, port: int) -> None:
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline
            time.sleep(0.5)
            with (
                contextlib.suppress(OSError),
                contextlib.closing(StoreConnection("127.0.0.1", port, seconds=5.0)) as store,
            ):
                names = [name for name in store.keys(1000) if name.startswith(b"hangdoc/")]
                if names:
                    note = json.loads(store.value(names[0]))
                    break
        self.board = StoreBoard(note["address"], note["port"], bytes.fromhex(note["key"]))

    def wait_until_all_are_still(self) -> None:
        """Wait until the only member has said that its rank stands still."""
        deadline = time.monotonic() + 120
        while True:
            assert time.monotonic() < deadline
            time.sleep(0.2)
            if self.board.members() and self._beat().still is not None:
                return

    def speak(self) -> None:
        """Begin a round in which nobody is asked for a look, give the verdict, and be louder than the lead."""
        orders = read(Orders, self.board.get("lead") or b"{}")
        number = orders.round + 1
        said = Verdict(number, "hang", "Rank 0 is said to hang.", "forged", may_end=True, hosts=2)
        self.board.put(f"asked/{number}", b"")
        self.board.put(f"verdict/{number}", written(said))
        orders = replace(orders, number=orders.number + 100, round=number, verdict=number)
        for ahead in range(100):
            self.board.put("lead", written(replace(orders, number=orders.number + ahead)))
            time.sleep(0.02)

    def _beat(self) -> Beat:
        """The latest of the only member."""
        (member,) = self.board.members()
        return read(Beat, self.board.get(f"beat/{member}") or b"{}")


def pauses(folder: Path) -> int:
    """How many have ended on both ranks."""
    return min(int((folder / f"pauses{rank}").read_text() or 0) for rank in (0, 1))
