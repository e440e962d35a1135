"""When a condition came out as nowhere before: only what whole counts prove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from hangdoc.diagnosis.execution.executions import Executions
from hangdoc.diagnosis.execution.moments import apart, moment
from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import BranchCounts, Taken
from hangdoc.model.diagnosis import BranchMoment
from hangdoc.model.process import Process
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
TEXT = """\
for batch in loader:
    if loss > limit:
        stop()
    if not ready:
        stop()
    if found is not None:
        stop()
    while busy:
        rest()
    if low < loss < high or ready:
        stop()
    if mode == "…":
        stop()
    try:
        run()
    finally:
        if broken:
            stop()
"""
SOURCE = (SourceText(FILE, "<module>", 1, TEXT),)
SOURCES = Sources(SOURCE)
# line → (column, end line, end column) of the test there, as CPython 3.12 records it
PLACES = {
    1: (0, 18, 18),
    2: (7, 2, 19),
    4: (11, 4, 16),
    6: (7, 6, 24),
    8: (10, 8, 14),
    10: (7, 10, 24),
    12: (7, 12, 21),  # before its text was taken out
    17: (11, 17, 17),
}


def test(line: int, values: str, counts: tuple[int, int], last: str = "", *, whole: bool = True) -> BranchCounts:
    column, end_line, end = PLACES[line]
    many = values[0] * counts[0] if not counts[1] else values[1] * counts[1]
    last = last or many[:16]
    return BranchCounts(FILE, "<module>", line, column, end_line, end, values, counts, last, whole)


test.__test__ = False  # type: ignore[attr-defined]


def process(*tests: BranchCounts, taken: str = "") -> Process:
    """``taken``: '0T 1F': the first test came out true, then the second false."""
    order = tuple(Taken(int(each[0]), each[1], 1 + at) for at, each in enumerate(taken.split()))
    return Process(1, 0, "python", branches=tests, taken=order)


def told(line: int, *processes: Process | None, culprits: tuple[int, ...] = (1,)) -> BranchMoment | None:
    return moment(table(processes), Executions(SOURCES, {}), (FILE, line, ""), range(len(processes)), culprits)


def told_apart(line: int, *processes: Process | None, culprits: tuple[int, ...] = (0,)) -> str:
    return apart(table(processes), Executions(SOURCES, {}), (FILE, line, ""), range(len(processes)), culprits)


def table(processes: Sequence[Process | None]) -> Table:
    seen = {rank: each for rank, each in enumerate(processes) if each is not None}
    return Table(SOURCES, Program(SOURCE), seen, {})


ONCE = test(2, "TF", (1, 411), "F" * 15 + "T")
NEVER = test(2, "TF", (0, 412))


def test_the_first_time_on_one_rank_alone() -> None:
    assert told(2, process(NEVER), process(ONCE), process(NEVER)) == BranchMoment((1,), "True", 411, alone=True)


def test_on_two_ranks_in_the_same_round() -> None:
    at = told(2, process(NEVER), process(ONCE), process(ONCE), culprits=(1, 2))
    assert at == BranchMoment((1, 2), "True", 411, alone=True)
    assert told(2, process(NEVER), process(ONCE), process(ONCE)) is None, "of both sides: it did not part them"


def test_on_the_side_that_is_not_to_blame() -> None:
    assert told(2, process(ONCE), process(NEVER)) == BranchMoment((0,), "True", 411, alone=True)


@pytest.mark.parametrize("other", [None, process(), process(replace(NEVER, whole=False))])
def test_alone_is_said_only_where_all_others_were_counted(other: Process | None) -> None:
    assert told(2, other, process(ONCE)) == BranchMoment((1,), "True", 411, alone=False)


@pytest.mark.parametrize(
    "own",
    [
        replace(ONCE, whole=False),  # it was not told of all
        replace(ONCE, counts=(2, 410)),  # it had come out so before
        replace(ONCE, last="F" * 14 + "TF"),  # it went on since
        replace(ONCE, last="FT"),  # its ring has lost some
        replace(ONCE, last=""),
        test(2, "TF", (1, 0), "T"),  # nothing before
        replace(ONCE, counts=(1, -5)),
        replace(ONCE, values="XY"),
        replace(ONCE, column=9),  # another test of that line
        replace(ONCE, file="/home/me/other.py"),
    ],
)
def test_nothing_is_said_that_is_not_proved(own: BranchCounts) -> None:
    assert told(2, process(NEVER), process(own)) is None


def test_a_rank_that_had_it_before_does_not_part_them() -> None:
    assert told(2, process(test(2, "TF", (3, 409), "F")), process(ONCE)) is None
    assert told(2, process(test(2, "TF", (3, 409), "F", whole=False)), process(ONCE)) is None


def test_ranks_that_are_all_alike_say_nothing() -> None:
    assert told(2, process(ONCE), process(ONCE), culprits=()) is None


def test_two_tests_at_one_place_are_not_told_apart() -> None:
    assert told(2, process(NEVER), process(ONCE, ONCE)) is None


def test_of_a_loop_over_items_its_end_is_told() -> None:
    ended, goes_on = test(1, "TF", (5, 1), "TTTTTF"), test(1, "TF", (6, 0))
    assert told(1, process(goes_on), process(ended)) == BranchMoment((1,), "ended", 5, alone=True)
    assert told(1, process(test(1, "TF", (0, 6))), process(test(1, "TF", (1, 5), "FFFFFT"))) is None


def test_of_a_negated_test_the_whole_condition_is_told() -> None:
    ended, never = test(4, "FT", (1, 2), "TTF"), test(4, "FT", (0, 3))
    assert told(4, process(never), process(ended)) == BranchMoment((1,), "True", 2, alone=True)


def test_of_a_comparison_with_none_it_is_the_condition_that_is_told() -> None:
    found, never = test(6, "VN", (1, 2), "NNV"), test(6, "VN", (0, 3))
    assert told(6, process(never), process(found)) == BranchMoment((1,), "True", 2, alone=True)


def test_a_while_tests_at_both_its_ends() -> None:
    """What came last is in the main thread's order alone."""
    enters, again = test(8, "TF", (2, 0)), test(8, "TF", (8, 0))
    left = test(8, "TF", (7, 1), "T" * 7 + "F")
    others = process(enters, again, taken="0T 1T")
    assert told(8, others, process(enters, left, taken="1T 1F")) == BranchMoment((1,), "False", 9, alone=True)
    assert told(8, others, process(enters, left, taken="1F 0T")) is None, "it was entered anew"
    assert told(8, others, process(enters, left)) is None
    assert told(8, others, process(left, taken="0F")) is None, "one of the two is missing"


@pytest.mark.parametrize("line", [3, 10, 17, 99])
def test_what_several_jumps_decide_or_no_condition_is_says_nothing(line: int) -> None:
    place = PLACES.get(line, (7, line, 9))
    own, other = (
        BranchCounts(FILE, "<module>", line, *place, "TF", counts, last, whole=True)
        for counts, last in (((1, 2), "FFT"), ((0, 3), "FFF"))
    )
    assert told(line, process(other), process(own)) is None


def test_a_text_that_was_taken_out_of_the_source_moves_only_the_end() -> None:
    own, other = test(12, "TF", (1, 2), "FFT"), test(12, "TF", (0, 3))
    assert told(12, process(other), process(own)) == BranchMoment((1,), "True", 2, alone=True)


def test_a_test_tells_the_sides_apart_that_each_has_only_ever_decided_in_its_own_way() -> None:
    def ranks(*counts: tuple[int, int], whole: bool = True) -> list[Process]:
        return [process(test(2, "FT", each, whole=whole)) for each in counts]

    assert told_apart(2, *ranks((0, 1), (4, 0), (2, 0))) == "True"
    assert told_apart(2, *ranks((0, 1), (0, 2), (4, 0)), culprits=(0, 1)) == "True"
    assert not told_apart(2, *ranks((0, 1), (4, 0), (2, 0)), culprits=(0, 1))
    assert not told_apart(2, *ranks((0, 1), (4, 1), (2, 0)))
    assert not told_apart(2, *ranks((0, 1), (0, 4), (0, 2)))
    assert not told_apart(2, *ranks((0, 1), (4, 0), whole=False))
    assert not told_apart(2, *ranks((0, 1), (4, 0)), None)  # nobody knows how it came out there
    assert not told_apart(4, *ranks((0, 1), (4, 0)))
    assert not told_apart(2, *ranks((0, 1)))


def test_a_loop_tells_the_sides_apart_that_one_ended_while_the_others_were_in_more_of_its_rounds() -> None:
    def ranks(*counts: tuple[int, int]) -> list[Process]:
        return [process(test(1, "TF", each)) for each in counts]

    assert told_apart(1, *ranks((18, 1), (19, 0), (20, 0))) == "ended"
    assert told_apart(1, *ranks((36, 2), (38, 1))) == "ended"
    assert not told_apart(1, *ranks((19, 1), (19, 0)))  # the other has not come to its end yet
    assert not told_apart(1, *ranks((18, 1), (19, 1)))


def test_a_loop_that_the_others_are_in_no_later_round_of_has_no_moment() -> None:
    early, late = process(test(1, "TF", (18, 1), "T" * 15 + "F")), process(test(1, "TF", (19, 0)))
    assert told(1, late, early) == BranchMoment((1,), "ended", 18, alone=True)
    assert told(1, process(test(1, "TF", (18, 0))), early) is None
