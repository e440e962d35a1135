"""What a task of an event loop awaits gives the cause; a loop that is only idle has none."""

from __future__ import annotations

import gzip

import pytest
from cases import case

from hangdoc import api
from hangdoc.model.codec import snapshot_from_bytes, snapshot_to_bytes


@pytest.mark.parametrize(
    ("file", "code"),
    [
        ("asyncio/queues.py", "HD505"),
        ("asyncio/streams.py", "HD507"),
        ("asyncio/subprocess.py", "HD509"),
        ("asyncio/nothing.py", None),
    ],
)
def test_the_cause_is_that_of_what_is_awaited(file: str, code: str | None) -> None:
    text = gzip.decompress(snapshot_to_bytes(api.load(case("asyncio_queue")))).decode()
    assert "asyncio/queues.py" in text
    found = api.diagnose(snapshot_from_bytes(text.replace("asyncio/queues.py", file).encode()))
    assert (found.cause.code if found.cause is not None else None) == code
    assert found.culprits == (1,)
