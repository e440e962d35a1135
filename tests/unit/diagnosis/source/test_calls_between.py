"""Which calls end a wait of another thread, and who can still make them, from the source."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.source.calls_between import (
    ending_requests,
    places_of_methods,
    receiver_of,
    remote_function,
    requests,
    task_function,
    would_end,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/feed.py"
FEED = """\
def feed(self, jobs):
    jobs.put(1)
    while jobs:
        self.done.put(jobs.get())
        self.flush()
    self.stop.set()
"""
CALL = """\
def call(pool, x):
    future = rpc.rpc_async("ps", table.update, args=(x,))
    task = pool.submit(load, x)
    future.wait()
    task.result()
    return rpc.rpc_sync("ps", fetch)
"""
LISTS = """\
def gather(workers, table):
    futures = [rpc.rpc_async(to, update, args=(1,)) for to in workers]
    wait_all(futures)
    jobs = [rpc.remote(to, play) for to in workers]
    print([job.to_here() for job in jobs])
    later = []
    later.append(rpc.rpc_async("ps", fetch))
    for each in later:
        each.wait()
    table.rpc_sync().arrive(3)
"""
SERVICE = """\
class Board:
    def file(self, task):
        self.tasks.put(task)
    def take(self):
        return self.tasks.get()
def file_task(task):
    board.file(task)
def next_task():
    return board.take()
def plan():
    rpc.rpc_sync("board", file_task, args=(3,))
    return rpc.rpc_sync("board", next_task)
"""
SOURCES = Sources((SourceText(FILE, "feed", 1, FEED), SourceText(FILE, "call", 11, CALL)))


@pytest.mark.parametrize(
    ("line", "name", "methods", "can"),
    [
        (2, "jobs", ("get",), True),
        (2, "self.jobs", ("get",), True),
        (5, "jobs", ("get",), True),  # comes again in the loop
        (5, "jobs", ("put",), False),  # has been, and does not come again
        (5, "other", ("get",), False),
        (5, "stop", ("set",), True),
        (6, "done", ("put",), False),
        (99, "jobs", ("get",), False),
    ],
)
def test_only_what_is_still_to_come_ends_a_wait(line: int, name: str, methods: tuple[str, ...], can: bool) -> None:
    assert would_end(Frame(FILE, line, "feed"), name, methods, SOURCES) is can


def test_the_other_arm_does_not_follow() -> None:
    push = """\
def push(self):
    if len(self.grads) < 3:
        self.changed.wait()
    else:
        self.changed.notify_all()
"""
    waits = Frame(FILE, 3, "push")
    sources = Sources((SourceText(FILE, "push", 1, push),))
    assert not would_end(waits, "self.changed", ("notify_all",), sources)
    assert would_end(waits, "self.changed", ("notify_all",), sources, ever=True)


def test_what_was_called_may_count_as_well() -> None:
    assert would_end(Frame(FILE, 5, "feed"), "jobs", ("put",), SOURCES, ever=True)


@pytest.mark.parametrize(("line", "method", "name"), [(4, "put", "self.done"), (4, "get", "jobs"), (5, "put", "")])
def test_what_a_method_is_called_on(line: int, method: str, name: str) -> None:
    assert receiver_of(Frame(FILE, line, "feed"), method, SOURCES) == name


@pytest.mark.parametrize(("line", "name"), [(12, "update"), (13, ""), (14, "update"), (15, ""), (16, "fetch")])
def test_the_function_that_another_rank_runs(line: int, name: str) -> None:
    assert remote_function(Frame(FILE, line, "call"), SOURCES) == name


@pytest.mark.parametrize(("line", "name"), [(13, "load"), (14, ""), (15, "load")])
def test_the_function_that_a_worker_runs(line: int, name: str) -> None:
    assert task_function(Frame(FILE, line, "call"), SOURCES) == name


def test_where_a_queue_is_emptied_is_known_by_its_name_or_by_the_only_call_without_arguments() -> None:
    text = (
        "def run(self):\n    options.get(1)\n    for each in iter(self.records.get, None):\n        print(box.get())\n"
    )
    sources = Sources((SourceText(FILE, "run", 1, text),))
    assert places_of_methods("handler.records", ("get",), sources) == [Frame(FILE, 3, "run")]
    assert places_of_methods("", ("get",), sources) == [Frame(FILE, 4, "run")]
    assert places_of_methods("jobs", ("get",), sources) == []


@pytest.mark.parametrize(("line", "name"), [(3, "update"), (5, "play"), (6, ""), (9, "fetch"), (10, "arrive")])
def test_the_function_behind_a_list_of_answers_or_a_proxy(line: int, name: str) -> None:
    sources = Sources((SourceText(FILE, "gather", 1, LISTS),))
    assert remote_function(Frame(FILE, line, "gather"), sources) == name


def test_a_wait_that_only_a_request_ends() -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, SERVICE),))
    assert ending_requests("self.tasks", ("put", "put_nowait"), sources) == ("file_task",)
    assert requests(sources)["file_task"] == [Frame(FILE, 11, "plan")]
    also = SERVICE + "def main():\n    board.tasks.put(None)\nmain()\n"
    assert ending_requests("self.tasks", ("put",), Sources((SourceText(FILE, "<module>", 1, also),))) == ()


def test_an_event_that_is_kept_under_a_key() -> None:
    report = """\
def report(self, entry):
    if self.is_last():
        entry["full"].set()
    entry["full"].wait()
"""
    sources = Sources((SourceText(FILE, "report", 1, report),))
    waits = Frame(FILE, 4, "report")
    assert receiver_of(waits, "wait", sources) == "entry.full"
    assert would_end(waits, "entry.full", ("set",), sources, ever=True)
    assert not would_end(waits, "entry.full", ("set",), sources)
