"""Several torchrun agents on one host, as two launches of one job make them."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc import api

if TYPE_CHECKING:
    from conftest import Watch

PROGRAM = Path(__file__).parent / "programs" / "attempts.py"
LINE = next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "store.get" in text)


def test_agents_of_one_host_that_count_their_restarts_differently_are_one_job(
    watch: Watch, tmp_path: Path, free_port: int
) -> None:
    """The rank of one agent has failed: both start theirs anew, and that one alone counts it."""
    seen = tmp_path / "attached.json"
    look = f"{shlex.quote(sys.executable)} -m hangdoc attach $HANGDOC_PID --json > {shlex.quote(str(seen))}"
    job = ["bash", str(PROGRAM.with_suffix(".sh")), sys.executable, str(free_port)]
    finished = watch(job, "--on-hang-exec", look)
    assert finished.status == 124, finished.explain()  # ended for it: no rank is taken for one of another host
    for document in (finished.document, json.loads(seen.read_text())):
        assert document is not None, finished.explain()
        assert (document["outcome"], document["cause"]["code"]) == ("hang", "HD305"), finished.explain()
        assert document["culprits"] in ([0], [1]), finished.explain()  # the data fits both
        assert all(rank["pid"] for rank in document["ranks"]), finished.explain()
        counted = [
            item["text"] for item in document["evidence"] if "TORCHELASTIC_RESTART_COUNT is 0 on" in item["text"]
        ]
        assert len(counted) == 1, finished.explain()
        assert "host" not in document["verdict"], finished.explain()
        assert f"attempts.py:{LINE}" in document["verdict"], finished.explain()
    counts = {rank.restart for path in finished.snapshots()[-1:] for rank in api.load(path).ranks}
    assert counts == {0, 1}, finished.explain()
    assert not finished.survivors
