"""Where a rank breaks its own earlier order: by words, by random programs of rounds, and by what the recorder shows."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Mapping, Sequence

import pytest
from cases import case
from test_smallest_repairs import damaged, goes_through, journals

from hangdoc.diagnosis.calls.history import programs
from hangdoc.diagnosis.calls.own_order import (
    Order,
    Step,
    left_together,
    order_of_threads,
    own_breaks,
    own_order,
    own_orders,
)
from hangdoc.diagnosis.hypotheses.judge import hypotheses, suspected
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.codec import load_snapshot
from hangdoc.model.journal import Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.process import Frame, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

USER = "/home/me/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def order(words: Sequence[str]) -> Order:
    return own_order([Step(word, word) for word in words])


def places(words: str) -> list[int]:
    return [each.at for each in order(words.split()).breaks]


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("a b a b a b b", [6]),
        ("a b a b a b a", []),
        ("a b b a b b a b a", [8]),  # a call left out, within a run of equal ones
        ("s s s c s s s c s s s c s s c", [14]),  # a loop that ended a round earlier
        ("a b", []),
        ("a a a b a a a b a a a b", []),  # the first rounds: what comes again is the order
        ("a b a b a b e e e", [6]),  # from one part to another
    ],
)
def test_what_never_followed_breaks_the_order(words: str, broken: list[int]) -> None:
    assert places(words) == broken


def test_what_has_followed_keeps_it() -> None:
    assert order(["a", "b", "a", "b", "a", "b", "a"]).keeps
    assert not order(["a", "b", "a", "b", "a", "b", "b"]).keeps
    assert not order(["a"]).keeps


def test_each_thread_has_an_order_of_its_own() -> None:
    """Two threads whose calls come in between each other as it happens."""
    one, other = ([Step(word, word, thread) for word in words * 9] for thread, words in ((1, "ab"), (2, "cd")))
    dice, mixed = random.Random(1), []
    while one or other:
        mixed.append((one if one and (not other or dice.random() < 0.5) else other).pop(0))
    assert order_of_threads(mixed).keeps
    assert not order_of_threads(mixed).breaks
    assert own_order([Step(each.key, each.place) for each in mixed]).breaks
    twice = Step("c", "c", 2)
    assert [each.step for each in order_of_threads([*mixed, twice, twice]).breaks] == [twice]


def test_the_order_is_found_in_time_that_grows_with_the_calls() -> None:
    began = time.process_time()
    whole = order(["a", "b", "c"] * 20_000)
    assert whole.keeps
    assert not whole.breaks
    assert time.process_time() - began < 10  # 1 s; were it the square of the calls, hours


def test_what_more_than_half_of_the_ranks_break_is_the_programs_own_way() -> None:
    ended = order(["a", "b", "a", "b", "a", "b", "e"])
    stays = order(["a", "b", "a", "b", "a", "b", "a"])
    assert not own_breaks({0: ended, 1: ended, 2: stays})
    assert own_breaks({0: ended, 1: stays, 2: stays}).keys() == {0}
    assert own_breaks({0: ended, 1: stays}).keys() == {0}
    assert left_together({0: ended, 1: ended, 2: stays, 3: stays}) == [(0, 1)]


def rounds(dice: random.Random) -> Iterator[tuple[dict[str, tuple[int, ...]], Sequence[Sequence[str]], int]]:
    """(groups, journals, damaged rank) of hangs of a program that goes round eight times, damaged in one of the last
    three rounds."""
    while True:
        ranks = dice.randint(2, 4)
        groups = {name: tuple(sorted(dice.sample(range(ranks), dice.randint(2, ranks)))) for name in "AB"}
        once = [dice.choice("AB") for _ in range(dice.randint(2, 5))]
        calls = [[name for name in once if rank in groups[name]] for rank in range(ranks)]
        before = dice.randint(5, 7)
        rest = [list(own) for own in calls]
        if not any(calls):
            continue
        rank = damaged(dice, groups, rest)
        whole = [own * before + odd + own * (8 - before) for own, odd in zip(calls, rest, strict=True)]
        seen = journals(groups, whole)
        if not goes_through(groups, seen):
            yield groups, seen, rank


def test_of_a_program_that_repeats_itself_the_damaged_rank_alone_breaks_its_order() -> None:
    for groups, seen, rank in itertools.islice(rounds(random.Random(20261129)), 500):
        assert [each for each, own in enumerate(seen) if order(own).breaks] == [rank], (groups, seen)


def journal(words: str, members: tuple[int, ...] = (0, 1)) -> Journal:
    """'a' is a call of group 'a', the last one under way; all are made at one line."""
    names = words.split()
    stack = (Frame(C10D, 9, "all_reduce"), Frame(USER, 12, "train"))
    calls = tuple(
        Call(name, names[: at + 1].count(name), 0, "all_reduce", 0, ((4,),), ("Float",), created_ns=at, thread_id=7,
             completed=at + 1 < len(names))
        for at, name in enumerate(names)
    )  # fmt: skip
    groups = tuple(ProcessGroup(name, members, backend="gloo") for name in sorted(set(names)))
    return Journal("probe", groups, calls, stacks=(stack,))


def job(words: Mapping[int, str]) -> JobSnapshot:
    """A job of ranks that wait in their last calls."""
    members = tuple(sorted(words))
    looks = tuple(
        ProcessState(float(at), "S", threads=(Thread(9, "MainThread", "S", "futex_do_wait", "202", frames=frames),))
        for at in range(2)
        for frames in ((Frame(C10D, 9, "all_reduce"), Frame(USER, 12, "train")),)
    )
    ranks = tuple(
        RankSnapshot(
            rank,
            "n",
            "probe",
            len(words),
            process=Process(rank + 1, 1, "rank", looks=looks),
            journal=journal(each, members),
        )
        for rank, each in words.items()
    )
    return JobSnapshot(9.0, "watch", ranks=ranks, stalled_for=99.0, world_size=len(words))


@pytest.mark.parametrize(
    "words",
    [
        {0: "a c a c a c a c a", 1: "a c a c a c a c c"},
        {0: "a b c d a b c d a b c d a", 1: "a b c d a b c d a b c d d"},
        {0: "a c a c a c a c a", 1: "a c a c a c a c c", 2: "a c a c a c a c a"},
    ],
)
def test_two_groups_in_opposite_order_fall_on_who_broke_its_own_order(words: dict[int, str]) -> None:
    likeliest = hypotheses(prepared(job(words)))[0]
    assert likeliest.culprits == (1,)
    assert likeliest.share > 0.9
    mirrored = {len(words) - 1 - rank: each for rank, each in words.items()}
    assert hypotheses(prepared(job(dict(sorted(mirrored.items())))))[0].culprits == (len(words) - 2,)


def test_two_ranks_of_a_mesh_that_broke_their_order_together_are_found_together() -> None:
    found = suspected(prepared(load_snapshot(case("crossed8_watched"))))
    assert "broke its own order most often" in found[3, 6]
    assert "a smallest repair of all calls" in found[3, 6]


def test_the_scenario_of_crossed_groups_is_told_by_its_order() -> None:
    likeliest = hypotheses(prepared(load_snapshot(case("crossed_groups"))))[0]
    assert likeliest.culprits == (2,)
    assert likeliest.evidence >= {"broke its own order most often", "a smallest repair of all calls"}


def message(op: str, peer: int, at: int, *, batch: int = 0) -> PointToPoint:
    return PointToPoint("0", at, op, peer, at, -1, at, batch=batch)


def test_tags_that_count_and_the_order_within_a_batch_are_no_order() -> None:
    batches = [
        message(op, peer, 2 * at + second, batch=at + 1)
        for at in range(6)
        for second, (op, peer) in enumerate([("isend", 1), ("irecv", 2)][:: 1 if at < 5 else -1])
    ]
    ranks = tuple(
        RankSnapshot(r, "", "probe", journal=Journal("probe", point_to_points=tuple(p)))
        for r, p in enumerate([batches, [message("send", 0, at) for at in range(6)]])
    )
    orders = own_orders(programs(JobSnapshot(1.0, "watch", ranks=ranks)))
    assert all(order.keeps and not order.breaks for order in orders.values())


@pytest.mark.parametrize(("last", "is_known"), [("b", True), ("new", False)])
def test_a_break_is_known_by_the_group_and_not_by_the_place(last, is_known):
    rounds = [Step(word, word, on=word) for word in "ab" * 4]
    (broken,) = own_order([*rounds, Step(f"{last} elsewhere", last, on=last)]).breaks
    assert broken.is_newest
    assert broken.is_known is is_known
