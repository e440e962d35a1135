"""Dumps whose bytes differ in times and threads alone are read without unpickling them, and to the same."""

from __future__ import annotations

import pickle
import pickletools
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recorder_dumps import config, dump, nccl, write

from hangdoc.capture.dumps import alike
from hangdoc.capture.dumps.alike import Alike
from hangdoc.capture.dumps.digest import Tables, digest
from hangdoc.capture.dumps.read_folder import read_dump_folder
from hangdoc.capture.safe.pickles import load_builtins

START = 1_795_000_000 * 10**9


def of_rank(rank: int, **last: Any) -> dict[str, Any]:
    """Six calls, of which the last two wait; two threads."""
    calls = []
    for number in range(1, 7):
        created, thread = START + 1000 * number + rank, 140_000_000_000 + 2 * rank + number % 2
        done = {"time_discovered_started_ns": created + 5, "time_discovered_completed_ns": created + 9}
        waits = {"state": "scheduled", "retired": False}
        own = {"time_created_ns": created, "thread_id": str(thread), "timeout_ms": 600_000}
        calls.append(nccl(number, **own, **(done if number < 5 else waits)))
    calls[-1] |= last
    return dump(*calls, pg_config=config(8))


def pickled(content: dict[str, Any]) -> bytes:
    return pickle.dumps(content, protocol=2)


class Reader:
    """As a worker reads: by the template where there is one. ``looked``: how many had to be unpickled."""

    def __init__(self) -> None:
        self.tables, self.alike, self.looked = Tables(), Alike(), 0

    def read(self, data: bytes) -> dict[str, Any]:
        found = self.alike.digest(data)
        if found is None:
            self.looked += 1
            content = load_builtins(data)
            found = digest(content, self.tables)
            self.alike.learn(data, content.get("entries"), found, self.tables.own[found["body"]])
        return found


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "_MANY", 2)


def without_body(found: dict[str, Any]) -> dict[str, Any]:
    known = ("groups", "names", "counters", "status", "forgotten", "first", "latest", "moved", "body", "own")
    return {name: found[name] for name in known}


def learned() -> Reader:
    reader = Reader()
    for rank in (0, 1):
        reader.read(pickled(of_rank(rank)))
    assert reader.looked == 2
    return reader


def test_what_is_not_unpickled_is_read_to_the_same() -> None:
    reader = learned()
    tables = Tables()
    for rank in range(20):
        assert without_body(reader.read(pickled(of_rank(rank)))) == without_body(digest(of_rank(rank), tables))
    assert reader.looked == 2


@pytest.mark.parametrize(
    "last",
    [
        {"state": "started"},
        {"input_sizes": [[3, 5]]},
        {"collective_seq_id": 7},
        {"retired": True},
        {"time_created_ns": -START},
        {"time_discovered_started_ns": START},
        {"thread_id": "140000000005"},
        {"thread_id": "040000000004"},
        {"thread_id": "14000000000x"},
        {"process_group": ("1", "default_pg")},
    ],
)
def test_any_other_difference_is_looked_at(last: dict[str, Any]) -> None:
    reader = learned()
    assert reader.alike.digest(pickled(of_rank(2))) is not None
    assert reader.alike.digest(pickled(of_rank(2, **last))) is None


@pytest.mark.parametrize("time", ["time_created_ns", "time_discovered_started_ns", "time_discovered_completed_ns"])
def test_a_time_before_1970_is_looked_at(time: str) -> None:
    content = of_rank(2)
    content["entries"][0][time] *= -1
    assert learned().alike.digest(pickled(content)) is None


def test_dumps_of_another_run_are_looked_at() -> None:
    content = of_rank(2)
    for call in content["entries"]:
        call["time_created_ns"] += 3600 * 10**9
    assert learned().alike.digest(pickled(content)) is None


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_changed_file_is_read_as_it_is_or_not_at_all(data: st.DataObject) -> None:
    reader = learned()
    plain = bytearray(pickled(of_rank(3)))
    for _ in range(data.draw(st.integers(1, 3))):
        plain[data.draw(st.integers(0, len(plain) - 1))] = data.draw(st.integers(0, 255))
    found = reader.alike.digest(bytes(plain))
    if found is not None:
        assert without_body(found) == without_body(digest(load_builtins(bytes(plain)), reader.tables))


def test_a_time_or_a_thread_that_is_used_elsewhere_is_no_time() -> None:
    data = pickled(of_rank(0))
    assert alike._spans(data)
    times = [place for op, _, place in pickletools.genops(data) if op.name == "LONG1" and place is not None]
    named = data[: times[0] + 10] + b"q\xfa" + data[times[0] + 10 :]
    assert load_builtins(named) == load_builtins(data)
    assert alike._spans(named) is None
    thread = "140000000001"
    assert (
        alike._spans(pickled(of_rank(0) | {"comm_lib_version": thread, "entries": [{"thread_id": thread}]})) is not None
    )
    both = {"entries": [{"thread_id": thread}], "comm_lib_version": thread}
    assert alike._spans(pickled(both)) is None


def test_a_folder_of_equal_dumps_keeps_the_times_of_each_rank(tmp_path: Path) -> None:
    for rank in range(40):
        write(tmp_path / f"trace_{rank}", of_rank(rank) | {"pg_config": config(40)})
    journals = read_dump_folder(tmp_path).journals
    issued = [journal.call_issued_ns(len(journal.calls) - 1) for journal in journals.values()]
    assert [at - START for at in issued] == [6000 + r for r in range(40)]
    assert {journal.calls[0].thread_id for journal in journals.values()} == {1}
    assert [journal.moved_ns - START for journal in journals.values()] == [6000 + r for r in range(40)]
