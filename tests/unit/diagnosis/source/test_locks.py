"""A lock held over a collective, from the source of two threads' lines."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.locks import held, held_since, holders, one_owner, polls_for_lock, wanted
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
SOURCES = Sources(
    (
        SourceText(
            FILE, "run", 1, "def run(self):\n    with self.lock, open(p) as f:\n        x = 1\n        reduce(x)"
        ),
        SourceText(FILE, "add", 6, "def add(self):\n    self.lock.acquire()\n    with guard():\n        pass"),
    )
)


@pytest.mark.parametrize(
    ("line", "names"), [(2, {"self.lock"}), (4, set()), (7, {"self.lock"}), (8, set()), (99, set())]
)
def test_what_a_line_wants_to_lock(line: int, names: set[str]) -> None:
    assert wanted(Frame(FILE, line, "f"), SOURCES) == names


BY_HAND = Sources(
    (
        SourceText(
            FILE,
            "save",
            1,
            "def save(self):\n"
            "    lock.acquire()\n"
            "    if a:\n"
            "        self.guard.acquire()\n"
            "        reduce(x)\n"
            "        self.guard.release()\n"
            "        reduce(y)\n"
            "    lock.release()\n"
            "    reduce(z)",
        ),
    )
)


@pytest.mark.parametrize(("line", "names"), [(5, {"self.guard", "lock"}), (7, {"lock"}), (9, set()), (2, set())])
def test_what_is_held_by_hand(line: int, names: set[str]) -> None:
    assert {name for name, _ in held((Frame(FILE, line, "Saver.save"),), BY_HAND)} == names


def test_what_is_held_around_a_line() -> None:
    found = held((Frame(FILE, 4, "Metrics.run"), Frame("/elsewhere.py", 4, "f")), SOURCES)
    assert found == [("self.lock", Frame(FILE, 2, "Metrics.run"))]
    assert held((Frame(FILE, 2, "Metrics.run"),), SOURCES) == []  # it is at the `with` itself


def test_two_objects_of_one_name_are_not_one_lock() -> None:
    mine = Frame(FILE, 4, "Metrics.run")
    assert one_owner("self.lock", mine, Frame(FILE, 7, "Metrics.add"))
    assert not one_owner("self.lock", mine, Frame(FILE, 7, "Cache.add"))
    assert not one_owner("lock", mine, Frame("/job/other.py", 7, "add"))
    assert one_owner("lock", mine, Frame(FILE, 7, "add"))


FILES = Sources(
    (
        SourceText(FILE, "main", 1, "def main():\n    with Lock(path):\n        build()\n    done()"),
        SourceText(
            FILE, "take", 6, "def take(path):\n    while True:\n        if make(path, os.O_EXCL):\n            break"
        ),
        SourceText(FILE, "wait", 11, "def wait(path):\n    while not ready(path):\n        sleep(1)"),
    )
)


@pytest.mark.parametrize(("at", "holder", "holds"), [(2, 3, True), (2, 4, False), (3, 3, False), (2, 2, False)])
def test_who_is_in_the_body_of_a_with_has_what_its_head_waits_for(at: int, holder: int, holds: bool) -> None:
    assert held_since(Frame(FILE, at, "main"), Frame(FILE, holder, "main"), FILES) is holds
    assert not held_since(Frame(FILE, at, "main"), Frame("/job/other.py", holder, "main"), FILES)


def test_a_function_that_tries_to_take_a_lock_file() -> None:
    assert polls_for_lock((Frame(FILE, 8, "take"), Frame(FILE, 2, "main")), FILES)
    assert not polls_for_lock((Frame(FILE, 13, "wait"), Frame(FILE, 2, "main")), FILES)


HANDED_ON = """\
class Loop:
    def __init__(self, rank):
        self.rank, self.guard = rank, threading.Lock()
        self.averager = Averager(self.guard)
    def step(self):
        with self.guard if self.rank == 0 else nullcontext():
            reduce(self.grads)
        with self.guard:
            self.optimizer.step()
class Averager:
    def __init__(self, guard):
        self.guard = guard
    def run(self):
        with self.guard:
            reduce(self.ema)
"""


@pytest.mark.parametrize(("text", "found"), [(HANDED_ON, ["self.guard"]), (HANDED_ON * 2, [])])
def test_a_lock_that_another_object_was_given(text: str, found: list[str]) -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    main = Thread(1, "main", "S", frames=(Frame(FILE, 8, "Loop.step"),))
    other = Thread(2, "ema", "S", frames=(Frame(FILE, 15, "Averager.run"),))
    process = Process(1, 0, "rank", looks=(ProcessState(0.0, "S", threads=(main, other)),))
    assert [each.name for each in holders(process, Frame(FILE, 8, "Loop.step"), sources)] == found


SEVERAL = """\
class Shard:
    def __init__(self):
        self.lock = threading.Lock()
def move(source, target):
    with source.lock:
        with target.lock:
            target.rows += source.rows
def save(shard):
    with shard.lock:
        write(shard.rows)
def main():
    shards = [Shard() for _ in range(8)]
"""


@pytest.mark.parametrize(("made", "line", "found"), [
    ("[Shard() for _ in range(8)]", 9, []),
    ("Shard()", 9, ["source.lock"]),
    ("Shard()", 6, []),
])  # fmt: skip
def test_locks_of_several_objects_are_not_one(made: str, line: int, found: list[str]) -> None:
    text = SEVERAL.replace("[Shard() for _ in range(8)]", made)
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    function = "move" if line == 6 else "save"
    main = Thread(1, "main", "S", frames=(Frame(FILE, line, function),))
    other = Thread(2, "mover", "S", frames=(Frame(FILE, 6, "move"),))
    threads = (main,) if line == 6 else (main, other)
    process = Process(1, 0, "rank", looks=(ProcessState(0.0, "S", threads=threads),))
    assert [each.name for each in holders(process, Frame(FILE, line, function), sources)] == found
