"""Waits that nobody alive can end, and those that look like them and end all the same."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.state.nobody_left import never_stopped, unread_child
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import SourceText

LIBRARY = "/usr/lib/python3.11"
FILE = "/job/monitor.py"
JOIN = (Frame(f"{LIBRARY}/multiprocessing/process.py", 149, "BaseProcess.join"), Frame("/job/score.py", 36, "run"))
LEAVING = (Frame(f"{LIBRARY}/multiprocessing/queues.py", 199, "Queue._finalize_join"),)
FEEDING = (Frame(f"{LIBRARY}/multiprocessing/queues.py", 250, "Queue._feed"),)
READER = (Frame("/job/score.py", 50, "read"),)


def looked_at(pid: int, *threads: Thread, children: tuple[Process, ...] = ()) -> Process:
    looks = tuple(ProcessState(at, "S", threads=threads) for at in (0.0, 1.0))
    return Process(pid, 0, "rank", looks=looks, children=children)


def child(pid: int = 2, wchan: str = "anon_pipe_write") -> Process:
    main = Thread(pid, "MainThread", "S", wchan="futex_do_wait", frames=LEAVING)
    return looked_at(pid, main, Thread(pid + 100, "QueueFeederThread", "S", wchan=wchan, frames=FEEDING))


def joining(*children: Process, wakes_in: float | None = None, further: tuple[Thread, ...] = ()) -> Process:
    main = Thread(1, "MainThread", "S", wchan="do_wait", wakes_in=wakes_in, frames=JOIN)
    return looked_at(1, main, *further, children=children)


def test_a_child_whose_queue_only_the_joining_rank_could_read() -> None:
    found = unread_child(joining(child()))
    assert found is not None
    assert found.pid == 2


def test_a_sibling_that_has_ended_reads_nothing() -> None:
    ended = Process(3, 1, "child", looks=(ProcessState(0.0, "Z"), ProcessState(1.0, "Z")))
    found = unread_child(joining(child(), ended))
    assert found is not None
    assert found.pid == 2


@pytest.mark.parametrize(
    "rank",
    [
        joining(child(), child(3)),
        joining(child(wchan="futex_do_wait")),
        joining(child(), wakes_in=4.0),
        joining(child(), further=(Thread(9, "reader", "S", frames=READER),)),
    ],
    ids=["a sibling may read", "the feeder is at rest", "the join has a timeout", "a thread may read"],
)
def test_a_queue_that_somebody_may_yet_read(rank: Process) -> None:
    assert unread_child(rank) is None


MONITOR = """class Monitor:
    def run(self):
        while not self.stopped.wait(20):
            self.{call}()

    def sample(self):
        self.samples.append(1)

    def last(self):
        if self.left < 1:
            self.stop()

    def stop(self):
        self.stopped.set()
"""
WAIT = (
    Frame(f"{LIBRARY}/threading.py", 331, "Condition.wait"),
    Frame(f"{LIBRARY}/threading.py", 629, "Event.wait"),
    Frame(FILE, 3, "Monitor.run"),
)


def finished(*others: Thread) -> Process:
    main = Thread(1, "MainThread", "S", frames=(Frame(f"{LIBRARY}/threading.py", 1590, "_shutdown"),))
    return looked_at(1, main, Thread(2, "monitor", "S", wakes_in=16.0, frames=WAIT), *others)


def sources(call: str) -> Sources:
    return Sources((SourceText(FILE, "<module>", 1, MONITOR.format(call=call)),))


def test_an_event_that_nobody_sets_any_more() -> None:
    found = never_stopped(finished(), sources("sample"))
    assert found is not None
    assert found.name == "monitor"


def test_a_loop_whose_own_work_sets_the_event() -> None:
    assert never_stopped(finished(), sources("last")) is None


def test_another_thread_may_set_the_event() -> None:
    timer = Thread(3, "Timer", "S", frames=(Frame(f"{LIBRARY}/threading.py", 1376, "Timer.run"),))
    assert never_stopped(finished(timer), sources("sample")) is None
