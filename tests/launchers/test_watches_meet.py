"""Jobs that span hosts, each host under a `hangdoc watch` of its own: real torchrun, hosts made of namespaces."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from conftest import end_all
from helpers.watched_hosts import WatchedHosts
from hosts import why_not

sys.path.insert(0, str(Path(__file__).parent))
import slurm

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts"),
]
PROGRAM = Path(__file__).parent / "programs" / "spans_hosts.py"
RANKS = "torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint hosta:29500 --rdzv-id"


class Job(WatchedHosts):
    """A job on hosta and hostb, started by torchrun."""

    def start(self, mode: str, *options: str, steps: int = 100_000, env: Mapping[str, str] | None = None) -> None:
        for name in self.hosts.names:
            command = [sys.executable, "-m", *RANKS.split(), mode, str(PROGRAM), mode, str(steps)]
            self.launch(name, command, options, env)


@pytest.fixture
def job(tmp_path: Path, mark: str) -> Iterator[Job]:
    made = Job(tmp_path, mark, "hosta", "hostb")
    try:
        yield made
    finally:
        made.hosts.close()
        end_all(mark)


VERDICT = r"Rank 3 alone calls barrier at spans_hosts.py:16 evaluate\(\); ranks 0, 1 and 2 wait in all_reduce"


def test_a_hang_on_one_host_is_one_verdict_on_both(job: Job) -> None:
    job.start("hang", "--stall-after", "12", "--on-hang", "abort")
    statuses = [watch.wait(200) for watch in job.watches.values()]
    assert statuses == [124, 124], job.explain()
    for name in ("hosta", "hostb"):
        assert re.search(VERDICT, job.log(name)), job.explain()
        assert "another host" not in job.log(name), job.explain()
        assert job.log(name).count("hang ·") <= 2, job.explain()  # the report, and the answer again after the abort
    found = job.diagnosis("hosta")
    assert (found["outcome"], found["culprits"], found["confidence"]) == ("hang", [3], "certain")
    assert [(each["rank"], each["host"]) for each in found["culprit_processes"]] == [(3, "hostb")]  # type: ignore[attr-defined]
    assert [each["host"] for each in found["ranks"]] == ["hosta", "hosta", "hostb", "hostb"]  # type: ignore[attr-defined]
    assert "the watch on hosta has the whole report" in job.log("hostb")
    assert "was True on rank 3" in job.log("hosta")
    assert "was True on rank 3" not in job.log("hostb")
    assert not (job.folder / "run-hostb").exists()


def test_srun_starts_a_watch_on_each_node(job: Job) -> None:
    if why := slurm.missing():
        pytest.skip(why)
    environment = job.environment
    environment |= slurm.start_on([*job.hosts], job.folder / "slurm", environment)
    words = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "12", "--on-hang", "abort", "--run-dir", "RUN"]
    words += ["--", sys.executable, "-m", *RANKS.split(), "late", str(PROGRAM), "late", "100000"]
    script = f"exec {shlex.join(words)}".replace("RUN", f"{job.folder}/run-$SLURMD_NODENAME")
    line = ["srun", "--nodes", "2", "--ntasks-per-node", "1", f"--output={job.folder}/log-%N", "sh", "-c", script]
    with (job.folder / "srun").open("wb") as log:
        step = job.hosts.start("hosta", line, environment=environment, cwd=job.folder, log=log)
    assert step.wait(240) == 124, job.explain()
    for name in ("hosta", "hostb"):
        assert re.search(VERDICT, job.log(name)), job.explain()
    # Rank 0 may be on either node; the watch beside it has the report.
    documents = [json.loads(path.read_text()) for path in job.folder.glob("run-*/stall-*.json")]
    assert [(found["outcome"], found["culprits"]) for found in documents] == [("hang", [3])]
    assert len({rank["host"] for rank in documents[0]["ranks"]}) == 2


def test_a_healthy_job_is_quiet_and_a_dead_watch_harms_nobody(job: Job) -> None:
    job.start("late", "--stall-after", "10")
    job.wait_for("hostb", "step 0\n")
    (watch,) = _watches_on(job, "hostb")
    deadline = time.monotonic() + 60
    while not _has_met(watch):
        assert time.monotonic() < deadline, job.explain()
        time.sleep(0.1)
    os.kill(watch, signal.SIGKILL)
    # The ranks go on, and hang later. The watch on hosta knows where ranks 2 and 3 are, and blames nobody unseen.
    job.wait_for("hosta", "all_reduce at spans_hosts.py(.|\n)*hangdoc: saved")
    found = job.diagnosis("hosta")
    assert found["culprits"] == [], job.explain()
    texts = json.dumps(found["unavailable"])
    assert re.search(r"host hostb \(ranks 2 and 3\) has been silent since", texts), texts
    assert "the meeting of the watches" in texts


def test_without_a_meeting_each_host_is_honest(job: Job) -> None:
    job.start("hang", "--stall-after", "5", "--meet", "off")
    for name in ("hosta", "hostb"):
        job.wait_for(name, "hangdoc: saved")
    assert "Ranks 2 and 3 run on another host, which this hangdoc does not see" in job.log("hosta")
    assert job.diagnosis("hosta")["culprits"] == []
    assert "the whole report" not in job.log("hostb")


def _has_met(watch: int) -> bool:
    """True if the watch keeps a connection for a second: it has none but that to the meeting's store."""
    before = _connections(watch)
    time.sleep(1.0)
    return bool(before & _connections(watch))


def _connections(pid: int) -> set[str]:
    """Inodes of the TCP connections that the process has open."""
    links = [os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")]
    rows = [row.split() for row in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "01"} & {link[8:-1] for link in links if link.startswith("socket:[")}


def _watches_on(job: Job, name: str) -> list[int]:
    """Pids, as we see them, of the host's watches."""
    pending, found = [job.watches[name].pid], []
    while pending:
        pid = pending.pop()
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"hangdoc" in words and b"watch" in words and not words[0].endswith(b"nsenter"):
            found.append(pid)
            break
        pending += [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return found
