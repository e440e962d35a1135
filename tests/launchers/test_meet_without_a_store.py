"""A real job whose ranks meet in a file, on two hosts: its watches meet where --meet or Slurm's variables say."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import Hosts, why_not
from played_job import environment_of

from hangdoc.sidecar.meeting.slurm import step_of

sys.path.insert(0, str(Path(__file__).parent))
import slurm

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts"),
]
PROGRAM = Path(__file__).parent / "programs" / "without_a_store.py"


@dataclass
class Place:
    """Two hosts, and a folder for what a job on them leaves."""

    folder: Path
    hosts: Hosts
    environment: dict[str, str]

    def watch(self, *options: str) -> list[str]:
        """The words that run a rank under a watch."""
        line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "8", "--on-hang", "abort", *options]
        return [*line, "--", sys.executable, str(PROGRAM), str(self.folder)]

    def logs(self) -> list[str]:
        """What the watch of rank 0 and that of rank 1 have written."""
        return [(self.folder / f"log-{rank}").read_text() for rank in range(2)]

    def hang_once_they_have_met(self, met: Callable[[], bool]) -> None:
        """Let the ranks, which work until then, hang."""
        deadline = time.monotonic() + 150
        while not met():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.5)
        (self.folder / "hang").touch()

    def has_come_to(self, port: int) -> bool:
        """True if somebody on the second host keeps a connection to that port of the first, for a second at least."""
        line = f"ss -Htn state established '( dport = :{port} )'"
        before = self.hosts.run("hostb", line)
        time.sleep(1.0)
        return bool(before and self.hosts.run("hostb", line))

    def is_one_verdict(self) -> None:
        """Both watches tell the verdict that the first has come to from both hosts."""
        for log in self.logs():
            assert re.search(
                r"Rank 1 alone calls barrier at without_a_store.py:\d+ main\(\); rank 0 waits in all_reduce", log
            ), self.logs()
            assert "this report is of" not in log, self.logs()
            assert log.count("Rank 1 ") == 2, self.logs()  # and again after the abort
        assert "the watch on hosta has the whole report" in self.logs()[1]
        reports = [json.loads(path.read_text()) for path in self.folder.glob("run-*/stall-*.json")]
        (found,) = [report for report in reports if report["outcome"] == "hang"]
        assert {rank["rank"]: rank["host"] for rank in found["ranks"]} == {0: "hosta", 1: "hostb"}
        assert not any(note["what"] in ("hosts", "other hosts") for note in found["unavailable"])


@pytest.fixture
def place(tmp_path: Path, mark: str) -> Iterator[Place]:
    with environment_of(mark) as environment:
        hosts = Hosts("hosta", "hostb", environment=environment)
        try:
            yield Place(tmp_path, hosts, environment)
        finally:
            hosts.close()


@pytest.mark.parametrize("meet", ["hosta:29600", "DIR"])
def test_they_meet_where_they_are_told(place: Place, meet: str) -> None:
    folder = place.folder / "meet"
    folder.mkdir()
    meet = str(folder) if meet == "DIR" else meet
    watches = []
    for rank, host in enumerate(place.hosts):
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        line = place.watch("--meet", meet, "--run-dir", str(place.folder / f"run-{rank}"))
        log = place.folder / f"log-{rank}"
        watches.append(host.start(line, log, {**place.environment, **variables}, place.folder))
    place.hang_once_they_have_met(lambda: any(folder.glob("*/beat__*")) or place.has_come_to(29600))
    assert [watch.wait(120) for watch in watches] == [124, 124], place.logs()
    place.is_one_verdict()


def test_slurms_variables_are_a_place(place: Place) -> None:
    """By a real srun that starts a watch for each rank; no option says where they meet."""
    if why := slurm.missing():
        pytest.skip(why)
    first = place.hosts["hosta"]
    environment = place.environment
    environment |= slurm.start_on([*place.hosts], place.folder / "slurm", environment)
    script = f"exec {shlex.join(place.watch('--run-dir', 'RUN'))}".replace("RUN", f"{place.folder}/run-$SLURM_PROCID")
    line = ["srun", "-N", "2", "--ntasks-per-node", "1", f"--output={place.folder}/log-%t", "sh", "-c", script]
    step = first.start(line, place.folder / "srun", environment, place.folder)
    # The first job of a Slurm of its own, and its first step.
    found = step_of({"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_JOB_NODELIST": "hosta,hostb"}, "hosta")
    assert found is not None
    place.hang_once_they_have_met(lambda: place.has_come_to(found.port))
    assert step.wait(150) == 124, place.logs()
    place.is_one_verdict()
