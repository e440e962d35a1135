"""Elastic torchrun jobs over hosts made of namespaces: restarts, nodes that come and go, a rank 0 that moves."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import end_all
from helpers import hosts as namespaces
from helpers.watched_hosts import WatchedHosts

WHY_NOT = namespaces.why_not()
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts"),
]
PROGRAM = Path(__file__).parent / "programs" / "elastic.py"
# Without it, gloo finds the addresses of the round before in the store (torch 2.13), watched or not.
ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


class Job(WatchedHosts):
    """A torchrun job whose nodes meet on hostb."""

    def start(self, name: str, words: str, options: str, steps: int = 100_000) -> None:
        launcher = "-m torch.distributed.run --rdzv-backend c10d --rdzv-endpoint hostb:29500 --rdzv-id elastic"
        timing = "--rdzv-conf last_call_timeout=2,keep_alive_interval=1,join_timeout=120"
        command = [sys.executable, *f"{launcher} {timing} {words}".split(), str(PROGRAM), str(self.folder), str(steps)]
        self.launch(name, command, options.split(), ENVIRONMENT)

    def hang(self, size: int) -> None:
        """Let the job hang as soon as it has so many ranks."""
        (self.folder / f"hang-{size}").touch()

    def hosts_of_ranks(self, name: str) -> list[str]:
        return [each["host"] for each in self.diagnosis(name)["ranks"]]  # type: ignore[attr-defined]


@pytest.fixture
def started(tmp_path: Path, mark: str) -> Iterator[Callable[..., Job]]:
    made: list[Job] = []

    def make(*names: str) -> Job:
        made.append(Job(tmp_path, mark, *names))
        return made[-1]

    try:
        yield make
    finally:
        for job in made:
            job.hosts.close()
        end_all(mark)


def test_a_restart_on_two_hosts_ends_one_rank_and_is_no_fault(started: Callable[..., Job]) -> None:
    job = started("hosta", "hostb")
    job.hang(2)
    for name in ("hosta", "hostb"):
        job.start(name, "--nnodes 2 --nproc-per-node 1 --max-restarts 2", "--stall-after 12 --on-hang restart", 150)
    statuses = [watch.wait(240) for watch in job.watches.values()]
    assert statuses == [0, 0], job.explain()
    for name in ("hosta", "hostb"):
        assert job.log(name).count("✖ hang") == 1, job.explain()
        assert job.log(name).count("Rank 1 alone calls barrier at elastic.py:19 evaluate()") == 1, job.explain()
        assert job.log(name).count("hangdoc: the launcher has started new ranks") == 1, job.explain()
        assert "no restart" not in job.log(name), job.explain()
        assert "crashed" not in job.log(name), job.explain()
        assert "SIGKILL" not in job.log(name).split("hangdoc: the launcher has")[1], job.explain()
    assert re.search(r"hangdoc: ended rank 1 \(pid \d+\), as --on-hang restart asks", job.log("hostb"))
    assert re.search(r"hangdoc: the watch on hostb ends rank 1 \(pid \d+ on hostb\)", job.log("hosta"))


def test_nodes_come_and_go_and_rank_0_moves(started: Callable[..., Job]) -> None:
    job = started("hosta", "hostb")
    words = "--nnodes 1:2 --max-restarts 3 --nproc-per-node 2"
    job.start("hostb", words, "--stall-after 10")
    job.wait_for("hostb", "rank 0 of 2 at step 20")
    # Another node comes and has ranks 0 and 1 from now on, hostb 2 and 3: torchrun counts no restart.
    job.hang(4)
    job.start("hosta", words, "--stall-after 10")
    job.wait_for("hosta", "rank 0 of 4 at step 20")
    job.wait_for("hosta", "✖ hang · 4 ranks[^✖]*Rank 3 alone calls barrier[^✖]*hangdoc: saved")
    assert job.diagnosis("hosta")["culprits"] == [3]
    assert job.hosts_of_ranks("hosta") == ["hosta", "hosta", "hostb", "hostb"]
    job.wait_for("hostb", "✖ hang · 2 hosts[^✖]*Rank 3 alone calls barrier[^✖]*the watch on hosta has the whole report")
    # It goes again: what is left is a job of one host, and what was before says nothing of it.
    job.hang(2)
    job.hosts.run("hosta", "kill -9 -1 || true")
    job.wait_for("hostb", "rank 0 of 2 at step 20", count=2)
    job.wait_for("hostb", "✖ hang · 2 ranks[^✖]*Rank 1 alone calls barrier[^✖]*hangdoc: saved")
    assert job.diagnosis("hostb")["culprits"] == [1]
    assert job.hosts_of_ranks("hostb") == ["hostb", "hostb"]
    assert "hosta" not in json.dumps(job.diagnosis("hostb")), job.explain()
    assert job.log("hostb").count("✖") == 2, job.explain()
    assert "this report is of" not in job.log("hostb"), job.explain()


def test_a_spare_node_takes_the_place_of_one_that_dies(started: Callable[..., Job]) -> None:
    job = started("hosta", "hostb", "hostc")
    words = "--nnodes 2 --max-restarts 3 --nproc-per-node 1"
    for name in ("hostb", "hosta"):
        job.start(name, words, "--stall-after 10")
    job.wait_for("hostb", "rank [01] of 2 at step 20\n")
    job.start("hostc", words, "--stall-after 10")  # torchrun lets it wait until somebody goes
    job.wait_for("hostb", "rank [01] of 2 at step 200\n")
    job.hosts.run("hosta", "kill -9 -1 || true")
    job.wait_for("hostc", "rank [01] of 2 at step 20\n")
    job.hang(2)
    leads, other = ("hostc", "hostb") if "rank 0 of 2" in job.log("hostc") else ("hostb", "hostc")
    job.wait_for(leads, "✖ hang · 2 ranks[^✖]*Rank 1 alone calls barrier[^✖]*hangdoc: saved")
    assert job.diagnosis(leads)["culprits"] == [1]
    assert job.hosts_of_ranks(leads) == [leads, other]
    assert "hosta" not in json.dumps(job.diagnosis(leads)), job.explain()
    job.wait_for(other, f"✖ hang · 2 hosts[^✖]*Rank 1 alone calls[^✖]*the watch on {leads} has the whole report")
    assert [job.log(name).count("✖") for name in ("hostb", "hostc")] == [1, 1], job.explain()
