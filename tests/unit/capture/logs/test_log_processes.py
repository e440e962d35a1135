"""Ranks with processes, made from stacks: who is which rank, which thread is the main one, what stays open."""

from __future__ import annotations

from dataclasses import replace

from pasted_stacks import ALL_REDUCE, BARRIER, LOADER, MAIN, QUEUE, faulthandler, py_spy, stacks, step

from hangdoc.capture.logs.processes import SeenRanks, ranks_of
from hangdoc.model.process import Process, Thread


def seen(**files: str) -> SeenRanks:
    return ranks_of(stacks({f"{name}.txt": text for name, text in files.items()}))


def processes(found: SeenRanks) -> dict[int, Process]:
    return {rank.rank: rank.process for rank in found.ranks if rank.process is not None}


def main_of(found: SeenRanks, rank: int) -> Thread:
    process = processes(found)[rank]
    assert process.last is not None
    assert process.last.main is not None
    return process.last.main


def test_one_look_of_which_nothing_of_the_kernels_is_known() -> None:
    found = seen(rank1=py_spy(12, [*ALL_REDUCE, *step(9), *MAIN]), rank0=py_spy(11, [*QUEUE, *MAIN], "active+gil"))
    assert [(r.rank, r.identity) for r in found.ranks] == [(0, "log"), (1, "log")]
    process = processes(found)[1]
    assert (process.pid, len(process.looks), process.looks[0].state, process.looks[0].cpu) == (12, 1, "", 0.0)
    assert (main_of(found, 1).state, main_of(found, 1).owns_gil) == ("S", False)
    assert (main_of(found, 0).state, main_of(found, 0).owns_gil) == ("R", True)
    assert not found.unavailable


def test_what_faulthandler_does_not_say_stays_open() -> None:
    found = seen(rank0=faulthandler([*ALL_REDUCE, *MAIN]))
    assert (main_of(found, 0).state, main_of(found, 0).active, main_of(found, 0).frames[0].function) == (
        "",
        None,
        "all_reduce",
    )
    assert processes(found)[0].pid == 0


def test_the_last_of_several_looks_counts() -> None:
    found = seen(rank0=faulthandler([*BARRIER, *step(4), *MAIN]) + faulthandler([*ALL_REDUCE, *step(9), *MAIN]))
    assert main_of(found, 0).frames[0].function == "all_reduce"
    assert len(processes(found)) == 1


def test_native_frames_of_gdb_join_the_python_frames_of_py_spy() -> None:
    gdb = 'Thread 1 (Thread 0x7f01 (LWP 12) "python3"):\n#0  0x1 in ncclLocalOpAppend () from /x/libnccl.so.2\n'
    found = ranks_of(stacks({"rank1.txt": py_spy(12, [*ALL_REDUCE, *MAIN]), "gdb_rank1.txt": gdb}))
    main = main_of(found, 1)
    assert [f.function for f in main.native_frames] == ["ncclLocalOpAppend"]
    assert main.frames[0].function == "all_reduce"


def test_ranks_that_are_missing_are_expected_and_no_process() -> None:
    found = seen(rank2=py_spy(5, MAIN))
    assert [(r.rank, r.identity, r.process is None) for r in found.ranks] == [
        (0, "expected", True),
        (1, "expected", True),
        (2, "log", False),
    ]
    assert found.world_size is None
    whole = seen(a="RANK=2 WORLD_SIZE=5\n" + py_spy(5, MAIN))
    assert (len(whole.ranks), whole.world_size) == (5, 5)


def test_processes_without_a_rank_get_the_free_numbers_and_a_note() -> None:
    found = seen(host=py_spy(30, [*ALL_REDUCE, *MAIN]) + "rank 0\n" + py_spy(40, MAIN) + py_spy(20, [*BARRIER, *MAIN]))
    assert {r.rank: (r.identity, r.process.pid) for r in found.ranks if r.process is not None} == {
        0: ("log", 40),
        1: ("order", 20),
        2: ("order", 30),
    }
    (note,) = found.unavailable
    assert "process 20 is rank 1" in note.why
    assert "rank0.txt" in note.remedy


def test_workers_and_launchers_are_no_ranks() -> None:
    worker = [*QUEUE, ("_worker_loop", "torch/utils/data/_utils/worker.py", 200), *MAIN]
    agent = [("_invoke_run", "torch/distributed/elastic/agent/server/api.py", 900), *MAIN]
    found = seen(all="rank 0\n" + py_spy(1, [*LOADER, *MAIN]) + py_spy(2, worker) + py_spy(3, agent))
    assert {rank: process.pid for rank, process in processes(found).items()} == {0: 1}


def test_a_worker_under_the_heading_of_its_rank_is_its_child() -> None:
    worker = [*QUEUE, ("_worker_loop", "torch/utils/data/_utils/worker.py", 200), *MAIN]
    found = seen(all="rank 0\n" + py_spy(1, [*LOADER, *MAIN]) + "rank 0\n" + py_spy(2, worker))
    (process,) = processes(found).values()
    assert [(child.pid, child.role) for child in process.children] == [(2, "dataloader-worker")]


def test_two_files_that_call_themselves_one_rank_give_none_of_them_that_number() -> None:
    found = ranks_of(stacks({"a.txt": "rank 0\n" + py_spy(1, MAIN), "b.txt": "rank 0\n" + py_spy(2, MAIN)}))
    assert {r.identity for r in found.ranks} == {"order"}
    assert "several processes call themselves rank 0" in found.unavailable[0].why


def test_a_thread_without_a_name_has_its_number() -> None:
    text = faulthandler(MAIN, others=[[*ALL_REDUCE, ("hook", "hooks.py", 3)]])
    found = seen(rank0=text)
    (main, other) = processes(found)[0].looks[0].threads
    assert main.name == "MainThread"
    assert other.name == hex(other.tid)


def test_a_main_thread_that_was_not_printed_is_no_other_thread() -> None:
    started = [("wait", "threading.py", 1), ("_bootstrap", "threading.py", 2)]
    found = seen(rank0=faulthandler(started, others=[started]))
    assert main_of(found, 0).frames == ()
    assert len(processes(found)[0].looks[0].threads) == 3


def test_hostile_numbers_of_ranks_are_bounded() -> None:
    stack = stacks({"rank0.txt": py_spy(5, MAIN)})[0]
    far = [replace(stack, rank=10**12), replace(stack, rank=-1, pid=6), replace(stack, rank=None, pid=7)]
    found = ranks_of(far, world_size=10**15)
    assert (len(found.ranks), found.world_size) == (3, None)
    assert ranks_of([]) == SeenRanks()
