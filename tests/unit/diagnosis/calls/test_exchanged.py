"""Calls that changed places, and numbers that do not mean the same on all ranks."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.calls.exchanged import is_swapped
from hangdoc.diagnosis.calls.history import RankProgram, programs
from hangdoc.diagnosis.calls.numbers import with_aligned_numbers
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot


def journal(words: str, *, first: int = 1, unsure: tuple[str, ...] = ()) -> Journal:
    """'A' is a call of operation 'a' that completed, 'A*' one under way."""
    calls = tuple(
        Call("0", number, number, word[0].lower(), -1, completed="*" not in word, state="scheduled")
        for number, word in enumerate(words.split(), first)
    )
    return Journal("dump", (ProcessGroup("0", (0, 1)),), calls, unsure_numbers=unsure)


def job(*journals: Journal) -> JobSnapshot:
    ranks = tuple(RankSnapshot(rank, "", "dump", journal=each) for rank, each in enumerate(journals))
    return JobSnapshot(1.0, "dump", ranks=ranks)


def read(*words: str) -> dict[int, RankProgram]:
    return programs(job(*map(journal, words)))


@pytest.mark.parametrize(
    ("mine", "theirs", "swapped"),
    [
        ("B* A* C*", "A* B* C*", True),
        ("B* A*", "A* B*", True),
        ("B* C* A*", "A* B* C*", False),
        ("B* C* A* B* C*", "A* B* C* A* B*", False),
        ("X* A* B*", "A* B* C*", False),
    ],
)
def test_what_follows_tells_a_swap_from_a_call_left_out(mine: str, theirs: str, swapped: bool) -> None:
    known = read(mine, theirs)
    assert is_swapped(known, known[0].tokens[0], known[1].tokens[0]) is swapped


def test_numbers_that_lost_batches_shift_are_those_of_the_call_that_completed_last() -> None:
    aligned = with_aligned_numbers(job(journal("A B*", first=30), journal("A B*", first=12, unsure=("0",))))
    journals = [rank.journal for rank in aligned.ranks if rank.journal is not None]
    assert [[call.sequence for call in each.calls] for each in journals] == [[30, 31], [30, 31]]


def test_numbers_that_are_sure_stay() -> None:
    same = job(journal("A B*", first=30), journal("A B*", first=12))
    assert with_aligned_numbers(same) is same
