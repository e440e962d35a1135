"""Calls that the flight recorder writes down in several entries."""

from __future__ import annotations

from hangdoc.capture.read.coalesced import one_for_each_number, with_the_state_of_their_batch
from hangdoc.model.journal import Call, PointToPoint


def call(number: int, op: str, state: str = "scheduled", size: int = 4) -> Call:
    return Call("0", number, number, op, -1, ((size,),), ("Float",), completed=state == "completed", state=state)


def message(op: str, peer: int, batch: int, state: str = "scheduled") -> PointToPoint:
    return PointToPoint("0", batch, op, peer, 0, -1, completed=state == "completed", state=state, batch=batch)


def test_parts_are_one_call_with_the_state_of_the_entry_behind_them() -> None:
    entries = [call(1, "all_reduce", "completed"), call(2, "all_reduce"), call(2, "all_reduce", size=8)]
    found = one_for_each_number([*entries, call(2, "coalesced", "started")])
    assert [(c.sequence, c.op, c.state, c.completed) for c in found] == [
        (1, "all_reduce", "completed", True),
        (2, "all_reduce", "started", False),
    ]
    assert found[1].input_sizes[:2] == ((4,), (8,))


def test_an_uneven_all_gather_is_one_call_of_that_name() -> None:
    parts = [call(3, "broadcast", size=size) for size in (1, 2, 3)]
    (found,) = one_for_each_number([*parts, call(3, "ALLGATHER_coalesced", "completed")])
    assert (found.op, found.completed) == ("all_gather", True)


def test_without_the_entry_behind_them_the_call_is_under_way_unless_that_one_was_left_out() -> None:
    parts = [call(3, "broadcast"), call(3, "broadcast")]
    assert [c.completed for c in one_for_each_number(parts)] == [False]
    assert [c.completed for c in one_for_each_number(parts, {("0", 3)})] == [True]


def test_gloo_s_calls_stay_as_they_are() -> None:
    same = [call(1, "all_reduce", ""), call(1, "all_reduce", "")]
    assert one_for_each_number(same) == same


def test_messages_of_a_batch_have_its_state_and_a_single_one_its_own() -> None:
    entries = [message("send", 1, 1), message("recv", 1, 1), message("coalesced", -1, 1, "completed")]
    found = with_the_state_of_their_batch([*entries, message("send", 2, 2)])
    assert [(m.op, m.batch, m.completed) for m in found] == [("send", 1, True), ("recv", 1, True), ("send", 0, False)]


def test_a_batch_whose_last_entry_was_left_out_had_completed() -> None:
    batch = [message("send", 1, 1), message("recv", 1, 1)]
    assert not any(m.completed for m in with_the_state_of_their_batch(batch))
    assert all(m.completed for m in with_the_state_of_their_batch(batch, {1}))
