"""Messages that have met, and whose partner never came."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hangdoc.diagnosis.calls.message_pairs import alone, common_rank, left_without
from hangdoc.model.journal import Journal, PointToPoint

RANKS = 4
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from(["send", "recv"]), st.integers(0, RANKS - 1), st.integers(0, RANKS - 1), st.integers(0, 1)
    ).filter(lambda message: message[1] != message[2]),
    max_size=24,
)


def journals(messages: list[tuple[str, int, int, int]]) -> dict[int, Journal]:
    """(operation, rank, peer, tag) in the order of issue; those without a partner are pending."""
    of: dict[int, list[PointToPoint]] = {rank: [] for rank in range(RANKS)}
    for number, (op, rank, peer, tag) in enumerate(messages):
        of[rank].append(PointToPoint("0", number, op, peer, tag, -1, created_ns=number, completed=False))
    return {rank: Journal("probe", point_to_points=tuple(own)) for rank, own in of.items()}


@given(MESSAGES)
def test_as_many_are_left_as_have_no_counterpart(messages: list[tuple[str, int, int, int]]) -> None:
    sends = Counter((rank, peer, tag) for op, rank, peer, tag in messages if op == "send")
    recvs = Counter((peer, rank, tag) for op, rank, peer, tag in messages if op == "recv")
    expected = sum(((sends - recvs) + (recvs - sends)).values())
    assert len(alone(journals(messages))) == expected


@given(MESSAGES, st.randoms(use_true_random=False))
def test_the_order_between_ranks_does_not_matter(messages: list[tuple[str, int, int, int]], random: object) -> None:
    by_rank = sorted(messages, key=lambda message: message[1])  # each rank's own order is kept
    left = Counter((e.rank, e.message.op, e.message.peer, e.message.tag) for e in alone(journals(messages)))
    assert left == Counter((e.rank, e.message.op, e.message.peer, e.message.tag) for e in alone(journals(by_rank)))


def test_what_a_full_ring_forgot_is_not_missed() -> None:
    """15 sends of which 7 are kept, and 16 recvs: one recv is left, and not nine."""

    def of(op: str, rank: int, numbers: range) -> tuple[PointToPoint, ...]:
        return tuple(PointToPoint("0", n, op, 1 - rank, 0, -1, created_ns=n, completed=n < 16) for n in numbers)

    sends, recvs = of("send", 0, range(1, 16)), of("recv", 1, range(1, 17))
    whole = {0: Journal("probe", point_to_points=sends), 1: Journal("probe", point_to_points=recvs)}
    known = whole | {0: Journal("probe", point_to_points=sends[-7:], forgotten=8)}
    assert [(each.rank, each.message.op_id) for each in alone(whole)] == [(1, 16)]
    assert [(each.rank, each.message.op_id) for each in alone(known)] == [(1, 16)]


def pairs(*messages: tuple[str, int, int, int]) -> set[tuple[int, int]]:
    return set(left_without(alone(journals(list(messages)))))


def test_a_stage_that_left_a_batch_out_is_missed_on_both_sides() -> None:
    found = pairs(("send", 0, 1, 0), ("send", 1, 2, 0), ("recv", 3, 2, 0))
    assert found == {(1, 2), (2, 3)}, "rank 1 may still receive what rank 0 sends"
    assert common_rank(found) == {2}


def test_other_tags_do_not_fit() -> None:
    found = pairs(("send", 0, 1, 4), ("recv", 0, 1, 3), ("send", 1, 0, 1), ("recv", 3, 1, 2), ("send", 1, 3, 4))
    assert found == {(0, 1), (1, 3)}
    assert common_rank(found) == {1}


def test_one_pair_alone_tells_nobody() -> None:
    assert common_rank(pairs(("recv", 2, 1, 0))) == frozenset()


def test_who_receives_from_any_source_is_not_judged() -> None:
    known = journals([("send", 1, 0, 0)])
    known[0] = Journal("probe", point_to_points=(PointToPoint("0", 0, "recv_anysource", -1, 0, -1),))
    assert alone(known) == []
