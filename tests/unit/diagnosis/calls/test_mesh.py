"""Ranks of a mesh: what they have in common is compared once, and says what it would say rank by rank."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.calls.alignment import all_repairs
from hangdoc.diagnosis.calls.history import RankProgram, histories, programs
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

ROWS, STEPS = 8, 100
STACKS = ((Frame("/job/train.py", 3, "train"),), (Frame("/job/train.py", 4, "train"),))


def job(*, stray: int = -1, other: str = "row", source: str = "dump") -> JobSnapshot:
    """Pairs of ranks with a group each, called by one number; every other pair calls its group ``other``."""
    ranks = []
    for rank in range(2 * ROWS):
        row = rank // 2
        name, members = (f"{row}", (2 * row, 2 * row + 1))
        if other != "row" and row % 2:
            name = f"{row - 1}"  # torch numbers groups: one name may be of two
        calls = [
            Call(name, n, n, "all_reduce", n % 2, ((n % 2 + 1,),), ("Float",), n * 1000, n < STEPS, state="completed")
            for n in range(1, STEPS + 1)
        ]
        if name != f"{row}":
            calls.append(replace(calls[-1], sequence=STEPS + 1))
        if rank == stray:
            calls[-5] = replace(calls[-5], op="barrier")
        description = other if row % 2 else "row"
        journal = Journal(source, (ProcessGroup(name, members, description),), tuple(calls), stacks=STACKS)
        ranks.append(RankSnapshot(rank, "", "dump", journal=journal))
    return JobSnapshot(1.0, "dump", world_size=2 * ROWS, ranks=tuple(ranks))


def test_calls_that_are_made_together_are_those_that_are_made_one_by_one() -> None:
    found = programs(job(stray=5))
    for history in histories(found):
        for rank in history.members:
            one_by_one = RankProgram(rank, found[rank].journal, found[rank].recording, found[rank]._sites)
            expected = [replace(one_by_one.token(place), rank=history.tokens[rank][0].rank) for place in range(STEPS)]
            assert list(history.tokens[rank]) == expected


def test_calls_of_groups_that_agree_are_never_made(monkeypatch: pytest.MonkeyPatch) -> None:
    found = programs(job(stray=5, source="dump"))
    agreeing = [history for history in histories(found) if 5 not in history.members]
    monkeypatch.setattr(RankProgram, "token", lambda *_: pytest.fail("a call was made"))
    monkeypatch.setattr(RankProgram, "tokens_at", lambda *_: pytest.fail("calls were made"))
    assert agreeing and not any(all_repairs(history) for history in agreeing)
    assert len({id(program.recording.course) for program in found.values()}) == 2
