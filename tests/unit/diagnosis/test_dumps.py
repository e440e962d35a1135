"""Folders of flight recorders' dumps, some of which are missing: what is said, and what is not."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from published_schema import SCHEMA, faults

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.report.terminal import render

LINES = {"all_reduce": 10, "barrier": 20, "broadcast": 30}


def entry(number: int, word: str, group: tuple[str, str] = ("0", "default_pg"), at: int = 1) -> dict[str, Any]:
    """One call: its operation, with a '*' where it has not completed."""
    op = word.rstrip("*")
    return {
        "frames": [{"name": "train", "filename": "/job/train.py", "line": LINES[op]}],
        "record_id": at - 1, "pg_id": int(group[0]), "process_group": group, "thread_id": "1", "thread_name": "python",
        "collective_seq_id": number, "p2p_seq_id": 0, "op_id": number, "profiling_name": f"gloo:{op}",
        "time_created_ns": 10**18 + at, "input_sizes": [[4]], "input_dtypes": ["Float"], "output_sizes": [[4]],
        "output_dtypes": ["Float"], "state": "scheduled", "retired": not word.endswith("*"), "timeout_ms": 1_800_000,
        "is_p2p": False,
    }  # fmt: skip


def write(folder: Path, size: int | None, *ranks: str | None) -> Path:
    """A dump for each rank whose calls are given: 'all_reduce all_reduce barrier*'. ``size``: of the default group as
    nccl's dumps have it; None: gloo's, which do not say."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": json.dumps(list(range(size)))}} if size else {
        "": {"name": "", "desc": "", "ranks": "[]"}
    }  # fmt: skip
    for rank, words in enumerate(ranks):
        if words is not None:
            entries = [entry(number, word, at=number) for number, word in enumerate(words.split(), 1)]
            content = {"version": "2.10", "pg_config": config, "pg_status": {}, "entries": entries}
            (folder / f"trace_{rank}").write_bytes(pickle.dumps(content))
    return folder


def told(found: Diagnosis) -> str:
    """Everything a reader meets, on one line."""
    return " ".join(render(found, width=200).split())


UNSEEN_THINGS = ("socket", "no rank's code", "times out", "process table", "all ranks have", "every rank has")


@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("here", [0, 1])
def test_one_dump_of_two_proves_nothing(tmp_path: Path, size: int | None, here: int) -> None:
    dumps: list[str | None] = [None, None]
    dumps[here] = "all_reduce barrier*"
    found = api.diagnose(write(tmp_path, size, *dumps))
    assert found.outcome == "blind"
    assert found.cause is None
    assert found.culprits == ()
    assert f"Rank {here} waits in barrier at train.py:20" in found.verdict
    if size or here == 1:  # gloo's rank 0 does not know of a second one
        assert "1 of 2 dumps is here; collect the rest" in told(found)
    else:
        assert "1 dump is here, and it does not say how many ranks the job has; collect the rest" in told(found)
    assert not [word for word in UNSEEN_THINGS if word in told(found).lower()]


def test_who_only_waits_for_the_missing_is_not_blamed_and_who_is_behind_is(tmp_path: Path) -> None:
    """Rank 1 has not come to the barrier of rank 0, and the dump of rank 2 is missing."""
    found = api.diagnose(write(tmp_path, 3, "all_reduce barrier*", "all_reduce", None))
    assert found.culprits == (1,)
    assert found.confidence == "possible"
    assert "Rank 1 has not issued barrier default_pg #2, in which rank 0 waited at train.py:20" in found.verdict
    assert "rank 2 is missing" in found.sure
    assert "outside the job" not in told(found)


@pytest.mark.parametrize("size", [None, 4])
def test_a_clash_among_the_dumps_that_are_here_has_its_verdict(tmp_path: Path, size: int | None) -> None:
    found = api.diagnose(
        write(tmp_path, size, None, "all_reduce barrier*", "all_reduce all_reduce*", "all_reduce barrier*")
    )
    assert (found.outcome, found.cause and found.cause.code) == ("hang", "HD101")
    assert found.culprits == (2,)
    assert found.confidence == "possible", "rank 0 may have done as rank 2 did"
    assert (1, 3) in found.alternatives
    assert "rank 0 waits" not in told(found).lower()
    assert "ranks 0" not in found.verdict
    assert not [word for word in UNSEEN_THINGS if word in told(found).lower()]


@pytest.mark.parametrize("size", [None, 4])
def test_all_dumps_give_what_they_always_gave(tmp_path: Path, size: int | None) -> None:
    calls = ["all_reduce barrier*"] * 3
    found = api.diagnose(write(tmp_path, size, *calls, "all_reduce all_reduce*"))
    assert (found.outcome, found.culprits) == ("hang", (3,))
    assert found.confidence == ("certain" if size else "likely"), "a fifth rank may have no dump here"
    assert "the sockets" not in told(found)


def test_everybody_in_one_call_is_told_only_of_groups_whose_members_are_known(tmp_path: Path) -> None:
    (tmp_path / "nccl").mkdir()
    (tmp_path / "gloo").mkdir()
    known = api.diagnose(write(tmp_path / "nccl", 2, "barrier*", "barrier*"))
    assert known.cause is not None
    assert known.cause.code == "HD602"
    assert "socket" not in told(known)
    assert "times out" not in told(known)
    unknown = api.diagnose(write(tmp_path / "gloo", None, "barrier*", "barrier*"))
    assert unknown.outcome == "blind"
    assert "Ranks 0 and 1 wait in barrier" in unknown.verdict
    assert "2 dumps are here, and they do not say how many ranks the job has" in unknown.verdict


def test_calls_that_have_all_completed_show_no_hang(tmp_path: Path) -> None:
    found = api.diagnose(write(tmp_path, 2, "all_reduce", "all_reduce"))
    assert found.outcome == "healthy"
    assert "No hang: every call that ranks 0 and 1 had issued has completed" in found.verdict
    assert "for a while" not in told(found)


def test_gloo_s_smaller_groups_have_those_that_use_them(tmp_path: Path) -> None:
    """Two pairs, whose calls say nothing of the other pair; all meet in a barrier that rank 3 does not reach."""
    for rank in range(4):
        pair = ("1", "pair") if rank < 2 else ("2", "pair")
        entries = [entry(number, "all_reduce", pair, at=number) for number in (1, 2)]
        entries += [entry(1, "barrier*", at=3)] if rank != 3 else [entry(3, "broadcast*", pair, at=3)]
        content = {"version": "2.10", "pg_config": {}, "pg_status": {}, "entries": entries}
        (tmp_path / f"trace_{rank}").write_bytes(pickle.dumps(content))
    found = api.diagnose(tmp_path)
    assert found.culprits != (0, 1)
    assert "rank 3" in found.verdict.lower()


def test_a_size_that_no_job_has_makes_no_ranks() -> None:
    found = api.diagnose(JobSnapshot(1.0, "dump", world_size=1 << 40, ranks=(RankSnapshot(0, "", "dump"),)))
    assert found.outcome == "blind"


def test_the_command_says_so_and_exits_with_3(tmp_path: Path) -> None:
    write(tmp_path, None, None, "all_reduce*")
    command = [sys.executable, "-m", "hangdoc", "diagnose", str(tmp_path)]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert plain.returncode == 3
    assert "1 of 2 dumps is here; collect the rest" in " ".join(plain.stdout.split())
    document = subprocess.run([*command, "--json"], capture_output=True, text=True, timeout=60, check=False)
    assert document.returncode == 3
    found = json.loads(document.stdout)
    assert found["outcome"] == "blind"
    assert faults(found, SCHEMA) == []
