"""What ends a wait for something that processes share, from sources alone."""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.shared_values import (
    lines_at,
    places_tested,
    shares_memory,
    what_changes_value,
    what_signals,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

LIBRARY = "/usr/lib/python3.11/multiprocessing"
PAGE = """
def open_page(path):
    return mmap.mmap(path.fileno(), 4096)

def version(self):
    return struct.unpack_from("q", self.page, 0)[0]

def publish(self, number, changed):
    if changed:
        struct.pack_into("q", self.page, 0, number)

def wait_for(self, number):
    while self.version() < number:
        time.sleep(0.1)

def meet(self):
    self.count.value += 1
    while self.count.value < self.world:
        time.sleep(0.1)
"""
SIGNALS = """
def tell(self):
    self.ready.set()

def wait(self):
    self.ready.wait()

def hand_out(self, plan):
    for end in self.ends:
        end.send(plan)

def take(self, pipe):
    return pipe.recv()

def guarded(self):
    self.slot.acquire()
    work()
    self.slot.release()
"""


def sources(text: str) -> Sources:
    return Sources((SourceText("train.py", "<module>", 1, text),))


@pytest.mark.parametrize(
    ("line", "function", "changes"), [(14, "wait_for", 10), (19, "meet", 17), (10, "publish", None)]
)
def test_the_line_that_writes_into_what_a_loop_tests(line: int, function: str, changes: int | None) -> None:
    found = what_changes_value(sources(PAGE), (Frame("train.py", line, function),))
    assert (found.line if found is not None else None) == changes


def test_memory_of_one_process_is_changed_by_no_other() -> None:
    own = sources(PAGE.replace("mmap.mmap", "bytearray"))
    assert not shares_memory(own)
    assert what_changes_value(own, (Frame("train.py", 14, "wait_for"),)) is None


def test_one_of_several_lines_that_write_is_not_known() -> None:
    twice = sources(PAGE + "\ndef clear(self):\n    self.page[0] = 0\n")
    assert what_changes_value(twice, (Frame("train.py", 14, "wait_for"),)) is None


@pytest.mark.parametrize(
    ("file", "method", "line", "function", "ends"),
    [
        ("synchronize.py", "Event.wait", 6, "wait", (3, "set")),
        ("connection.py", "Connection.recv", 13, "take", (10, "send")),
        ("synchronize.py", "SemLock.acquire", 16, "guarded", None),
        ("/threading.py", "Event.wait", 6, "wait", None),
    ],
)
def test_the_line_that_ends_a_wait(
    file: str, method: str, line: int, function: str, ends: tuple[int, str] | None
) -> None:
    below = Frame(file if file.startswith("/") else f"{LIBRARY}/{file}", 9, method)
    found = what_signals(sources(SIGNALS), (below, Frame("train.py", line, function)))
    assert (None if found is None else (found[0].line, found[1])) == ends


def test_a_statement_that_holds_the_line() -> None:
    text = sources(SIGNALS)
    ((_, tree),) = text.user_trees()
    assert [lines_at(Frame("train.py", 3, "tell"))(node) for node in tree.body[:2]] == [[3], []]


def test_the_places_in_shared_memory_that_a_loop_tests() -> None:
    loops = {
        "while self.flags[slot, reader]:\n    sleep(1)": {("flags", "slot"), ("flags", "reader")},
        "while not flags[self.turn % SLOTS].all():\n    sleep(1)": {("flags", "self.turn"), ("flags", "SLOTS")},
        "while True:\n    if heads[shard] > 3:\n        break\n    rows[place] = 1": {("heads", "shard")},
        "while self.page.version() < wanted:\n    sleep(1)": set(),
    }
    for source, places in loops.items():
        assert places_tested(ast.parse(source).body[0]) == places
