"""Networks that drop what some hosts send to each other, beside watches on every host; then they stop to do so."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import end_all
from helpers import hosts as namespaces
from helpers.watched_hosts import WatchedHosts

WHY_NOT = namespaces.why_not() or ("" if shutil.which("nft") else "dropping packets needs nft")
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts"),
]
PROGRAM = Path(__file__).parent / "programs" / "spans_hosts.py"
PATIENCE = ("--stall-after", "10", "--give-up-after", "16")
HANG = r"✖ hang[^✖◔]*The network is cut[^✖◔]*hangdoc: saved"
NAMES = ("hosta", "hostb", "hostc")


class Job(WatchedHosts):
    """A job of one rank on each host, whose ranks find each other on hosta."""

    def start(self) -> None:
        names = self.hosts.names
        for rank, name in enumerate(names):
            ranks = {"RANK": str(rank), "WORLD_SIZE": str(len(names)), "MASTER_ADDR": "hosta", "MASTER_PORT": "29500"}
            self.launch(name, [sys.executable, "-u", str(PROGRAM), "healthy", "1000000"], PATIENCE, ranks)
        self.wait_for("hosta", "step 20\n")

    def cut(self, name: str, *senders: str) -> None:
        """From now on the host gets nothing that these send."""
        drops = "".join(f"; add rule inet cut in ip saddr {self.hosts.address(sender)} drop" for sender in senders)
        chain = "add chain inet cut in { type filter hook input priority 0; }"
        self.hosts.run(name, f"nft 'add table inet cut; {chain}{drops}'")

    def heal(self, name: str) -> None:
        self.hosts.run(name, "nft delete table inet cut")

    def steps(self, name: str) -> int:
        return len(re.findall(r"^step ", self.log(name), re.MULTILINE))


@pytest.fixture
def started(tmp_path: Path, mark: str) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def start(*names: str) -> Job:
        made.append(Job(tmp_path, mark, *names))
        made[-1].start()
        return made[-1]

    try:
        yield start
    finally:
        for job in made:
            job.hosts.close()
        end_all(mark)


@pytest.mark.parametrize("deaf", [("hostb", "hostc"), ("hostc",)], ids=["both ways", "one way"])
def test_one_pair_of_three_hosts(started: Callable[..., Job], deaf: tuple[str, ...]) -> None:
    job = started(*NAMES)
    job.wait_for("hosta", "step 200\n")
    for name in deaf:  # who hears nothing confirms nothing either, so the other sends again, too
        job.cut(name, "hostb" if name == "hostc" else "hostc")
    job.wait_for("hosta", HANG)
    found = job.diagnosis("hosta")
    assert (found["cause"]["code"], found["culprits"]) == ("HD601", [])  # type: ignore[index]
    pair = r"(hostb and hostc cannot reach each other|host([bc]) gets no answer from host(?!\2)[bc])"
    verdict = str(found["verdict"])
    assert re.match(rf"The network is cut: {pair}; the connections of hosta with both are quiet; ", verdict), verdict
    assert [each["host"] for each in found["ranks"]] == list(NAMES)  # type: ignore[attr-defined]
    for name in ("hostb", "hostc"):
        job.wait_for(name, r"✖ hang · 3 hosts\s+The network is cut(.|\n)*the watch on hosta has the whole report")
    steps = job.steps("hosta")
    for name in deaf:
        job.heal(name)
    for name in NAMES:
        job.wait_for(name, "hangdoc: the job moves again after ")
    deadline = time.monotonic() + 60
    while job.steps("hosta") == steps:
        assert time.monotonic() < deadline, job.explain()
        time.sleep(0.2)
    assert "crashed" not in job.explain()


def test_two_hosts_each_of_which_sees_itself_alone(started: Callable[..., Job]) -> None:
    job = started(*NAMES[:2])
    job.wait_for("hosta", "step 200\n")
    job.cut("hosta", "hostb")
    job.cut("hostb", "hosta")
    for name in NAMES[:2]:
        job.wait_for(name, HANG)
    for name, other in (("hosta", "10.77.0.2"), ("hostb", "10.77.0.1")):
        found = job.diagnosis(name)
        assert (found["cause"]["code"], found["culprits"]) == ("HD601", [])  # type: ignore[index]
        assert str(found["verdict"]).startswith(f"The network is cut: {name} gets no answer from {other}; "), found
    saved = [max((job.folder / f"run-{name}").glob("*.hangdoc")) for name in NAMES[:2]]
    together = subprocess.run(
        [sys.executable, "-m", "hangdoc", "diagnose", *map(str, saved)],
        env=job.environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    words = " ".join(together.stdout.split())
    assert "The network is cut: hosta and hostb cannot reach each other; all ranks wait in all_reduce" in words, words
    for name in NAMES[:2]:
        job.heal(name)
    for name in NAMES[:2]:
        job.wait_for(name, "hangdoc: the job moves again after ")
    assert "crashed" not in job.explain()
