"""What a thread waits for, by its library's frames and by the calls at its line."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.needs.need import NeedKind
from hangdoc.diagnosis.needs.resources import polls, providing, resources, seen_on
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Module

JOB = "/job/train.py"
LIBRARY = "/usr/lib/python3.11"
TEXT = """\
def feed(jobs, other):
    other.put(2)
    jobs.put(1)

def take(jobs, gate, path, store):
    jobs.get()
    while not path.exists():
        time.sleep(1)
    while path.exists():
        time.sleep(1)
    while store.add("turn", 0) < 4:
        time.sleep(1)
    gate.wait()
    while time.monotonic() < end:
        time.sleep(1)

def done(path, store):
    path.touch()
    store.add("turn", 1)
    path.unlink()

def locked(mark, db, table):
    while True:
        try:
            return os.open(mark, os.O_EXCL)
        except FileExistsError:
            time.sleep(1)
    while not table.compare_set("owner", "", "me"):
        time.sleep(1)
    db.execute("BEGIN IMMEDIATE")
"""
PROGRAM = Program(modules=(Module(JOB, "", TEXT),))


def at(line: int, *below: tuple[str, str]) -> Stack:
    return (*(Frame(f"{LIBRARY}/{file}", 9, name) for file, name in below), Frame(JOB, line, "take"))


@pytest.mark.parametrize(
    ("stack", "does", "row", "need", "own"),
    [
        (at(6, ("queue.py", "Queue.get")), ActivityKind.LOCK, "item", NeedKind.ITEM, True),
        (at(6, ("multiprocessing/queues.py", "Queue.get")), ActivityKind.PIPE, "item", NeedKind.ITEM, False),
        (at(8), ActivityKind.SLEEPING, "file", NeedKind.FILE, False),
        (at(10), ActivityKind.SLEEPING, "absence", NeedKind.ABSENCE, False),
        (at(12), ActivityKind.SLEEPING, "count", NeedKind.COUNT, False),
        (at(13, ("threading.py", "Event.wait")), ActivityKind.LOCK, "event", NeedKind.EVENT, True),
        (at(13, ("threading.py", "Barrier.wait")), ActivityKind.LOCK, "count", NeedKind.COUNT, True),
        (at(15), ActivityKind.SLEEPING, "time", NeedKind.OUTSIDE, False),
        (at(27), ActivityKind.SLEEPING, "lock-file", NeedKind.LOCK, False),
        (at(29), ActivityKind.SLEEPING, "lock-key", NeedKind.LOCK, False),
        (at(30), ActivityKind.SLEEPING, "database", NeedKind.LOCK, False),
    ],
)
def test_the_row_that_a_wait_shows(stack: Stack, does: ActivityKind, row: str, need: NeedKind, own: bool) -> None:
    found = seen_on(PROGRAM, stack, does)
    assert found is not None
    assert (found.resource.name, found.resource.need, found.own) == (row, need, own)
    assert found.line == (JOB, stack[-1].line)


def test_what_computes_waits_for_nothing() -> None:
    assert seen_on(PROGRAM, at(3), ActivityKind.COMPUTING) is None
    assert seen_on(PROGRAM, (), ActivityKind.SLEEPING) is None


def test_who_provides_names_the_same_object() -> None:
    item = seen_on(PROGRAM, at(6, ("queue.py", "Queue.get")), ActivityKind.LOCK)
    file = seen_on(PROGRAM, at(8), ActivityKind.SLEEPING)
    gone = seen_on(PROGRAM, at(10), ActivityKind.SLEEPING)
    count = seen_on(PROGRAM, at(12), ActivityKind.SLEEPING)
    assert item is not None
    assert file is not None
    assert gone is not None
    assert count is not None
    assert providing(PROGRAM, item) == ((JOB, 3),)
    assert providing(PROGRAM, file) == ((JOB, 18),)
    assert providing(PROGRAM, gone) == ((JOB, 20),)
    assert (JOB, 19) in providing(PROGRAM, count)


def test_a_test_that_keeps_a_thread_is_polled() -> None:
    assert polls(PROGRAM, at(8))
    assert not polls(PROGRAM, at(13))


def test_every_row_has_what_it_is_read_for() -> None:
    assert len({row.name for row in resources()}) == len(resources())
    for row in resources():
        assert row.activity, row.name
        assert row.waits or row.below or row.caught, row.name
        assert row.provides or row.need == NeedKind.OUTSIDE, row.name
