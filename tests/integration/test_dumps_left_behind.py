"""A job without a probe, whose recorders leave dumps in files: the history comes from there."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc import api

if TYPE_CHECKING:
    from conftest import Watch

PROGRAM = Path(__file__).parent / "programs" / "leaves_dumps.py"
LINE = next(n for n, text in enumerate(PROGRAM.read_text().splitlines(), 1) if "dist.all_reduce(loss" in text)
TORCHRUN = shutil.which("torchrun", path=str(Path(sys.executable).parent)) or "torchrun"
COMMAND = [TORCHRUN, "--standalone", "--nproc-per-node", "2", str(PROGRAM)]


def test_a_watch_reads_the_dumps_of_ranks_without_a_probe(watch: Watch, tmp_path: Path) -> None:
    without_probe = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    # On a busy machine the ranks take seconds to come to a stand: a dump from before tells nothing of what they do now.
    variables = {**without_probe, "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_", "DUMP_AFTER": "7"}
    finished = watch(COMMAND, env=variables, stall_after=12)
    job = api.load(finished.snapshots()[-1])
    assert [rank.journal.source if rank.journal else "" for rank in job.ranks] == ["dump"] * 2, finished.explain()
    assert not [note for note in job.unavailable if note.what == "journal"]
    document = finished.document
    assert document is not None
    assert (document["outcome"], document["cause"]["code"]) == ("hang", "HD101"), finished.explain()
    # Which of the two is to blame: the saved case own_dumps_watched, where rank 1 is expected and not yet blamed.
    assert f"leaves_dumps.py:{LINE}" in finished.stderr, finished.explain()


def test_of_a_job_that_the_watchdog_ended_the_dumps_tell_who_was_the_reason(watch: Watch, tmp_path: Path) -> None:
    """Rank 0, whose call timed out, aborts; rank 1, which waits for nothing, is ended by the launcher."""
    variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", "TORCH_FR_DUMP_TEMP_FILE": f"{tmp_path}/trace_"}
    finished = watch(COMMAND, env={**variables, "DUMP_AFTER": "2", "ABORT": "1"}, stall_after=60)
    job = api.load(finished.snapshots()[-1])
    assert [rank.journal.source if rank.journal else "" for rank in job.ranks] == ["dump"] * 2, finished.explain()
    assert finished.document is not None, finished.explain()
    assert (finished.document["outcome"], finished.document["cause"]["code"]) == ("crashed", "HD101"), (
        finished.explain()
    )
    assert f"leaves_dumps.py:{LINE}" in finished.stderr, finished.explain()
