"""Minimum repair of the sequences of one group."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.calls.alignment import Alignment, repairs, shifted
from hangdoc.diagnosis.calls.history import GroupHistory, histories, merged, programs
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

WORLD = "0"


def job(*ranks: str | None, groups: dict[str, tuple[int, ...]] | None = None) -> JobSnapshot:
    """A job in short: per rank its calls as 'op@line', '*' for one that has not completed, '/g' for another group,
    ':n' for a size. None: no journal."""
    groups = {WORLD: tuple(range(len(ranks))), **(groups or {})}
    return JobSnapshot(
        taken=100.0,
        mode="watch",
        ranks=tuple(
            RankSnapshot(rank, "node", "probe", journal=None if text is None else _journal(rank, text, 1, groups))
            for rank, text in enumerate(ranks)
        ),
    )


def _journal(rank: int, text: str, first: int, groups: dict[str, tuple[int, ...]]) -> Journal:
    calls: list[Call] = []
    numbers: dict[str, int] = {}
    stacks: dict[tuple[Frame, ...], int] = {}
    for word in text.split():
        done = not word.endswith("*")
        what, _, group = word.rstrip("*").partition("/")
        what, _, size = what.partition(":")
        op, _, line = what.partition("@")
        group = group or WORLD
        numbers[group] = numbers.get(group, first - 1) + 1
        stack = stacks.setdefault((Frame("/home/me/train.py", int(line), "train"),), len(stacks))
        calls.append(
            Call(group, numbers[group], numbers[group], op, stack, ((int(size or 1),),), completed=done,
                 created_ns=1_000_000 * (len(calls) + 1) + rank)
        )  # fmt: skip
    known = tuple(ProcessGroup(name, members) for name, members in groups.items() if rank in members)
    return Journal("probe", known, tuple(calls), stacks=tuple(stacks))


def with_rings(*ranks: tuple[list[str], int]) -> JobSnapshot:
    """A job whose ranks remember these calls, from these numbers on."""
    groups = {WORLD: tuple(range(len(ranks)))}
    return JobSnapshot(
        taken=100.0,
        mode="watch",
        ranks=tuple(
            RankSnapshot(rank, "node", "probe", journal=_journal(rank, " ".join(calls), first, groups))
            for rank, (calls, first) in enumerate(ranks)
        ),
    )


def history_of(snapshot: JobSnapshot, group: str = WORLD) -> GroupHistory:
    return next(h for h in histories(programs(snapshot)) if h.key[0] == group)


def repaired(*ranks: str | None, ended: tuple[int, ...] = ()) -> list[Alignment]:
    return repairs(history_of(job(*ranks)), frozenset(ended))


def told(alignments: list[Alignment]) -> list[list[tuple[str, tuple[int, ...], str]]]:
    """The edits of each alignment: kind, ranks, 'op@line'."""
    return [
        [(gap.kind, gap.ranks, f"{gap.token.op}@{gap.token.frame.line if gap.token.frame else '?'}") for gap in a.gaps]
        for a in alignments
    ]


LOOP = "forward@10 backward@11 " * 5


@pytest.mark.parametrize(
    "ranks",
    [
        (LOOP, LOOP, LOOP),
        ("", "", ""),
        (LOOP + "barrier@20*", LOOP, LOOP),  # the others are behind
        (LOOP, "", LOOP + "barrier@20*"),  # one has not begun
        ("broadcast@1 step@3*", "broadcast@2 step@3*", "broadcast@2"),  # rooted, once
        ("broadcast@1 " * 5 + "step@3*", "broadcast@2 " * 5, "broadcast@2 " * 5),
        ("broadcast@1 broadcast@4 " * 4, "broadcast@2 " * 8, "broadcast@2 " * 8),  # two roots' lines, one of the rest
        ("step@1 step@1 step@1 step@2 after@3*", "step@1 step@2 step@2 step@2 after@3*"),  # Join's shadows
        ("gather@1:8 step@2*", "gather@1:0 step@2*", "gather@1:0"),  # sizes differ by nature
        ("barrier@1*", "barrier@2*", "barrier@2*"),  # all have entered: no site proves anything
    ],
)
def test_healthy_and_merely_behind(ranks):
    assert repaired(*ranks) == []


def test_one_call_too_many():
    found = repaired(LOOP + "barrier@20*", LOOP + "forward@10*", LOOP + "forward@10*")
    assert [a.culprits for a in found] == [(0,)]
    assert found[0].cost == 1


def test_one_call_missing():
    found = repaired("a@1 b@2 c@3*", "a@1 c@3*", "a@1 b@2 c@3*")
    assert told(found) == [[("insert", (1,), "b@2")]]


def test_the_extra_call_that_met_another_is_found_where_it_was_made():
    usual = "barrier@1 barrier@2 barrier@3 " * 2 + "step@4*"
    found = repaired("barrier@1 barrier@9 barrier@2 barrier@3 barrier@1 barrier@2 barrier@3*", usual, usual)
    assert told(found) == [[("delete", (0,), "barrier@9")]]
    assert found[0].first is not None
    assert found[0].first.token.sequence == 2


def test_gaps_stand_as_late_as_possible():
    """Five rounds against four: any round may be the missing one; they agreed until the last."""
    found = repaired("step@1 " * 5 + "after@2*", "step@1 " * 5 + "step@1*", "step@1 " * 5 + "step@1*")
    assert found[0].first is not None
    assert found[0].first.token.sequence == 6


def test_two_ranks_are_a_tie():
    found = repaired("a@1 b@2*", "a@1 c@3*")
    assert sorted(a.culprits for a in found) == [(0,), (1,)]


def test_halves_are_a_tie_whatever_else_differs():
    """A benign pair on one rank must not decide who of two halves is to blame."""
    found = repaired("send@1 b@2*", "send@5 b@2*", "send@5 c@3*", "send@5 c@3*")
    assert sorted(a.culprits for a in found) == [(0, 1), (2, 3)]


def test_the_fewer_ranks_change():
    found = repaired(*["a@1 b@2*"] * 5, *["a@1 c@3*"] * 2)
    assert [a.culprits for a in found] == [(5, 6)]


def test_three_behaviours_two_culprits():
    found = repaired(*["a@1 b@2*"] * 4, "a@1 c@3*", "a@1 d@4*")
    assert [a.culprits for a in found] == [(4, 5)]


def test_an_ended_rank_will_issue_no_more():
    assert repaired("a@1 b@2*", "a@1", "a@1 b@2*") == []
    found = repaired("a@1 b@2*", "a@1", "a@1 b@2*", ended=(1,))
    assert [a.culprits for a in found] == [(1,)]
    assert repaired("a@1", "a@1", ended=(0, 1)) == []


def test_stuck_calls_of_other_sites_do_not_spread_the_blame():
    """The root's line differs from the others'. That a third rank is elsewhere is why they wait, not that."""
    found = repaired("a@1 broadcast@2*", "a@1 broadcast@3*", "a@1 broadcast@3*", "a@1 step@9*")
    assert [a.culprits for a in found] == [(3,)]


def test_an_argument_is_no_divergence():
    assert repaired("all_reduce@1:4*", "all_reduce@1:4*", "all_reduce@1:5*") == []


def test_rings_that_begin_at_different_numbers():
    """What only one rank remembers says nothing."""
    calls = [f"step@{1 + i % 3}" for i in range(60)]
    history = history_of(with_rings((calls, 1), (calls[40:], 41), (calls, 1)))
    assert history.first == 41
    assert repairs(history) == []


def test_a_rank_that_fell_behind_the_rings_is_merely_behind():
    history = history_of(with_rings((["step@1"] * 10, 81), (["step@1"] * 10, 81), (["step@1", "other@7*"], 1)))
    assert repairs(history) == []
    assert history.issued(2) == 2


def test_blind_ranks_are_left_out():
    history = history_of(job("a@1 b@2*", None, "a@1 b@2*", "a@1 c@3*"))
    assert history.blind == (1,)
    assert [a.culprits for a in repairs(history)] == [(3,)]


def test_groups_of_one_name_and_other_members_are_two_groups():
    first = RankSnapshot(0, "n", "p", journal=_journal(0, "a@1/1*", 1, {"1": (0, 1)}))
    second = RankSnapshot(2, "n", "p", journal=_journal(2, "b@2/1*", 1, {"1": (2, 3)}))
    found = histories(programs(JobSnapshot(taken=1.0, mode="watch", ranks=(first, second))))
    assert sorted(h.members for h in found) == [(0, 1), (2, 3)]


def test_equal_ranks_share_their_tokens():
    history = history_of(job(*[LOOP] * 4, LOOP + "barrier@9*"))
    assert history.tokens[0] is history.tokens[3]
    assert history.tokens[0] is not history.tokens[4]


def test_order_across_groups():
    members = {"1": (0, 1, 2), "2": (0, 1, 2)}
    snapshot = job("a@1/1*", "a@1/1*", "b@2/2*", groups=members)
    found = histories(programs(snapshot))
    both = merged([h for h in found if h.key[0] in ("1", "2")], programs(snapshot))
    assert both is not None
    assert [a.culprits for a in repairs(both)] == [(2,)]


def test_long_sequences_with_little_in_common_end_in_time():
    found = repaired(" ".join(f"x@{i % 7}" for i in range(600)), " ".join(f"y@{i % 11 + 20}" for i in range(600)))
    assert found


def test_a_call_in_place_of_another_is_one_divergence_though_both_sides_went_on() -> None:
    """As asynchronous calls do. Both edits name both calls, so that neither looks like a call left out."""
    (alignment,) = repaired("a@1 b@2* d@4", "a@1 c@3* d@4", "a@1 b@2* d@4")
    assert [(gap.kind, gap.mine and gap.mine.op, gap.theirs and gap.theirs.op) for gap in alignment.gaps] == [
        ("delete", "c", "b"),
        ("insert", "c", "b"),
    ]
    assert alignment.culprits == (1,)


def test_an_extra_call_that_met_the_others_next_one():
    history = history_of(job("a@1 barrier@9 barrier@2", "a@1 barrier@2 barrier@2 barrier@2*"))
    assert repairs(history) == []
    found = shifted(history)
    assert found is not None
    assert told([found]) == [[("delete", (0,), "barrier@9")]]


@pytest.mark.parametrize(
    "ranks",
    [
        ("a@1 barrier@9 barrier@2", "a@1 barrier@8 barrier@2*"),  # two arms of one condition
        ("a@1 barrier@9", "a@1 barrier@2 barrier@2*"),  # nothing follows it
        ("a@1 barrier@9 barrier@2", "a@1 barrier@2 barrier@2 barrier@9*"),  # the others make it as well
        ("a@1 barrier@2", "a@1 barrier@2 barrier@2*"),
    ],
)
def test_unlike_sites_alone_are_no_extra_call(ranks):
    assert shifted(history_of(job(*ranks))) is None
