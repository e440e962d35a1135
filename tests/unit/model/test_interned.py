"""Large jobs in files: what ranks have in common is written once, and a file cannot unfold to more than a job has."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hangdoc.errors import BadSnapshot
from hangdoc.model import encode, interned
from hangdoc.model.codec import snapshot_from_bytes, snapshot_to_bytes
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Process
from hangdoc.model.ran import RanCode
from hangdoc.model.shared_calls import SharedCalls
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

CALLS = tuple(Call("0", n, n, "all_reduce", 0, created_ns=n) for n in range(1, 101))
STACKS = ((Frame("/job/train.py", 3, "train"),),)
GROUPS = (ProcessGroup("0", tuple(range(64))),)


def job(ranks: int) -> JobSnapshot:
    """Rank n has left out the n-th call and waits in one of its own; the last rank has no journal."""
    journals = [
        Journal(
            "dump",
            GROUPS,
            (*CALLS[:rank], *CALLS[rank + 1 :], Call("0", 101, 101, "barrier", 0, created_ns=rank, completed=False)),
            (PointToPoint("0", 102, "send", rank, 0, 0),),
            stacks=STACKS,
        )
        for rank in range(ranks)
    ]
    return JobSnapshot(
        1.0, "dump", ranks=(*(RankSnapshot(r, "", "dump", journal=j) for r, j in enumerate(journals)),
                            RankSnapshot(ranks, "", "dump")),
    )  # fmt: skip


def text(snapshot: JobSnapshot) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(snapshot_to_bytes(snapshot)))
    return found


def test_a_large_job_is_written_once_and_read_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_LARGE", 1000)
    snapshot = job(20)
    written = text(snapshot)
    assert written["schema"] == "hangdoc.snapshot/2"
    assert len(written["calls"]) == 100 + 20 and len(written["groups"]) == len(written["stacks"]) == 1
    found = snapshot_from_bytes(snapshot_to_bytes(snapshot))
    assert found == snapshot
    one, other = (rank.journal for rank in found.ranks[:2])
    assert one is not None and other is not None
    assert one.stacks is other.stacks and one.groups is other.groups
    assert isinstance(one.calls, SharedCalls) and isinstance(other.calls, SharedCalls)
    assert one.calls.row(50) is other.calls.row(50)


def test_the_calls_of_a_row_and_of_a_column_are_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_LARGE", 100)
    made = {name: [replace(call, group=name) for call in CALLS] for name in ("row0", "row1", "column0", "column1")}
    ranks = []
    for rank in range(4):
        row, column = made[f"row{rank // 2}"], made[f"column{rank % 2}"]
        calls = tuple(call for both in zip(row, column, strict=True) for call in both)
        ranks.append(RankSnapshot(rank, "", "dump", journal=Journal("dump", calls=calls)))
    snapshot = JobSnapshot(1.0, "dump", ranks=tuple(ranks))
    written = text(snapshot)
    assert len(written["calls"]) == 100 and len(written["orders"]) == 1
    first, *_, last = written["journals"]
    assert first["calls"] == last["calls"] == [[[0, 100]], [[0, 100]]]
    assert first["called"] == ["row0", "column0"] and last["called"] == ["row1", "column1"]
    assert snapshot_from_bytes(snapshot_to_bytes(snapshot)) == snapshot


def test_what_has_run_on_all_ranks_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_LARGE", 100)
    ranks = []
    for rank in range(30):
        code = [RanCode("/job/train.py", f"f{n}", 10 * n, called=True, ran=(10 * n + 1,)) for n in range(10)]
        code[4] = replace(code[4], ran=(), idle=(41,)) if rank == 7 else code[4]
        ranks.append(RankSnapshot(rank, "", "dump", process=Process(rank + 1, 1, "rank", code=tuple(code))))
    snapshot = JobSnapshot(1.0, "dump", ranks=tuple(ranks))
    written = text(snapshot)
    assert len(written["code"]) == 11 and written["ran"][7]["code"] == [[0, 4], [10, 1], [5, 5]]
    data = snapshot_to_bytes(snapshot)
    assert snapshot_from_bytes(data) == snapshot
    for change in ({"rank": 30, "code": [[0, 1]]}, {"rank": 0, "code": [[10, 2]]}):
        with pytest.raises(BadSnapshot):
            snapshot_from_bytes(gzip.compress(json.dumps({**written, "ran": [change]}).encode()))


def test_a_small_job_is_written_as_before() -> None:
    assert text(job(3))["schema"] == "hangdoc.snapshot/1"


def test_a_job_of_millions_of_calls_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(2).ranks[0]
    snapshot = replace(job(0), ranks=tuple(replace(one, rank=rank) for rank in range(4000)))
    data = snapshot_to_bytes(snapshot)
    assert len(data) < 200_000
    assert snapshot_from_bytes(data) == snapshot
    for most in (100, 100_000):  # also calls that ranks share are gone through for each of them
        monkeypatch.setattr(interned, "MOST_REFERENCES", most)
        with pytest.raises(BadSnapshot, match=f"unfold to more than {most:,}"):
            snapshot_from_bytes(data)


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found["journals"][0].update(rank=21),
        lambda found: found["journals"][0].update(rank=-1),
        lambda found: found["journals"][0].update(rank=20),
        lambda found: found["journals"][0].update(calls=[[[119, 2]]]),
        lambda found: found["journals"][0].update(calls=[[[-1, 1]]]),
        lambda found: found["journals"][0].update(stacks=[[0, -1]]),
        lambda found: found["journals"][0].update(groups=[["0", 1]]),
        lambda found: found["journals"][0].update(order=7),
        lambda found: found["journals"][0].update(order=0),
        lambda found: found.update(orders=[[0] * 99], journals=[{**found["journals"][0], "order": 0}]),
        lambda found: found.pop("calls"),
        lambda found: found["job"].update(schema="hangdoc.snapshot/9"),
    ],
)
def test_rows_that_are_not_there_are_refused(
    change: Callable[[dict[str, Any]], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode, "_LARGE", 1000)
    found = text(job(20))
    change(found)
    with pytest.raises(BadSnapshot):
        snapshot_from_bytes(json.dumps(found).encode())
