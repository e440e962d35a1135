"""A real job whose ranks meet in a file, on two hosts: its watches meet where --meet or Slurm's variables say."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hosts import Hosts, why_not
from played_job import environment_of

sys.path.insert(0, str(Path(__file__).parent))
import slurm

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.timeout(280),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts"),
]
PROGRAM = Path(__file__).parent / "programs" / "without_a_store.py"
STEPS_SECONDS = 4.0
"""For which the ranks work, so that the watches meet before they hang."""


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

    def hang(self) -> None:
        """Let the ranks hang once they have worked for a while."""
        deadline = time.monotonic() + 120
        while not (self.folder / "store").exists():
            assert time.monotonic() < deadline, self.logs()
            time.sleep(0.2)
        time.sleep(STEPS_SECONDS)
        (self.folder / "hang").touch()

    def is_one_verdict(self) -> None:
        """Both watches tell the verdict that the first has come to from both hosts."""
        for log in self.logs():
            assert re.search(r"Rank 1 alone calls barrier|[Rr]ank 1 waits in barrier", log), self.logs()
            assert "this report is of" not in log, self.logs()
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
    (place.folder / "meet").mkdir()
    meet = str(place.folder / "meet") if meet == "DIR" else meet
    watches = []
    for rank, host in enumerate(place.hosts):
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        line = place.watch("--meet", meet, "--run-dir", str(place.folder / f"run-{rank}"))
        log = place.folder / f"log-{rank}"
        watches.append(host.start(line, log, {**place.environment, **variables}, place.folder))
    place.hang()
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
    place.hang()
    assert step.wait(150) == 124, place.logs()
    place.is_one_verdict()
