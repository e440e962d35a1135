"""The smallest repair of all channels against every edit of every journal, and of threads, devices and messages."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator, Sequence

import pytest

from hangdoc.diagnosis.calls.repair import EXCHANGE, GAP, Stage, Step, smallest_repairs

Journals = tuple[tuple[str, ...], ...]
"""Of each rank, the groups of its calls in their order; the last one may be under way."""


def healthy(dice: random.Random) -> tuple[dict[str, tuple[int, ...]], list[list[str]]]:
    """(members of two groups, what each rank calls) of a program that ends: 2 to 4 ranks, up to 6 calls."""
    ranks = dice.randint(2, 4)
    groups = {name: tuple(sorted(dice.sample(range(ranks), dice.randint(2, ranks)))) for name in "AB"}
    calls = [dice.choice("AB") for _ in range(dice.randint(2, 6))]
    return groups, [[name for name in calls if rank in groups[name]] for rank in range(ranks)]


def damaged(dice: random.Random, groups: dict[str, tuple[int, ...]], calls: list[list[str]]) -> int:
    """The rank that one edit was made of: a call less, one more, another, or two that changed places."""
    rank = dice.choice([rank for rank, own in enumerate(calls) if own])
    own, usable = calls[rank], [name for name, members in groups.items() if rank in members]
    at = dice.randrange(len(own))
    kind = dice.choice(("delete", "insert", "replace", "move"))
    if kind == "delete":
        del own[at]
    elif kind == "insert":
        own.insert(at, dice.choice(usable))
    elif kind == "replace":
        own[at] = dice.choice(usable)
    else:
        own.insert(dice.randrange(len(own)), own.pop(at))
    return rank


def played(groups: dict[str, tuple[int, ...]], calls: Sequence[Sequence[str]]) -> list[int]:
    """How many calls of each rank complete. Who has made all of its calls may make any other."""
    at = [0] * len(calls)
    while True:
        ahead = [own[n] if n < len(own) else "" for own, n in zip(calls, at, strict=True)]
        complete = next((g for g in ahead if g and all(ahead[m] in (g, "") for m in groups[g])), "")
        if not complete:
            return at
        for member in groups[complete]:
            at[member] += ahead[member] == complete


def journals(groups: dict[str, tuple[int, ...]], calls: Sequence[Sequence[str]]) -> Journals:
    """What the ranks' recorders show: the calls that completed, and the one that each waits in."""
    return tuple(tuple(own[: n + 1]) for own, n in zip(calls, played(groups, calls), strict=True))


def stage(groups: dict[str, tuple[int, ...]], seen: Journals) -> Stage:
    done = played(groups, seen)
    issued = {(rank, name): own.count(name) for rank, own in enumerate(seen) for name in groups}
    waiting = {rank: (Step(own[-1], own.count(own[-1])),) for rank, own in enumerate(seen) if done[rank] < len(own)}
    return Stage(groups, issued, waiting)


def variants(groups: dict[str, tuple[int, ...]], seen: Journals, rank: int) -> Iterator[tuple[int, Journals]]:
    """(cost, journals) for each single edit of the rank's journal."""
    own = seen[rank]
    usable = [name for name, members in groups.items() if rank in members]
    found = [(GAP, own[:at] + own[at + 1 :]) for at in range(len(own))]
    found += [(GAP, (*own[:at], name, *own[at:])) for at in range(len(own) + 1) for name in usable]
    found += [(EXCHANGE, (*own[:at], name, *own[at + 1 :])) for at in range(len(own)) for name in usable]
    found += [
        (GAP, (*rest[:to], own[at], *rest[to:]))
        for at in range(len(own))
        for rest in (own[:at] + own[at + 1 :],)
        for to in range(len(own))
    ]
    for cost, changed in found:
        yield cost, (*seen[:rank], changed, *seen[rank + 1 :])


def by_brute_force(groups: dict[str, tuple[int, ...]], seen: Journals) -> tuple[int, set[tuple[int, ...]]]:
    """(least cost, the sets of ranks that a repair of that cost changes), of all with one edit or two."""
    found: dict[int, set[tuple[int, ...]]] = {}
    once: list[tuple[int, tuple[int, ...], Journals]] = []
    for rank in range(len(seen)):
        once += [(cost, (rank,), after) for cost, after in variants(groups, seen, rank)]
    for cost, ranks, after in once:
        if goes_through(groups, after):
            found.setdefault(cost, set()).add(ranks)
    if not found:
        for (cost, ranks, after), rank in itertools.product(once, range(len(seen))):
            for more, last in variants(groups, after, rank):
                if cost + more <= min(found, default=2 * EXCHANGE) and goes_through(groups, last):
                    found.setdefault(cost + more, set()).add(tuple(sorted({*ranks, rank})))
    least = min(found)
    return least, found[least]


def goes_through(groups: dict[str, tuple[int, ...]], seen: Journals) -> bool:
    return played(groups, seen) == [len(own) for own in seen]


def hangs(count: int) -> Iterator[tuple[dict[str, tuple[int, ...]], Journals, int]]:
    """(groups, journals, damaged rank) of that many jobs that hang."""
    dice = random.Random(20261129)
    while count:
        groups, calls = healthy(dice)
        if not any(calls):
            continue
        rank = damaged(dice, groups, calls)
        seen = journals(groups, calls)
        if not goes_through(groups, seen):
            count -= 1
            yield groups, seen, rank


def test_no_repair_is_smaller_and_all_of_the_smallest_that_change_one_rank_are_found() -> None:
    for groups, seen, _ in hangs(300):
        found = smallest_repairs(stage(groups, seen))
        cost, culprits = by_brute_force(groups, seen)
        assert found, (groups, seen)
        assert {repair.cost for repair in found} == {cost}, (groups, seen)
        assert {each for each in culprits if len(each) == 1} == {r.culprits for r in found if len(r.culprits) == 1}


def test_the_damaged_rank_is_among_those_that_a_smallest_repair_changes() -> None:
    named = [rank in {r for repair in smallest_repairs(stage(groups, seen)) for r in repair.culprits}
             for groups, seen, rank in hangs(1000)]  # fmt: skip
    assert sum(named) >= 990


def test_renumbered_ranks_get_the_renumbered_repairs() -> None:
    for groups, seen, _ in hangs(50):
        last = len(seen) - 1
        mirrored = {name: tuple(sorted(last - rank for rank in members)) for name, members in groups.items()}
        there = {repair.culprits for repair in smallest_repairs(stage(mirrored, seen[::-1]))}
        here = {repair.culprits for repair in smallest_repairs(stage(groups, seen))}
        assert there == {tuple(sorted(last - rank for rank in culprits)) for culprits in here}


CROSSED = {(0, "A"): 5, (1, "A"): 4, (0, "B"): 4, (1, "B"): 5}


def test_two_groups_in_opposite_order_take_one_edit_of_either_rank() -> None:
    here = Stage({"A": (0, 1), "B": (0, 1)}, CROSSED, {0: (Step("A", 5),), 1: (Step("B", 5),)})
    assert {(r.edits[0].kind, r.culprits) for r in smallest_repairs(here)} == {
        ("insert", (0,)), ("delete", (0,)), ("insert", (1,)), ("delete", (1,)),
    }  # fmt: skip


def test_two_threads_have_no_order_among_each_other() -> None:
    waiting = {0: (Step("A", 5, lane=0),), 1: (Step("B", 5, lane=1),)}
    lanes = {(rank, name): lane for rank in (0, 1) for lane, name in enumerate("AB")}
    assert not smallest_repairs(Stage({"A": (0, 1), "B": (0, 1)}, CROSSED, waiting, lanes=lanes))


def test_on_a_device_a_later_call_is_moved() -> None:
    issued = {(rank, name): 5 for rank in (0, 1) for name in "AB"}
    waiting = {0: (Step("A", 5), Step("B", 5)), 1: (Step("B", 5), Step("A", 5))}
    here = Stage({"A": (0, 1), "B": (0, 1)}, issued, waiting, in_order=frozenset({0, 1}))
    assert {(r.edits[0].kind, r.culprits) for r in smallest_repairs(here)} >= {("move", (0,)), ("move", (1,))}


def test_on_a_device_calls_in_one_order_need_no_repair() -> None:
    issued = {(0, "A"): 5, (1, "A"): 5, (0, "B"): 5, (1, "B"): 4}
    waiting = {0: (Step("A", 5), Step("B", 5)), 1: (Step("A", 5),)}
    assert not smallest_repairs(Stage({"A": (0, 1), "B": (0, 1)}, issued, waiting, in_order=frozenset({0, 1})))


def test_an_exchange_is_one_edit() -> None:
    """1 waits to send to 2 and to receive from it, 0 and 2 are in the barrier after that."""
    there, back = ("p", 1, 2), ("p", 2, 1)
    ends = {"B": (0, 1, 2), there: (1, 2), back: (2, 1)}
    waiting = {0: (Step("B", 1),), 1: (Step(there, 1), Step(back, 1)), 2: (Step("B", 1),)}
    issued = {(0, "B"): 1, (2, "B"): 1, (1, there): 1, (1, back): 1}
    found = {(r.edits[0].kind, r.culprits, r.cost) for r in smallest_repairs(Stage(ends, issued, waiting))}
    assert found == {("insert", (1,), GAP), ("delete", (1,), GAP), ("insert", (2,), GAP)}


def test_a_message_from_anyone_needs_one_sender() -> None:
    ends = {"B": (0, 1, 2), "any": (0, 1, 2)}
    waiting = {0: (Step("any", 1),), 1: (Step("B", 1),), 2: (Step("B", 1),)}
    issued = {(0, "any"): 1, (1, "B"): 1, (2, "B"): 1}
    found = smallest_repairs(Stage(ends, issued, waiting, frozenset({"any"})))
    assert {r.culprits for r in found} == {(0,), (1,), (2,)}
    free = Stage(ends, issued, {0: waiting[0], 1: waiting[1]}, frozenset({"any"}))
    assert not smallest_repairs(free)


def test_an_ended_rank_left_its_call_out() -> None:
    waiting = {0: (Step("A", 2),), 1: (Step("A", 2),)}
    here = Stage({"A": (0, 1, 2)}, {(0, "A"): 2, (1, "A"): 2, (2, "A"): 1}, waiting, ended=frozenset({2}))
    (repair,) = smallest_repairs(here)
    assert repair.culprits == (2,)


@pytest.mark.parametrize("rows", [1, 512])
def test_thousands_of_ranks_are_folded(rows: int) -> None:
    """8,192 ranks in one group or in 512 of 16, then all in a barrier; rank 5 is in the barrier too early."""
    size = 8192
    wide = size // rows
    ends = {f"row{at}": tuple(range(at * wide, (at + 1) * wide)) for at in range(rows)} | {"all": tuple(range(size))}
    issued = {(rank, f"row{rank // wide}"): 7 - (rank == 5) for rank in range(size)} | {(5, "all"): 1}
    waiting = {rank: (Step(f"row{rank // wide}", 7) if rank < wide else Step("all", 1),) for rank in range(size)}
    waiting[5] = (Step("all", 1),)
    issued |= {(rank, "all"): 1 for rank in range(wide, size)}
    began = time.process_time()
    assert {repair.culprits for repair in smallest_repairs(Stage(ends, issued, waiting))} == {(5,)}
    assert time.process_time() - began < 2
