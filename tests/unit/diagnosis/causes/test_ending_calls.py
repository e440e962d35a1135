"""Which condition kept the call from being made that would end a wait?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.causes.ending_calls import ending_condition
from hangdoc.diagnosis.source.awaits import only_await
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.message import conditions_in
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import SourceText

FILE = "/job/up.py"
UPLOADER = """\
class Uploader:
    def submit(self, path):
        self.queue.put(path)

    def work(self):
        while True:
            path = self.queue.get()
            if path is None:
                return
            self.send(path)
            self.queue.task_done()

    def send(self, path):
        if path.size > self.quota:
            raise OSError(path)

    def start(self):
        if self.sink.ready:
            Thread(target=self.work).start()

    def close(self):
        if self.failed:
            return
        self.queue.put(None)

    def flush(self):
        self.queue.join()
"""


def _sources(text: str) -> Sources:
    return Sources((SourceText(FILE, "<module>", 1, text),))


def _waiting(method: str, line: int, function: str) -> Stack:
    return Frame("/usr/lib/python3.11/queue.py", 171, f"Queue.{method}"), Frame(FILE, line, function)


def _named(stack: Stack, text: str = UPLOADER, living: tuple[Frame, ...] = ()) -> list[str]:
    return [each.source for each in conditions_in(ending_condition(_sources(text), stack, living=living))]


def test_a_consumer_waits_for_its_end_mark() -> None:
    assert _named(_waiting("get", 7, "work")) == ["if self.failed:"]


def test_an_exception_leads_past_the_call() -> None:
    assert _named(_waiting("join", 27, "flush")) == ["if path is None:"]
    # A thread that is still in its loop has not returned from it.
    assert _named(_waiting("join", 27, "flush"), living=(Frame(FILE, 7, "work"),)) == ["if path.size > self.quota:"]


def test_a_swallowed_exception_leads_nowhere() -> None:
    caught = UPLOADER.replace(
        "            self.send(path)\n",
        "            try:\n                self.send(path)\n            except OSError:\n                pass\n",
    )
    assert _named(_waiting("join", 30, "flush"), caught, living=(Frame(FILE, 7, "work"),)) == []


def test_a_full_queue_whose_consumer_was_never_started() -> None:
    without = UPLOADER.replace("            raise OSError(path)\n", "            log(path)\n")
    assert _named(_waiting("put", 3, "submit"), without) == ["if self.sink.ready:"]
    # One that is there just waits as well: what it waits for is another question.
    assert _named(_waiting("put", 3, "submit"), without, living=(Frame(FILE, 10, "work"),)) == []


def test_two_places_that_would_end_it_name_none() -> None:
    twice = UPLOADER + "\n    def abort(self):\n        if self.dead:\n            self.queue.put(None)\n"
    assert _named(_waiting("get", 7, "work"), twice) == []


ROLLOUT = """\
async def train(pool):
    await pool.start()
    await pool.collect()

async def start(self):
    self.tasks = [asyncio.create_task(self.worker())]

async def collect(self):
    await self.queue.join()

async def worker(self):
    await self.queue.get()

asyncio.run(train(pool))
"""


@pytest.mark.parametrize(
    "other", ["    await self.ready.wait()\n", "    async with self.lock:\n        pass\n", "    await self.future\n"]
)
def test_a_second_place_leaves_it_open(other: str) -> None:
    text = ROLLOUT.replace("    await self.queue.join()\n", "    await self.queue.join()\n" + other)
    assert only_await(_sources(text), Frame(FILE, text.count("\n"), "<module>")) is None


WRITER = """\
class Writer:
    def __init__(self):
        self.flushed = threading.Event()
        self.flushed.set()

    def store(self, blob):
        if self.room(blob) < self.reserve:
            return
        self.flushed.set()

    def checkpoint(self):
        self.flushed.wait()
"""
EVENT = (Frame("/usr/lib/python3.11/threading.py", 629, "Event.wait"), Frame(FILE, 12, "checkpoint"))


def test_what_set_an_event_when_it_was_made_does_not_end_a_later_wait() -> None:
    assert _named(EVENT, WRITER) == ["if self.room(blob) < self.reserve:"]


def test_what_may_not_have_set_it_then_may_still_be_missing() -> None:
    chosen = WRITER.replace(
        "        self.flushed.set()\n\n", "        if self.warm:\n            self.flushed.set()\n\n", 1
    )
    assert _named((EVENT[0], Frame(FILE, 13, "checkpoint")), chosen) == []


MEETING = """\
class Passes:
    def work(self, slot):
        todo = self.items[slot::3]
        if not todo:
            return
        self.meet.wait()

    def run(self):
        for slot in range(3):
            Thread(target=self.work, args=(slot,)).start()
"""
BARRIER = (
    Frame("/usr/lib/python3.11/threading.py", 732, "Barrier._wait"),
    Frame("/usr/lib/python3.11/threading.py", 697, "Barrier.wait"),
    Frame(FILE, 6, "work"),
)


def test_who_does_not_come_to_a_barrier_of_threads() -> None:
    assert _named(BARRIER, MEETING) == ["if not todo:"]


def test_a_barrier_to_which_fewer_threads_were_started() -> None:
    fewer = MEETING.replace("        if not todo:\n            return\n", "").replace(
        "            Thread", "            if self.items[slot::3]:\n                Thread"
    )
    stack = (*BARRIER[:2], Frame(FILE, 4, "work"))
    assert _named(stack, fewer) == ["if self.items[slot::3]:"]


WINDOW = """\
class Window:
    def ack(self, ack):
        if ack.seq in self.open:
            self.cv.notify()

    def close(self):
        self.cv.notify_all()

    def reserve(self):
        self.cv.wait()

def main(window):
    for step in range(9):
        window.reserve()
    window.close()

main(Window())
"""
RESERVING = (
    Frame("/usr/lib/python3.11/threading.py", 327, "Condition.wait"),
    Frame(FILE, 10, "reserve"),
    Frame(FILE, 14, "main"),
    Frame(FILE, 17, "<module>"),
)


def test_what_the_waiting_thread_comes_to_later_does_not_end_its_wait() -> None:
    assert _named(RESERVING, WINDOW) == ["if ack.seq in self.open:"]


def test_in_a_thread_of_its_own_somebody_else_may_come_to_it() -> None:
    assert _named(RESERVING[:3], WINDOW) == []
