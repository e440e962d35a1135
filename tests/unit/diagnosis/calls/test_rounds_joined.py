"""Ranks in one round of a library's loop make one call, where another rank has left that loop."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.stack_calls import from_stacks, is_between_librarys_calls, rounds_joined
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE, LIBRARY = "/job/train.py", "/venv/lib/python3.11/site-packages/somelib/trainer.py"
FIT = SourceText(
    LIBRARY, "fit", 1, "def fit(self):\n    for batch in self.batches:\n        self.step(batch)\n    self.end()"
)
SOURCES = Sources((FIT,))


def activity(rank: int, op: str, line: int, *, user_line: int = 5) -> Activity:
    stack = (Frame(LIBRARY, 30 + len(op), op), Frame(LIBRARY, line, "fit"), Frame(FILE, user_line, "main"))
    return Activity(rank, "node", rank + 10, ActivityKind.IN_COLLECTIVE, op, where=stack[-1], stack=stack, op=op)


FORWARD, BACKWARD, AFTER = ("broadcast", 3), ("all_reduce", 3), ("all_gather", 4)


def ops(*calls: tuple[str, int], sources: Sources = SOURCES) -> list[str]:
    (history,) = from_stacks({rank: activity(rank, *call) for rank, call in enumerate(calls)})
    joined = rounds_joined(history, sources)
    return [joined.tokens[rank][0].op for rank in range(len(calls))]


def test_one_rank_has_left_the_loop():
    found = ops(FORWARD, AFTER, BACKWARD, FORWARD)
    assert found == ["broadcast", "all_gather", "broadcast", "broadcast"]


@pytest.mark.parametrize(
    "calls",
    [
        (FORWARD, BACKWARD, FORWARD),  # within the loop, that is the whole difference
        (FORWARD, BACKWARD, ("scatter", 3)),  # nobody has left it
        (AFTER, ("barrier", 4), FORWARD),  # and here nobody else is in it
    ],
)
def test_nothing_is_joined(calls: tuple[tuple[str, int], ...]):
    assert ops(*calls) == [op for op, _ in calls]


def test_without_the_librarys_source_nothing_is_joined():
    calls = FORWARD, AFTER, BACKWARD
    assert ops(*calls, sources=Sources(())) == [op for op, _ in calls]
    of_the_user = Sources((replace(FIT, file=FILE),))
    assert ops(*calls, sources=of_the_user) == [op for op, _ in calls]


def ops_by_line(*calls: tuple[str, int]) -> list[str]:
    (history,) = from_stacks({rank: activity(rank, op, 3, user_line=line) for rank, (op, line) in enumerate(calls)})
    joined = rounds_joined(history, SOURCES)
    return [joined.tokens[rank][0].op for rank in range(len(calls))]


def test_one_line_of_the_users_is_one_call_where_a_rank_is_at_another():
    found = ops_by_line(("broadcast", 5), ("broadcast", 5), ("scatter", 5), ("barrier", 9))
    assert found == ["broadcast", "broadcast", "broadcast", "barrier"]


def test_the_users_own_calls_of_one_line_stay_apart():
    """Not run alike by a library: `barrier() if main else all_reduce(x)` is the user's choice."""
    torch = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    found = {}
    for rank, (op, line) in enumerate((("broadcast", 5), ("scatter", 5), ("barrier", 9))):
        stack = (Frame(torch, 30 + rank, op), Frame(FILE, line, "main"))
        found[rank] = replace(activity(rank, op, 3), stack=stack, where=stack[-1])
    (history,) = from_stacks(found)
    assert rounds_joined(history, SOURCES) == history


C10D = Frame("/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", 9, "all_reduce")


def gap_between(mine: tuple[Frame, ...], theirs: tuple[Frame, ...]) -> Gap:
    found = [replace(activity(rank, "all_reduce", 3), stack=stack) for rank, stack in enumerate((mine, theirs))]
    (history,) = from_stacks(dict(enumerate(found)))
    here, there = (history.tokens[rank][0] for rank in (0, 1))
    return Gap("delete", (0,), here, here, there)


@pytest.mark.parametrize(("line", "function", "expected"), [(5, "main", True), (6, "main", True), (6, "save", False)])
def test_calls_that_a_library_makes_by_itself_below_one_function(line: int, function: str, expected: bool):
    inside = (C10D, Frame(LIBRARY, 3, "fit"))
    caller = Frame(FILE, 1, "<module>")
    mine, theirs = (*inside, Frame(FILE, line, function), caller), (*inside, Frame(FILE, 5, "main"), caller)
    assert is_between_librarys_calls(gap_between(mine, theirs)) is expected


def test_the_users_own_call_is_no_librarys():
    mine, theirs = (C10D, Frame(FILE, 6, "main")), (C10D, Frame(LIBRARY, 3, "fit"), Frame(FILE, 5, "main"))
    assert not is_between_librarys_calls(gap_between(mine, theirs))


def test_a_call_that_was_left_out_is_missing_there():
    inside = (C10D, Frame(LIBRARY, 3, "fit"))
    gap = gap_between((*inside, Frame(FILE, 9, "main")), (*inside, Frame(FILE, 5, "main")))
    assert not is_between_librarys_calls(replace(gap, kind="insert"))
