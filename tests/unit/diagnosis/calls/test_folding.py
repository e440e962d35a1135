"""Ranks whose calls are equal have one recording."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.calls.folding import record
from hangdoc.model.journal import Call, Journal, ProcessGroup

CALLS = tuple(Call("0", number, number, "all_reduce", 0) for number in range(1, 4))


def test_ranks_that_share_a_tuple_of_calls_share_a_recording_and_others_by_what_the_calls_are() -> None:
    journal = Journal("probe", (ProcessGroup("0", (0, 1, 2, 3)),), CALLS, stacks=((),))
    equal = replace(journal, calls=tuple(replace(call, created_ns=7) for call in CALLS))
    other = replace(journal, calls=(*CALLS[:2], replace(CALLS[2], op="barrier")))
    found = record(enumerate([journal, replace(journal, forgotten=1), equal, other, replace(journal, source="dump")]))
    assert found[0] is found[1] is found[2]
    assert found[3] is not found[0]
    assert found[4] is not None
    assert [found[rank].issued_at for rank in range(5)] == [{0: None}] * 5
