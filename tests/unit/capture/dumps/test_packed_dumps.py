"""Files that gzip packed: whole, in several members, cut, and such as cost much more than they weigh."""

from __future__ import annotations

import gzip
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.capture.dumps import worker, workers
from hangdoc.capture.dumps.read_folder import read_dump_folder


@given(st.lists(st.binary(max_size=100) | st.integers(0, 60_000).map(bytes), min_size=1, max_size=4))
@settings(max_examples=50, deadline=None)
def test_members_are_joined(parts: list[bytes]) -> None:
    assert worker._expanded(b"".join(map(gzip.compress, parts))) == b"".join(parts)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (gzip.compress(b"abc")[:-1], "too early"),
        (gzip.compress(bytes(range(256)) * 300)[:-9], "too early"),
        (gzip.compress(b"x") + b"junk", "header"),
        (gzip.compress(b"x")[:3], "too early"),
    ],
    ids=["one byte", "nine bytes", "followed", "almost nothing"],  # the files themselves hold the time
)
def test_what_is_cut_or_followed_by_something_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        worker._expanded(data)


def test_a_byte_more_than_a_dump_may_have_is_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "MOST_BYTES", 1000)
    for parts in ([bytes(1000)], [bytes(999), b"1"]):
        assert len(worker._expanded(b"".join(map(gzip.compress, parts)))) == 1000
    for parts in ([bytes(1001)], [bytes(1000), bytes(500)], [bytes(1 << 20)]):
        assert len(worker._expanded(b"".join(map(gzip.compress, parts)))) == 1001


def test_many_empty_members_cost_little() -> None:
    """Each left the rest of the file over, which was copied: 4 MiB took a minute."""
    data = gzip.compress(b"") * 200_000
    began = time.process_time()
    with pytest.raises(ValueError, match="more than 4096 members"):
        worker._expanded(data)
    assert time.process_time() - began < 1


def test_of_many_files_that_no_worker_survives_only_some_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "_MOST_LOST", 0.25)
    for rank in range(10):
        (tmp_path / f"trace_{rank}").write_bytes(b"\x80\x02Nr\xff\xff\xff\x7f.")
    why = [note.why for note in read_dump_folder(tmp_path).unavailable]
    assert "384 MiB of memory" in why[0]
    assert sum("too many files here take more memory or time" in one for one in why) > 0
