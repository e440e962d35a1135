"""What the lead of two watches has of the program that only the other host has run: real torchrun, real hosts."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import end_all
from helpers.watched_hosts import WatchedHosts
from hosts import why_not

from hangdoc.api import load

WHY_NOT = why_not()
pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT or "there are hosts"),
]
PROGRAM = Path(__file__).parent / "programs" / "spans_modules.py"
TORCHRUN = "torch.distributed.run --nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint hosta:29500"
MARK = r"…[0-9a-f]{8}"


@pytest.fixture
def job(tmp_path: Path, mark: str) -> Iterator[WatchedHosts]:
    made = WatchedHosts(tmp_path, mark, "hosta", "hostb")
    try:
        yield made
    finally:
        made.hosts.close()
        end_all(mark)


def test_the_lead_has_what_only_the_other_host_has_run_in_its_own_copies(job: WatchedHosts) -> None:
    for name in job.hosts.names:
        command = [sys.executable, "-m", *TORCHRUN.split(), "--rdzv-id", "modules", str(PROGRAM)]
        job.launch(name, command, ["--stall-after", "12", "--on-hang", "abort"])
    statuses = [watch.wait(250) for watch in job.watches.values()]
    assert statuses == [124, 124], job.explain()
    found = job.diagnosis("hosta")
    assert (found["outcome"], found["culprits"]) == ("hang", [3]), job.explain()
    (snapshot,) = (job.folder / "run-hosta").glob("stall-*.hangdoc")
    saved = load(snapshot)
    assert {rank.host for rank in saved.ranks} == {"hosta", "hostb"}
    modules = {Path(module.file).name: module for module in saved.modules}
    assert set(modules) == {"spans_modules.py", "names.py", "rules.py"}
    names, rules = (modules[name].text.split("\n") for name in ("names.py", "rules.py"))
    assert (names[5], rules[6:8]) == (
        "def announce(rank: int) -> None:",
        ["def is_over(step: int) -> bool:", "    return step > LIMIT"],
    )
    assert re.findall(MARK, names[2])[0] == re.findall(MARK, rules[2])[0]
    assert not [note for note in saved.unavailable if note.what == "modules"]
