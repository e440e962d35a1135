"""What a task of an event loop awaits gives the cause; in a program without streams it is in the process."""

from __future__ import annotations

import gzip

import pytest
from cases import case

from hangdoc import api
from hangdoc.diagnosis.source.awaits import awaits_own_future
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.codec import snapshot_from_bytes, snapshot_to_bytes
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("asyncio/queues.py", "HD505"),
        ("asyncio/streams.py", "HD507"),
        ("asyncio/subprocess.py", "HD509"),
        ("asyncio/nothing.py", "HD505"),
    ],
)
def test_the_cause_is_that_of_what_is_awaited(file: str, code: str | None) -> None:
    text = gzip.decompress(snapshot_to_bytes(api.load(case("asyncio_queue")))).decode()
    assert "asyncio/queues.py" in text
    found = api.diagnose(snapshot_from_bytes(text.replace("asyncio/queues.py", file).encode()))
    assert (found.cause.code if found.cause is not None else None) == code
    assert found.culprits == (1,)


@pytest.mark.parametrize(
    ("made", "own"),
    [
        ("self.waiting[uid] = loop.create_future()", True),
        ("self.register(uid)", True),
        ("asyncio.create_task(self.read(uid))", False),
        ("self.futures[uid]", False),
    ],
)
def test_a_future_that_the_program_made_itself(made: str, own: bool) -> None:
    text = (
        f"async def ask(self, uid):\n    future = {made}\n    return await future\n"
        "def register(self, uid):\n    self.open[uid] = asyncio.Future()\n    return self.open[uid]\n"
    )
    sources = Sources((SourceText("/job/client.py", "<module>", 1, text),))
    assert awaits_own_future(sources, Frame("/job/client.py", 3, "ask")) is own
