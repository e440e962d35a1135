"""Threads of one process that wait for each other, from made-up looks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.deadlock import (
    blocked_with_child,
    deadlock,
    has_deadlocked_worker,
    never_goes_on,
    nobody_wakes,
    waits_at_exit,
)
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, OpenFile, Process, ProcessState, Thread
from hangdoc.model.snapshot import SourceText

FILE = "/job/meter.py"
LIBRARY = "/usr/lib/python3.11"
PRIVATE, SHARED = "202 0x1 0x189 0x0 0x0 0x0 0xffffffff", "202 0x1 0x109 0x0 0x0 0x0 0xffffffff"
SOURCES = Sources(
    (
        SourceText(FILE, "add", 1, "def add(self):\n    with self.a:\n        self.flush()"),
        SourceText(FILE, "flush", 5, "def flush(self):\n    with self.a:\n        pass"),
        SourceText(FILE, "one", 10, "def one(self):\n    with self.a:\n        with self.b:\n            pass"),
        SourceText(FILE, "two", 20, "def two(self):\n    with self.b:\n        with self.a:\n            pass"),
    )
)
ADD, FLUSH = Frame(FILE, 3, "Meter.add"), Frame(FILE, 6, "Meter.flush")
ONE, TWO = Frame(FILE, 12, "Meter.one"), Frame(FILE, 22, "Meter.two")
GET = (Frame(f"{LIBRARY}/threading.py", 327, "Condition.wait"), Frame(f"{LIBRARY}/queue.py", 171, "Queue.get"))
RESULT = (GET[0], Frame(f"{LIBRARY}/concurrent/futures/_base.py", 451, "Future.result"))
POOL = Frame(f"{LIBRARY}/concurrent/futures/thread.py", 83, "_worker")
USER = Frame(FILE, 40, "shard")


def waiting(tid: int, *frames: Frame, syscall: str = PRIVATE) -> Thread:
    return Thread(tid, f"thread-{tid}", "S", wchan="futex_do_wait", syscall=syscall, frames=frames)


def process(*threads: Thread) -> Process:
    looks = tuple(ProcessState(at, "S", threads=threads) for at in (0.0, 1.0))
    return Process(1, 0, "rank", looks=looks)


def test_a_lock_taken_twice_by_one_thread() -> None:
    found = deadlock(process(waiting(1, FLUSH, ADD)), SOURCES)
    assert found is not None
    ((where, holder),) = found.circle
    assert (where.line, holder.frame.line, holder.name) == (6, 2, "self.a")


def test_two_locks_in_opposite_order() -> None:
    found = deadlock(process(waiting(1, ONE), waiting(2, TWO)), SOURCES)
    assert found is not None
    assert [(at.line, held.frame.line, held.thread.tid) for at, held in found.circle] == [(12, 21, 2), (22, 11, 1)]


def test_a_holder_that_works_will_let_go() -> None:
    worker = Thread(2, "works", "R", frames=(Frame(FILE, 23, "Meter.two"),))
    assert deadlock(process(waiting(1, ONE), worker), SOURCES) is None


@pytest.mark.parametrize(
    "thread",
    [
        waiting(1, FLUSH, ADD, syscall=SHARED),
        replace(waiting(1, FLUSH, ADD), wakes_in=5.0),
    ],
)
def test_what_another_process_or_the_clock_may_end_is_no_deadlock(thread: Thread) -> None:
    assert deadlock(process(thread), SOURCES) is None


def test_what_a_native_thread_may_end_is_no_deadlock() -> None:
    native = Thread(2, "pt_gloo_runloop", "S")
    assert deadlock(process(waiting(1, Frame(FILE, 99, "Meter.elsewhere")), native), SOURCES) is None


@pytest.mark.parametrize(
    ("thread", "never"),
    [
        (waiting(1, USER), True),
        (waiting(1, USER, syscall=SHARED), False),
        (waiting(1, USER, syscall="202 0x1 0x189 0x0 0x7ffe10 0x0 0xffffffff"), False),
        (replace(waiting(1, USER), state="R"), False),
        (replace(waiting(1, USER), wchan="do_wait", syscall="61 0x1"), False),
    ],
)
def test_the_only_thread_of_a_process_is_woken_by_no_other(thread: Thread, never: bool) -> None:
    assert nobody_wakes(process(thread)) is never
    assert not nobody_wakes(process(thread, Thread(2, "native", "S")))


def test_a_rank_waits_for_good_for_children_that_nobody_wakes() -> None:
    child = replace(process(waiting(9, USER)), pid=2, role="child")
    rank = replace(process(waiting(1, USER)), children=(child,))
    assert never_goes_on(rank, ActivityKind.WAITING_FOR_CHILD, SOURCES) is not None
    works = replace(process(Thread(9, "works", "R", frames=(USER,))), pid=3, role="child")
    assert never_goes_on(replace(rank, children=(child, works)), ActivityKind.WAITING_FOR_CHILD, SOURCES) is None


def test_nobody_is_left_to_fill_a_queue() -> None:
    found = deadlock(process(waiting(1, *GET, USER)), SOURCES)
    assert found is not None
    assert not found.circle
    assert not found.pool
    assert deadlock(process(waiting(1, *GET, USER), waiting(2, *GET, USER)), SOURCES) is not None
    works = Thread(2, "works", "R", frames=(USER,))
    assert deadlock(process(waiting(1, *GET, USER), works), SOURCES) is None


def test_a_native_thread_of_some_library_may_end_the_wait() -> None:
    own, other = (Thread(2, name, "S") for name in ("pt_autograd_0", "grpc_global_tim"))
    assert deadlock(process(waiting(1, *GET, USER), own), SOURCES) is not None
    assert deadlock(process(waiting(1, *GET, USER), other), SOURCES) is None


def test_a_pool_whose_workers_all_wait_for_it() -> None:
    stuck = [waiting(tid, *RESULT, USER, POOL) for tid in (2, 3)]
    found = deadlock(process(waiting(1, *RESULT, USER), *stuck), SOURCES)
    assert found is not None
    assert found.pool == (USER, USER)
    idle = waiting(4, Frame(f"{LIBRARY}/concurrent/futures/thread.py", 81, "_worker"))
    assert deadlock(process(waiting(1, *RESULT, USER), *stuck, idle), SOURCES) is None


def at_pipe(pid: int, target: str, peers: tuple[int, ...], children: tuple[Process, ...] = ()) -> Process:
    looks = tuple(ProcessState(at, "S", threads=(Thread(pid, "main", "S", frames=(USER,)),)) for at in (0.0, 1.0))
    return Process(pid, 0, "child", looks=looks, blocking_files=(OpenFile(0, target, peers=peers),), children=children)


def test_a_rank_and_its_child_block_each_other_at_two_pipes() -> None:
    child = at_pipe(2, "pipe:[8]", (1,))
    assert blocked_with_child(at_pipe(1, "pipe:[7]", (2,), (child,)))
    assert not blocked_with_child(at_pipe(1, "pipe:[7]", (2, 3), (child,)))  # another process may write
    assert not blocked_with_child(at_pipe(1, "pipe:[7]", (2,), (at_pipe(2, "pipe:[8]", (1, 3)),)))
    assert not blocked_with_child(at_pipe(1, "pipe:[7]", (2,), (at_pipe(2, "pipe:[7]", (1,)),)))


AT_EXIT = Frame(f"{LIBRARY}/threading.py", 1590, "_shutdown")


def test_at_exit_nobody_is_left_to_end_the_wait_of_the_last_thread() -> None:
    assert waits_at_exit(process(waiting(1, AT_EXIT), waiting(2, *GET, USER)), SOURCES)


@pytest.mark.parametrize(
    "further",
    [
        Thread(3, "uploads", "S", wchan="poll", frames=(USER,)),
        Thread(3, "native", "S", wchan="futex_do_wait"),
        replace(waiting(3, *GET, USER), wakes_in=5.0),
        waiting(3, *GET, USER, syscall=""),
    ],
)
def test_at_exit_another_thread_or_the_clock_may_end_it(further: Thread) -> None:
    assert not waits_at_exit(process(waiting(1, AT_EXIT), waiting(2, *GET, USER), further), SOURCES)
    assert not waits_at_exit(process(waiting(1, USER), waiting(2, *GET, USER)), SOURCES)


def worker(pid: int, *threads: Thread) -> Process:
    return replace(process(*threads), pid=pid, role="dataloader-worker")


TAKES_TASK = (
    Frame(f"{LIBRARY}/multiprocessing/queues.py", 113, "Queue.get"),
    Frame("/v/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", 275, "_worker_loop"),
)
STUCK = worker(5, waiting(5, FLUSH), waiting(6, *GET))
IDLE = worker(7, Thread(7, "MainThread", "S", wchan="poll", frames=TAKES_TASK))
WORKS = worker(8, Thread(8, "MainThread", "S", wchan="poll", frames=(USER,)))


@pytest.mark.parametrize(
    ("workers", "threads", "expected"),
    [
        ((STUCK,), (), True),
        ((STUCK, IDLE), (), True),
        ((STUCK, WORKS), (), False),  # which may be the one whose batch is awaited
        ((IDLE,), (), False),
        ((STUCK,), (waiting(2, USER),), False),
    ],
)
def test_a_loader_whose_worker_waits_for_a_lock_that_nobody_holds(
    workers: tuple[Process, ...], threads: tuple[Thread, ...], expected: bool
) -> None:
    rank = replace(process(Thread(1, "MainThread", "S", wchan="poll", wakes_in=5.0), *threads), children=workers)
    assert has_deadlocked_worker(rank, SOURCES) is expected
