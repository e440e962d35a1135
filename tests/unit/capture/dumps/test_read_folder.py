"""Folders of dumps, as jobs and people leave them."""

from __future__ import annotations

import gzip
import json
import os
import pickle
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorder_dumps import config, dump, entry, nccl, write

from hangdoc.capture.dumps import workers
from hangdoc.capture.dumps.find_files import DumpFile
from hangdoc.capture.dumps.fold import Folding
from hangdoc.capture.dumps.read_folder import Folder, is_dump, read_dump_folder
from hangdoc.capture.read.flight_recorder import Recorded, StackTable, parse
from hangdoc.model.journal import Journal
from hangdoc.model.process import Frame

HOUR = 3600 * 10**9


def told(found: Folder) -> str:
    return "\n".join(note.why for note in found.unavailable)


# Names and forms


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        ("nccl_trace_rank_3", [3]),
        ("nccl_trace_rank_container-node02_5", [5, 2]),
        ("comm_lib_trace_rank_12.json.gz", [12]),
        ("trace_0.pkl", [0]),
        ("rank3_20251122-1015", [3, 1015, 20251122]),
        ("comm_traces/rank_7", [7]),
        ("replica_1/rank_2/nccl_trace", [2]),
        ("host-04/dump.5", [5, 4]),
        ("7", [7]),
        ("trace", []),
    ],
)
def test_the_likeliest_rank_in_a_name_comes_first(name: str, numbers: list[int]) -> None:
    assert DumpFile(name, 0, 0.0).numbers() == numbers


def test_pickles_and_json_plain_and_packed_are_read_side_by_side(tmp_path: Path) -> None:
    content = dump(nccl(1), nccl(2, state="started", retired=False), pg_config=config(5))
    bare = dump(*[{k: v for k, v in e.items() if k != "frames"} for e in content["entries"]], pg_config=config(5))
    write(tmp_path / "node-a" / "nccl_trace_rank_0", content)
    write(tmp_path / "node-a" / "nccl_trace_rank_container-node02_1", content | {"version": "2.4"})
    (tmp_path / "node-a" / "nccl_trace_rank_2.pkl.gz").write_bytes(gzip.compress(pickle.dumps(content, protocol=4)))
    (tmp_path / "node-b").mkdir()
    (tmp_path / "node-b" / "rank3.json").write_text(json.dumps(bare))
    (tmp_path / "node-b" / "rank4.json.gz").write_bytes(gzip.compress(json.dumps(content).encode()))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2, 3, 4]
    for journal in found.journals.values():
        assert [(call.sequence, call.completed) for call in journal.calls] == [(1, True), (2, False)]
        assert journal.groups[0].members == (0, 1, 2, 3, 4)
    assert found.journals[4].stack(found.journals[4].calls[0].stack)[0] == Frame("/job/train.py", 12, "train")
    assert [note.what for note in found.unavailable] == ["dumps"]
    assert "those of rank 3 hold no stacks" in told(found)


def test_what_is_no_dump_is_named_if_it_looks_like_one(tmp_path: Path) -> None:
    whole = write(tmp_path / "d0", dump(entry(1))).read_bytes()
    (tmp_path / "d1").write_bytes(whole[:-20])
    (tmp_path / "d2").write_bytes(b"")
    (tmp_path / "d3").write_bytes(pickle.dumps([1, 2]))
    (tmp_path / "d4").write_bytes(gzip.compress(whole)[:-20])
    (tmp_path / "d5").write_bytes(b"\x7fELF")
    (tmp_path / "d6").write_bytes(pickle.dumps(dump(version="3.0")))
    (tmp_path / "other_0").write_bytes(whole)
    (tmp_path / "README.txt").write_text("not a dump")
    (tmp_path / "stderr_3.log").write_text("neither")
    (tmp_path / "config.json").write_text('{"model": {}}')
    os.symlink("d0", tmp_path / "d7")
    found = read_dump_folder(tmp_path)
    assert list(found.journals) == [0]
    assert [(note.rank, note.why.partition(":")[0]) for note in found.unavailable] == [
        (1, "d1"),
        (2, "d2"),
        (3, "d3"),
        (4, "d4"),
        (5, "d5"),
        (6, "d6"),
        (0, "other_0"),
    ]
    assert all(note.why and note.remedy for note in found.unavailable)


def test_a_long_list_of_the_same_trouble_is_short(tmp_path: Path) -> None:
    write(tmp_path / "d_0", dump(entry(1)))
    for rank in range(1, 30):
        (tmp_path / f"d_{rank}").write_bytes(b"")
    found = read_dump_folder(tmp_path)
    assert len(found.unavailable) == 9 and "21 more files" in told(found)


@pytest.mark.parametrize("make", ["empty", "missing"])
def test_a_folder_without_dumps_says_so(tmp_path: Path, make: str) -> None:
    found = read_dump_folder(tmp_path if make == "empty" else tmp_path / "no")
    assert found.journals == {} and found.unavailable[0].remedy


def test_one_dump_is_known_as_such(tmp_path: Path) -> None:
    assert is_dump(write(tmp_path / "d0", dump(entry(1))))
    (tmp_path / "x").write_text("{}")
    assert not is_dump(tmp_path / "x")


# Ranks and runs


def test_the_contents_say_which_rank_a_dump_is_of(tmp_path: Path) -> None:
    rows = {"0": [0, 1, 2, 3], "row": [2, 3], "column": [1, 3]}
    mesh = {name: {"name": name, "desc": name, "ranks": str(ranks)} for name, ranks in rows.items()}
    write(tmp_path / "worker-17.pkl", dump(nccl(1), pg_config=mesh))
    sent = nccl(1, is_p2p=True, profiling_name="nccl:send 2->3")
    write(tmp_path / "worker-18.pkl", dump(sent, pg_config=config(4)))
    write(tmp_path / "node4_rank1", dump(nccl(1), pg_config=config(4)))
    write(tmp_path / "trace_7_0", dump(nccl(1), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2, 3]
    assert found.journals[2].point_to_points[0].peer == 3
    assert found.journals[3].groups[1].name == "row"


def test_a_dump_without_any_number_is_named(tmp_path: Path) -> None:
    write(tmp_path / "trace.pkl", dump(nccl(1), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    assert not found.journals and "neither its name nor its calls say" in told(found)


def at(number: int, begun: int, **changes: Any) -> dict[str, Any]:
    return nccl(number, time_created_ns=10**18 + begun + number * 10**9, **changes)


def test_the_newest_of_several_runs_is_chosen_and_said(tmp_path: Path) -> None:
    for run, begun in ((1, 0), (2, HOUR)):
        for rank in range(4 if run == 1 else 3):
            content = dump(at(1, begun), at(2, begun), pg_config=config(4))
            write(tmp_path / f"run{run}" / f"host{rank // 2}" / f"trace_{rank}", content)
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2]
    assert found.journals[0].calls[0].created_ns == 10**18 + HOUR + 10**9
    (earlier,) = found.others
    assert (found.name, earlier.name, sorted(earlier.journals)) == ("run2", "run1", [0, 1, 2, 3])
    assert earlier.journals[0].calls[0].created_ns == 10**18 + 10**9 and not told(found) + told(earlier)


def test_few_dumps_of_an_earlier_run_are_left_out_and_said(tmp_path: Path) -> None:
    for run, begun, ranks in ((1, 0, (0, 1)), (2, HOUR, (0, 1, 2))):
        for rank in ranks:
            write(tmp_path / f"run{run}" / f"trace_{rank}", dump(at(1, begun), at(2, begun), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2] and not found.others
    assert "2 dumps of earlier runs were left out (run1)" in told(found) and "(run2)" in told(found)


def test_a_dump_left_over_in_the_same_folder_is_not_mixed_in(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path / f"trace_{rank}", dump(at(1, 0 if rank == 3 else HOUR), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2] and "1 dump of an earlier run was left out (trace_3)" in told(found)


def test_a_rank_that_stood_still_for_an_hour_belongs_to_the_run(tmp_path: Path) -> None:
    write(tmp_path / "trace_0", dump(at(7, 0, retired=False, state="started"), pg_config=config(2)))
    write(tmp_path / "trace_1", dump(at(900, HOUR, record_id=899), pg_config=config(2)))
    assert sorted(read_dump_folder(tmp_path).journals) == [0, 1]


def test_hosts_whose_clocks_are_minutes_apart_are_of_one_run(tmp_path: Path) -> None:
    """Rank 1's clock is 200 s ahead. The dumps are written after 600 s, before any other run can begin."""
    for rank in range(2):
        content = dump(at(1, rank * 200 * 10**9), at(2, rank * 200 * 10**9), pg_config=config(2))
        path = write(tmp_path / f"trace_{rank}", content)
        written = 10**9 + 602 + rank * 200
        os.utime(path, (written, written))
    assert sorted(read_dump_folder(tmp_path).journals) == [0, 1]


def test_a_dump_left_over_that_was_written_before_the_run_began_is_not_mixed_in(tmp_path: Path) -> None:
    for rank, begun in ((0, 0), (1, 700)):
        path = write(tmp_path / f"trace_{rank}", dump(at(1, begun * 10**9), pg_config=config(2)))
        os.utime(path, (10**9 + begun + 600, 10**9 + begun + 600))
    assert sorted(read_dump_folder(tmp_path).journals) == [1]


def hosts_apart(where: Path, seconds: int, calls: int) -> Folder:
    """Two ranks, dumped 30 s after their calls: rank 0 has made two; rank 1, whose clock is ahead, so many."""
    for rank, count in ((0, 2), (1, calls)):
        ahead = rank * seconds
        made = [at(n, ahead * 10**9) for n in range(1, count + 1)]
        path = write(where / f"trace_{rank}", dump(*made, pg_config=config(2)))
        os.utime(path, (10**9 + 30 + ahead, 10**9 + 30 + ahead))
    return read_dump_folder(where)


def test_hosts_whose_clocks_are_apart_by_more_than_the_dumps_waited_are_of_one_run(tmp_path: Path) -> None:
    found = hosts_apart(tmp_path, 400, calls=2)
    assert sorted(found.journals) == [0, 1] and not found.unavailable


def test_a_dump_that_cannot_be_of_the_run_by_its_calls_is_not_mixed_in(tmp_path: Path) -> None:
    """Rank 1 completed a third call, which needs rank 0; rank 0 never issued it."""
    found = hosts_apart(tmp_path, 400, calls=3)
    assert sorted(found.journals) == [1] and "trace_0" in told(found)


def test_a_dump_left_over_beside_those_of_an_earlier_run_is_of_that_run(tmp_path: Path) -> None:
    for run, begun, ranks in ((1, 0, 3), (2, 300, 2)):
        for rank in range(ranks):
            path = write(tmp_path / f"run{run}" / f"trace_{rank}", dump(at(1, begun * 10**9), pg_config=config(3)))
            os.utime(path, (10**9 + begun + 30, 10**9 + begun + 30))
    assert sorted(read_dump_folder(tmp_path).journals) == [0, 1]


def test_a_dump_without_any_call_under_way_is_of_the_run(tmp_path: Path) -> None:
    """TORCH_INCLUDE_ONLY_ACTIVE: a rank at which nothing is under way leaves an empty dump, long after the others'
    last calls."""
    waits = {"state": "started", "retired": False}
    for rank in range(3):
        write(tmp_path / f"trace_{rank}", dump(*([at(9, rank, **waits)] if rank else []), pg_config=config(3)))
        os.utime(tmp_path / f"trace_{rank}", (10**9 + 612, 10**9 + 612))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2] and "earlier" not in told(found)


def test_of_two_jobs_at_one_time_the_one_that_waited_comes_first(tmp_path: Path) -> None:
    """Job a hangs, and is dumped after 600 s; meanwhile job b begins, ends and is dumped."""
    for job, begun, written in (("a", 0, 605), ("b", 200, 260)):
        for rank in range(2):
            made = at(1, begun * 10**9, **({"state": "scheduled", "retired": False} if job == "a" else {}))
            path = write(tmp_path / job / f"trace_{rank}", dump(made, pg_config=config(2)))
            os.utime(path, (10**9 + written, 10**9 + written))
    found = read_dump_folder(tmp_path)
    assert found.journals[0].call_issued_ns(0) == 10**18 + 10**9
    assert [found.name, *(each.name for each in found.others)] == ["a", "b"]


def test_of_two_backends_dumps_those_that_name_the_members_are_read(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"nccl_trace_rank_{rank}", dump(at(1, 0), pg_config=config(2)))
        write(tmp_path / "gloo" / f"gloo_trace_rank_{rank}", dump(entry(1, time_created_ns=10**18 + 9 * 10**9)))
    found = read_dump_folder(tmp_path)
    assert [journal.groups[0].members for journal in found.journals.values()] == [(0, 1), (0, 1)]
    assert "gloo/gloo_trace_rank_0: there is another dump of rank 0 here" in told(found)


@pytest.mark.parametrize("name", ["replica_{}/rank_{}", "replica{}_rank_{}", "hosts/replica_{}/7/trace_{}.pkl"])
def test_replicas_with_ranks_of_their_own_are_jobs_of_their_own(tmp_path: Path, name: str) -> None:
    for replica in range(2):
        for rank in range(3):
            write(tmp_path / name.format(replica, rank), dump(at(1, replica * 10**9), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    (other,) = found.others
    assert [sorted(each.journals) for each in (found, other)] == [[0, 1, 2]] * 2
    assert {journal.call_issued_ns(0) for journal in found.journals.values()} == {10**18 + 2 * 10**9}
    assert {journal.call_issued_ns(0) for journal in other.journals.values()} == {10**18 + 10**9}
    assert "replica1" in found.name.replace("_", "") and "replica0" in other.name.replace("_", "")
    assert not told(found) + told(other)


def test_hosts_of_a_job_stay_together_beside_what_is_left_of_another(tmp_path: Path) -> None:
    for rank in range(4):
        write(tmp_path / f"node{rank // 2}" / f"trace_{rank}", dump(at(1, 0), at(2, 0), pg_config=config(4)))
    write(tmp_path / "old" / "trace_0", dump(at(1, 7), at(2, 7), at(3, 7), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    assert sorted(map(len, (each.journals for each in (found, *found.others)))) == [1, 4]


def test_an_older_dump_of_the_same_process_is_no_other_job(tmp_path: Path) -> None:
    for rank in range(2):
        for when, calls in (("1015", (1, 2)), ("1030", (1, 2, 3))):
            content = dump(*(at(number, rank) for number in calls), pg_config=config(2))
            write(tmp_path / f"rank{rank}_20251122-{when}", content)
    found = read_dump_folder(tmp_path)
    assert not found.others and [len(journal.calls) for journal in found.journals.values()] == [3, 3]
    assert "rank0_20251122-1015: there is another dump of rank 0 here" in told(found)


def test_a_torn_dump_is_missing_from_its_own_job_alone(tmp_path: Path) -> None:
    for replica in range(2):
        for rank in range(4):
            path = write(tmp_path / f"replica_{replica}" / f"rank_{rank}", dump(at(1, replica), pg_config=config(4)))
            if (replica, rank) == (1, 3):
                path.write_bytes(path.read_bytes()[:100])
    found = read_dump_folder(tmp_path)
    each = {one.name: one for one in (found, *found.others)}
    assert "rank_3" in told(each["replica_1"]) and not told(each["replica_0"])


def on_hosts(where: Path, names: list[str], **groups: list[list[int]]) -> None:
    """Two dumps on each of three hosts, whose ranks are 0 and 1, 2 and 3, 4 and 5; rank 5's has a third call.
    ``groups``: further groups of each host's ranks."""
    for host, name in enumerate(names):
        for local in range(2):
            rank = 2 * host + local
            calls = [at(n, rank * 10**6) for n in range(1, 4 if rank == 5 else 3)]
            mine = {f"{key}{host}": each[host] for key, each in groups.items()}
            write(where / name.format(local=local), dump(*calls, pg_config=config(6, **mine)))


@pytest.mark.parametrize("name", ["node{}/trace_{{local}}", "trace_gpu-{}_rank{{local}}", "{}/7/rank_{{local}}.pkl"])
def test_names_of_the_rank_on_the_host_are_joined_in_the_order_of_the_hosts(tmp_path: Path, name: str) -> None:
    on_hosts(tmp_path, [name.format(host) for host in range(3)])
    found = read_dump_folder(tmp_path)
    assert {rank: len(journal.calls) for rank, journal in found.journals.items()} == dict.fromkeys(range(5), 2) | {5: 3}
    assert [note.what for note in found.unavailable] == ["rank"]
    assert "the ranks on their hosts alone; the hosts were put in the order of their numbers" in told(found)


def test_the_groups_in_the_dumps_say_which_host_comes_first(tmp_path: Path) -> None:
    on_hosts(tmp_path, ["c/trace_{local}", "a/trace_{local}", "b/trace_{local}"], tp=[[0, 1], [2, 3], [4, 5]])
    found = read_dump_folder(tmp_path)
    assert {rank: len(journal.calls) for rank, journal in found.journals.items()} == dict.fromkeys(range(5), 2) | {5: 3}
    assert not found.unavailable


def test_hosts_in_no_known_order_are_refused(tmp_path: Path) -> None:
    on_hosts(tmp_path, ["red/trace_{local}", "blue/trace_{local}", "green/trace_{local}"])
    found = read_dump_folder(tmp_path)
    assert not found.journals
    assert "6 dumps were left out (" in told(found) and "nothing says which host comes first" in told(found)
    assert "rename them to <prefix><rank in the job>" in found.unavailable[0].remedy


def test_copies_of_dumps_are_no_other_host(tmp_path: Path) -> None:
    for folder in ("node0", "node1"):
        for rank in range(2):
            write(tmp_path / folder / f"trace_{rank}", dump(at(1, rank), pg_config=config(4)))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1] and "there is another dump of rank 0 here" in told(found)


def test_a_dump_of_active_calls_alone_is_marked(tmp_path: Path) -> None:
    waits = {"state": "scheduled", "retired": False}
    write(tmp_path / "trace_0", dump(nccl(900, record_id=899, **waits), pg_config=config(2)))
    write(tmp_path / "trace_1", dump(nccl(1, record_id=0, **waits), pg_config=config(2)))
    found = read_dump_folder(tmp_path)
    assert (found.journals[0].active_only, found.journals[1].active_only) == (True, False)
    assert "those of rank 0 show no call that had completed" in told(found)


# Folding


def test_ranks_of_one_behaviour_share_their_calls(tmp_path: Path) -> None:
    for rank in range(4):
        calls = [
            nccl(n, time_created_ns=10**18 + n + rank, thread_id=str(7000 + rank), process_group=(f"row_{rank}", "row"))
            for n in range(1, 6)
        ]
        waits = nccl(6, state="scheduled", retired=False, time_created_ns=10**18 + 6 + rank)
        write(tmp_path / f"trace_{rank}", dump(*calls, waits))
    one, other, *_ = read_dump_folder(tmp_path).journals.values()
    assert one.stacks is other.stacks
    assert [call.group for call in other.calls] == ["row_1"] * 5 + ["0"]
    assert [call.thread_id for call in other.calls] == [1, 1, 1, 1, 1, 2]
    # Of what a group waits for, and of the last call, each rank keeps its own time.
    assert (one.call_issued_ns(5), other.call_issued_ns(5)) == (10**18 + 6, 10**18 + 7)


def test_calls_and_messages_of_ranks_of_one_behavior_stay_in_their_order(tmp_path: Path) -> None:
    """Rank 2 did what rank 0 did, half a second later: its call comes before its second message all the same."""
    waits = {"state": "scheduled", "retired": False}
    for rank in (0, 2):
        begun = 10**18 + rank * 250_000_000
        group = f"pair_{rank}"
        members = {"pair": {"name": group, "desc": "pair", "ranks": str([rank, rank + 1])}}
        sends = [
            nccl(n, is_p2p=True, profiling_name="nccl:send 0->1", process_group=(group, "pair"), p2p_seq_id=number,
                 time_created_ns=begun + n * 10**6, **(waits if number > 1 else {}))
            for number, n in enumerate((1, 3, 4), 1)
        ]  # fmt: skip
        call = nccl(2, time_created_ns=begun + 2 * 10**6, **waits)
        content = dump(sends[0], call, *sends[1:], pg_config={**config(4), group: members["pair"]})
        write(tmp_path / f"trace_{rank}", content)
    journals = read_dump_folder(tmp_path).journals
    assert journals[0].calls[0] is journals[2].calls[0]
    for journal in journals.values():
        times = [m.created_ns for m in journal.point_to_points]
        assert times[0] < journal.calls[0].created_ns < times[1] < times[2]
    assert journals[2].call_issued_ns(0) - journals[0].call_issued_ns(0) == 500_000_000
    assert journals[2].message_issued_ns(1) - journals[0].message_issued_ns(1) == 500_000_000


def test_equal_dumps_cost_one(tmp_path: Path) -> None:
    for rank in range(3):
        write(tmp_path / f"trace_{rank}", dump(*[nccl(n) for n in range(1, 50)]))
    first, *others = read_dump_folder(tmp_path).journals.values()
    assert all(journal.calls is first.calls for journal in others)


def test_of_too_many_different_calls_the_newest_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangdoc.capture.dumps.fold.MOST_CALLS", 60)
    monkeypatch.setattr("hangdoc.capture.dumps.fold.FEWEST_CALLS", 10)
    for rank in range(3):
        entries = [nccl(n, record_id=n - 1, input_sizes=[[n, rank]]) for n in range(1, 101)]
        write(tmp_path / f"trace_{rank}", dump(*entries))
    for journal in read_dump_folder(tmp_path).journals.values():
        assert [call.sequence for call in journal.calls] == list(range(81, 101))
        assert journal.forgotten == 80


operations = st.sampled_from(
    ["nccl:all_reduce", "nccl:broadcast", "nccl:send 0->1", "nccl:recv 0<-2", "gloo:barrier", "nccl:coalesced"]
)
groups = st.sampled_from([(("0", "default_pg"), 0), (("a", "row"), 1), (("", ""), 2), (("", ""), "3")])
calls = st.builds(
    lambda group, **parts: entry(process_group=group[0], pg_id=group[1], **parts),
    group=groups,
    number=st.integers(0, 3),
    profiling_name=operations,
    is_p2p=st.booleans(),
    state=st.sampled_from(["scheduled", "started", "completed"]),
    record_id=st.sampled_from([0, 1, 1, 2, 7]),
    p2p_seq_id=st.integers(0, 2),
    time_discovered_started_ns=st.sampled_from([None, 5]),
    time_discovered_completed_ns=st.sampled_from([None, 2 * 10**18]),
    duration_ms=st.sampled_from([None, 0.25]),
    retired=st.booleans(),
    thread_id=st.sampled_from(["0", "7", 8, None]),
    input_sizes=st.sampled_from([[[3, 4]], [], [[1], [2]], None]),
    frames=st.sampled_from([[], [{"name": "f", "filename": "/a.py", "line": 1}], None, [{"name": 1}]]),
)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(calls | st.sampled_from([{}, {"frames": []}]), max_size=12), min_size=1, max_size=3))
def test_what_is_folded_is_what_was_recorded(programs: list[list[Any]]) -> None:
    from hangdoc.capture.dumps.digest import Tables, digest

    folding, tables, dumps = Folding(len(programs)), Tables(), []
    # The last rank does as the first, in another place of the group.
    members = [*([0, 2] for _ in programs), [1, 3]]
    both = zip((*programs, programs[0]), members, strict=True)
    contents = [dump(*entries, pg_config=config(4, a=ranks)) for entries, ranks in both]
    for content in contents:
        answer = digest(pickle.loads(pickle.dumps(content)), tables)
        answer["new"] = tables.news()
        dumps.append((folding.add(0, json.loads(json.dumps(answer))), 5.0))
    for content, journal in zip(contents, folding.journals(dumps), strict=True):
        table = StackTable.new()
        read = parse(content, table)
        assert isinstance(read, Recorded)
        for name in ("groups", "counters", "status", "forgotten", "gave_up", "unsure_numbers"):
            assert getattr(journal, name) == getattr(read, name), name
        for mine, theirs in ((journal.calls, read.calls), (journal.point_to_points, read.point_to_points)):
            assert [plain(call, journal.stack) for call in mine] == [
                plain(call, partial(Journal.stack, Journal("", stacks=tuple(table.stacks)))) for call in theirs
            ]


def plain(call: Any, stack: Callable[[int], Any]) -> dict[str, Any]:
    fields = {name: getattr(call, name) for name in call.__match_args__}
    return fields | {"stack": stack(call.stack), "thread_id": bool(call.thread_id), "created_ns": 0}


# Hostile files


class Touch:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.path}",)


@pytest.mark.parametrize("protocol", [0, 2, 4, 5])
def test_a_hostile_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    target = tmp_path / "touched"
    (tmp_path / "trace_0").write_bytes(pickle.dumps(dump(Touch(str(target))), protocol=protocol))
    found = read_dump_folder(tmp_path)
    assert not found.journals and "names nothing" in told(found)
    assert not target.exists()


def test_one_file_that_takes_all_memory_costs_itself_alone(tmp_path: Path) -> None:
    for rank in range(8):
        write(tmp_path / f"trace_{rank}", dump(nccl(1)))
    (tmp_path / "trace_3").write_bytes(b"\x80\x02Nr\xff\xff\xff\x7f.")
    (tmp_path / "trace_5").write_bytes(b"\x80\x04(" + b"\x8f" * (8 << 20) + b"t.")
    (tmp_path / "trace_6").write_bytes(gzip.compress(b"\0" * (100 << 20)))
    found = read_dump_folder(tmp_path)
    assert sorted(found.journals) == [0, 1, 2, 4, 7]
    assert [note.rank for note in found.unavailable] == [3, 5, 6]
    assert told(found).count("384 MiB of memory") == 2 and "more than 67108864 bytes" in told(found)


def test_a_worker_that_is_killed_takes_one_file_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_SECONDS", 5.0)
    fifo, whole = tmp_path / "fifo", write(tmp_path / "trace_1", dump(nccl(1)))
    os.mkfifo(fifo)
    writer = os.open(fifo, os.O_RDWR)  # the worker reads, and nothing comes
    try:
        files = [lambda: os.open(fifo, os.O_RDONLY), lambda: os.open(whole, os.O_RDONLY)]
        answers = {number: answer for number, _, answer in workers.read_all(files, [0, 0])}
    finally:
        os.close(writer)
    assert "longer than 5 s" in answers[0]["bad"] and len(answers[1]["calls"]["templates"]) == 1


@settings(max_examples=40, deadline=None)
@given(data=st.binary(max_size=300), at=st.integers(0, 400), value=st.integers(0, 255))
def test_any_bytes_are_answered(tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, value: int) -> None:
    folder = tmp_path_factory.mktemp("any")
    damaged = bytearray(pickle.dumps(dump(entry(1)), protocol=2))
    damaged[at % len(damaged)] = value
    (folder / "d_0").write_bytes(data)
    (folder / "d_1").write_bytes(bytes(damaged))
    found = read_dump_folder(folder)
    assert len(found.journals) + len(found.unavailable) >= 1
