from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.sidecar.logs import folding
from hangdoc.sidecar.logs.folding import Folding, Said
from hangdoc.sidecar.logs.lines import Line

LIMIT = 0.2


def line(text: str, *, error: bool = False) -> Line:
    return Line(text, text, error)


def stream(said: str, ranks: int = 3) -> list[str]:
    """What comes of '0a 1a 2b', rank and line each, all heard at once: ['[0,1] a', '[2] b']."""
    fold = Folding(LIMIT)
    fold.expect(frozenset(range(ranks)))
    for word in said.split():
        fold.add(int(word[0]), line(word[1:]), 0.0)
    return ["".join(map(str, each.ranks)) + each.text for each in [*fold.take(0.0), *fold.flush()]]


@pytest.mark.parametrize(
    ("heard", "shown"),
    [
        ("0a 1a 2a", ["012a"]),
        ("0a 0b 1a 1b 2a 2b", ["012a", "012b"]),
        ("0x 0a 1a 2a", ["0x", "012a"]),
        ("1a 2a 0x 0a", ["0x", "012a"]),
        ("1a 2a 0x 0y 0a 0z", ["0x", "0y", "012a", "0z"]),
        ("0a 0a 1a 1a 2a 2a", ["012a", "012a"]),
        ("0a 0a 1a", ["01a", "0a"]),
        ("0a 0b 1b 1a", ["0a", "01b", "1a"]),
        ("0a 0b 1b 1x 1a 2a 2b", ["02a", "012b", "1x", "1a"]),
        ("1a 2a 0b 0a 1b", ["0b", "012a", "1b"]),
    ],
)
def test_examples(heard: str, shown: list[str]) -> None:
    assert stream(heard) == shown


def test_what_all_have_said_waits_for_nobody() -> None:
    fold = Folding(LIMIT)
    fold.expect(frozenset({0, 1}))
    fold.add(0, line("a"), 0.0)
    assert fold.take(0.0) == []
    assert fold.due() == pytest.approx(LIMIT)
    fold.add(1, line("a"), 0.1)
    assert fold.take(0.1) == [Said((0, 1), "a")]
    assert fold.due() is None


def test_errors_are_each_ranks_own() -> None:
    fold = Folding(LIMIT)
    for rank in range(3):
        fold.add(rank, line("boom", error=True), 0.0)
    assert fold.take(0.0) == [Said((rank,), "boom", error=True) for rank in range(3)]


def test_the_command_is_no_rank() -> None:
    fold = Folding(LIMIT)
    fold.expect(frozenset({0}))
    for rank in (None, 0, None):
        fold.add(rank, line("a"), 0.0)
    assert fold.take(0.0) == [Said((), "a"), Said((0,), "a"), Said((), "a")]


def test_only_so_many_wait() -> None:
    fold = Folding(LIMIT)
    fold.expect(frozenset({0, 1}))
    for number in range(folding.MOST_WAITING + 10):
        fold.add(0, line(str(number)), 0.0)
    early = [said.text for said in fold.take(0.0)]
    assert early == [str(number) for number in range(len(early))]
    assert len(early) >= 10
    assert len(fold.flush()) == folding.MOST_WAITING + 10 - len(early)


heard = st.lists(
    st.tuples(
        st.floats(0.0, 0.15),  # seconds since the one before
        st.integers(-1, 3),  # the rank; -1 is the command
        st.sampled_from("aaaabbbccd"),
        st.booleans(),
        st.integers(0, 9),  # 0: take something in between
    ),
    max_size=60,
)


@settings(max_examples=400, deadline=None)
@given(heard=heard, few=st.booleans())
def test_nothing_is_lost_or_moved_or_late(heard: list[tuple[float, int, str, bool, int]], few: bool) -> None:
    """Against the plainest oracle: one queue for each rank, of which every line of the stream takes the first."""
    fold = Folding(LIMIT)
    fold.expect(frozenset({0, 1} if few else range(4)))
    oracle: dict[int, deque[tuple[str, bool, float]]] = {rank: deque() for rank in range(-1, 4)}

    def check(said: list[Said], now: float) -> None:
        for each in said:
            assert list(each.ranks) == sorted(set(each.ranks))
            assert len(each.ranks) <= 1 or not each.error
            for rank in each.ranks or (-1,):
                text, error, at = oracle[rank].popleft()
                assert (text, error) == (each.text, each.error)
                assert now - at <= LIMIT + 1e-9

    now = 0.0
    for pause, rank, text, letter_is_error, take in heard:
        then = now + pause
        while (due := fold.due()) is not None and due <= then:
            now = max(now, due)
            check(fold.take(now), now)
        now = then
        error = letter_is_error and text == "d"
        fold.add(rank if rank >= 0 else None, line(text, error=error), now)
        oracle[rank].append((text, error, now))
        if take == 0:
            check(fold.take(now), now)
    while (due := fold.due()) is not None:
        now = max(now, due)
        check(fold.take(now), now)
    assert not any(oracle.values())


@settings(max_examples=200, deadline=None)
@given(
    lines=st.lists(st.sampled_from("abc"), max_size=20),
    extra=st.lists(st.tuples(st.integers(0, 20), st.text("xyz", min_size=2, max_size=2)), max_size=5),
    order=st.randoms(use_true_random=False),
)
def test_what_all_say_stands_once(lines: list[str], extra: list[tuple[int, str]], order: object) -> None:
    """Whoever is heard first: what four ranks say in the same order is said once, also if rank 0 says more."""
    own = list(lines)
    for place, text in extra:
        own.insert(min(place, len(own)), text)
    queues = {rank: deque(own if rank == 0 else lines) for rank in range(4)}
    fold = Folding(LIMIT)
    fold.expect(frozenset(range(4)))
    said: list[Said] = []
    while any(queues.values()):
        rank = order.choice([rank for rank, queue in queues.items() if queue])  # type: ignore[attr-defined]
        fold.add(rank, line(queues[rank].popleft()), 0.0)
    said = [*fold.take(0.0), *fold.flush()]
    # Rank 0 may be heard to say the same letter for the first or the second time: only without repeats is it unique.
    if len(set(lines)) == len(lines) and len(set(own)) == len(own):
        assert [each.text for each in said if len(each.ranks) == 4] == lines
        assert [each.text for each in said] == own
    assert sum(len(each.ranks) for each in said) == 3 * len(lines) + len(own)


def test_a_flood_of_crossing_lines_is_sorted_in_bounded_time() -> None:
    fold = Folding(LIMIT)
    fold.expect(frozenset(range(3)))
    count = 0
    for number in range(5_000):
        rank = number % 2
        fold.add(rank, line(str((number * 7919) % 50)), number / 1e6)
        count += sum(len(each.ranks) for each in fold.take(number / 1e6))
    assert count + sum(len(each.ranks) for each in fold.flush()) == 5_000
