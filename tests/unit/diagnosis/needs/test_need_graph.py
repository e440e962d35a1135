"""The wait-for graph with AND and OR, against what playing it step by step gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hangdoc.diagnosis.needs.graph import NeedGraph
from hangdoc.diagnosis.needs.need import Need, NeedKind, Waiter

RANKS = range(6)
WAITS = st.dictionaries(
    st.sampled_from(RANKS),
    st.tuples(st.lists(st.sampled_from(RANKS), min_size=1, max_size=3, unique=True), st.booleans()),
    max_size=6,
)


def graph(waits: dict[int, tuple[list[int], bool]], gone: frozenset[int] = frozenset()) -> NeedGraph:
    shared: dict[tuple[int, ...], tuple[int, ...]] = {}
    needs = tuple(
        Need(NeedKind.JOIN, "", Waiter(rank), shared.setdefault(tuple(sorted(on)), tuple(sorted(on))), either)
        for rank, (on, either) in waits.items()
    )
    return NeedGraph(needs, frozenset(RANKS) - gone)


def played(waits: dict[int, tuple[list[int], bool]], gone: frozenset[int], freed: frozenset[int]) -> frozenset[int]:
    """The waiters that never go on, one round after the other."""
    waiting = {rank: wait for rank, wait in waits.items() if rank not in freed}
    free = {rank for rank in RANKS if rank not in waiting and rank not in gone}
    for _ in RANKS:
        for rank, (on, either) in waiting.items():
            enough = any if either else all
            if rank not in gone and enough(other in free for other in on):
                free.add(rank)
    return frozenset(waiting) - free


@given(WAITS, st.frozensets(st.sampled_from(RANKS), max_size=2), st.frozensets(st.sampled_from(RANKS), max_size=3))
def test_stuck_are_those_that_no_round_frees(
    waits: dict[int, tuple[list[int], bool]], gone: frozenset[int], freed: frozenset[int]
) -> None:
    found = graph(waits, gone)
    assert found.stuck == played(waits, gone, frozenset())
    assert found.dissolves(freed) == (not played(waits, gone, freed))
    assert found.left(freed) == played(waits, gone - freed, freed)


def test_one_of_several_is_enough_where_any_may_give_it() -> None:
    circle = {0: ([1, 2], True), 1: ([0], False), 2: ([0], False)}
    assert graph(circle).stuck == {0, 1, 2}
    assert graph(circle).dissolves((1,))
    assert not graph({**circle, 0: ([1, 2], False)}).dissolves((1,))
    assert graph({0: ([1, 2], True), 1: ([0], False)}).stuck == frozenset()  # 2 goes on


def test_roots_are_awaited_and_wait_for_nobody() -> None:
    found = graph({0: ([1], False), 2: ([0, 1], True), 3: ([4, 0], False)})
    assert found.roots == {1, 4}
    assert (found.on(3), found.on(4)) == ((0, 4), ())
