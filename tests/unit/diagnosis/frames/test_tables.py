"""The tables of names, and the small mechanisms that read stacks and sizes by them."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.calls.periods import period
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.native_frames import native_wait
from hangdoc.diagnosis.frames.stacks import every_frame, fork, same_line
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack
from hangdoc.model.tables import table


@pytest.mark.parametrize("of", ["names", "native", "kernel"])
def test_every_entry_says_where_it_comes_from(of: str) -> None:
    for name, entry in table("hangdoc.diagnosis.frames", of).items():
        for each in entry if isinstance(entry, list) else [entry]:
            assert each["source"], name
        if isinstance(entry, dict):
            assert ("names" in entry) != ("pattern" in entry), name
            assert names(name, of=of) if "names" in entry else pattern(name, of=of)


def test_the_first_native_wait_that_matches_counts() -> None:
    stack = (Frame("", 0, "__poll"), Frame("", 0, "c10d::TCPStore::get(std::string)"))
    assert native_wait(stack) == (ActivityKind.STORE_WAIT, "store.get()")


def stack(*frames: tuple[str, int]) -> Stack:
    """A stack of user frames, written outermost first."""
    return tuple(Frame("/job/train.py", line, function) for function, line in reversed(frames))


def test_a_fork_is_where_two_ways_differ_first() -> None:
    found = fork(stack(("main", 3), ("fit", 7), ("save", 1)), stack(("main", 3), ("fit", 9)))
    assert found.common == 1
    assert found.within_function == found.frames
    assert [frame.line for frame in found.frames or ()] == [7, 9]


def test_a_fork_into_two_functions_is_within_none() -> None:
    found = fork(stack(("main", 3), ("fit", 7)), stack(("main", 3), ("save", 7)))
    assert found.frames is not None
    assert found.within_function is None
    assert fork(found.mine[::-1], found.theirs[::-1], same=same_line).frames is None


def test_a_way_that_ends_does_not_differ() -> None:
    found = fork(stack(("main", 3)), stack(("main", 3), ("fit", 7)))
    assert (found.common, found.frames) == (1, None)
    assert fork((), ()).frames is None


def test_library_frames_count_only_where_asked() -> None:
    inner = Frame("/env/lib/python3.11/site-packages/x.py", 1, "x")
    mine, theirs = (inner, *stack(("main", 3))), (Frame(inner.file, 2, "x"), *stack(("main", 3)))
    assert fork(mine, theirs).frames is None
    assert fork(mine, theirs, frames_of=every_frame).frames == (mine[0], theirs[0])


@pytest.mark.parametrize(
    ("values", "expected"), [("abbabba", 3), ("aaaa", 1), ("ab", 0), ("abac", 0), ("", 0), ("abab", 2)]
)
def test_sizes_that_come_round_again_have_a_period(values: str, expected: int) -> None:
    assert period(values) == expected
