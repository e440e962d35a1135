"""The wait-for graph: every rank it waits for must move before a rank can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.calls.history import END, GroupHistory, Token
from hangdoc.diagnosis.state.wait_graph import Graph, build
from hangdoc.model.diagnosis import Activity, Wait
from hangdoc.model.journal import Journal, ProcessGroup
from hangdoc.model.process import Frame, OpenFile, Process
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

USER = "/home/me/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def at(kind: str, rank: int = 0, line: int = 10, **extra: object) -> Activity:
    """A rank that does that at that line."""
    text = str(extra.pop("text", kind))
    return Activity(rank, "node", 1000 + rank, kind, text, where=Frame(USER, line, "train"), **extra)  # type: ignore[arg-type]


def collective(group: str, number: int, members: tuple[int, ...], line: int = 10, op: str = "barrier") -> Activity:
    """A rank that waits in that call of that group."""
    return at("in-collective", line=line, text=op, op=op, group=group, members=members, sequence=number)


JOINING = at("store-wait", stack=(Frame(C10D, 9, "_store_based_barrier"), Frame(USER, 10, "train")))


def calls(group: str, members: tuple[int, ...], blind: tuple[int, ...] = (), **ranks: str) -> GroupHistory:
    """What the members issued: ``r0="barrier barrier*"``; '*' for a call that waits, ':n' for its size."""
    history = GroupHistory((group, members), members, f"group {group}", blind=blind)
    for name, text in ranks.items():
        rank = int(name[1:])
        history.tokens[rank] = [
            _token(rank, (group, members), number, word) for number, word in enumerate(text.split(), 1)
        ]
    return history


def _token(rank: int, key: tuple[str, tuple[int, ...]], number: int, word: str) -> Token:
    op, _, size = word.rstrip("*").partition(":")
    sizes = ((int(size),),) if size else None
    return Token(rank, key, number, op, ((USER, 10, "train"),), sizes, (), word.endswith("*"), number, number, ())


def graph(activities: list[Activity], *histories: GroupHistory, job: JobSnapshot | None = None) -> Graph:
    """The graph of ranks 0, 1, …"""
    numbered = {rank: replace(activity, rank=rank) for rank, activity in enumerate(activities)}
    ranks = tuple(RankSnapshot(rank, "node", "probe") for rank in numbered)
    return build(job or JobSnapshot(taken=1.0, mode="watch", ranks=ranks), numbered, list(histories), {}, {})


def waits(found: Graph) -> dict[int, tuple[int, ...]]:
    return {wait.waiter: wait.on for wait in found.waits}


def test_waiting_for_a_rank_that_computes():
    found = graph([collective("0", 1, (0, 1, 2)), at("computing"), collective("0", 1, (0, 1, 2))],
                  calls("0", (0, 1, 2), r0="barrier*", r2="barrier*"))  # fmt: skip
    assert waits(found) == {0: (1,), 2: (1,)}
    assert (found.stuck, found.roots) == (frozenset(), {1})


@pytest.mark.parametrize("kind", ["exited", "zombie", "absent", "stopped"])
def test_waiting_for_a_rank_that_will_not_move(kind):
    found = graph([collective("0", 1, (0, 1)), at(kind)], calls("0", (0, 1), r0="barrier*"))
    assert (found.stuck, found.roots) == ({0}, {1})


def test_a_circle_through_two_groups():
    both = (0, 1)
    found = graph([collective("1", 1, both), collective("2", 1, both)],
                  calls("1", both, r0="barrier*"), calls("2", both, r1="barrier*"))  # fmt: skip
    assert waits(found) == {0: (1,), 1: (0,)}
    assert (found.stuck, found.roots) == ({0, 1}, frozenset())
    assert found.on(0) == {1}
    assert found.on(7) == frozenset()


def test_all_that_a_rank_waits_for_must_move():
    """Rank 2 computes and will come; rank 1 waits for rank 0, which therefore never goes on."""
    found = graph([collective("0", 1, (0, 1, 2)), at("recv", peer=0), at("computing")],
                  calls("0", (0, 1, 2), r0="barrier*"))  # fmt: skip
    assert waits(found) == {0: (1, 2), 1: (0,)}
    assert found.stuck == {0, 1}
    assert found.roots == {2}


def test_a_chain_to_a_rank_that_moves_is_free():
    found = graph([at("recv", peer=1), at("recv", peer=2), at("send", peer=3), at("sleeping")])
    assert waits(found) == {0: (1,), 1: (2,), 2: (3,)}
    assert (found.stuck, found.roots) == (frozenset(), {3})


def test_calls_that_cannot_match_hold_each_other():
    members = (0, 1, 2)
    history = calls("0", members, r0="barrier barrier*", r1="barrier all_reduce*", r2="barrier barrier*")
    found = graph([collective("0", 2, members)] * 3, history)
    assert waits(found) == {0: (1,), 1: (0, 2), 2: (1,)}
    assert found.stuck == {0, 1, 2}
    sizes = graph([collective("0", 1, (0, 1))] * 2, calls("0", (0, 1), r0="all_reduce:4*", r1="all_reduce:5*"))
    assert sizes.stuck == {0, 1}


def test_everybody_in_one_call_waits_for_nobody():
    found = graph([collective("0", 1, (0, 1))] * 2, calls("0", (0, 1), r0="barrier*", r1="barrier*"))
    assert found.waits == ()
    assert found.stuck == frozenset()


def test_sizes_that_nobody_compares_hold_nobody():
    found = graph([collective("0", 1, (0, 1))] * 2, calls("0", (0, 1), r0="gather*", r1="gather*"))
    assert found.waits == ()


def test_a_call_that_completed_on_one_side_is_no_mismatch():
    found = graph([collective("0", 1, (0, 1)), at("computing")], calls("0", (0, 1), r0="broadcast*", r1="barrier"))
    assert found.waits == ()


def test_ranks_in_one_call_share_what_they_wait_for():
    members = tuple(range(50))
    tokens = {f"r{rank}": "barrier*" for rank in range(49)}
    found = graph([collective("0", 1, members)] * 49 + [at("computing")], calls("0", members, **tokens))
    assert len({id(wait.on) for wait in found.waits}) == 1
    assert found.stuck == frozenset()


def test_without_a_journal_a_rank_at_the_same_line_has_arrived():
    members = (0, 1, 2)
    history = calls("0", members, blind=(1,), r0="barrier*")
    same = graph([collective("0", 1, members), at("in-collective", line=10, text="barrier"), at("computing")], history)
    assert waits(same) == {0: (2,), 1: (2,)}
    other = graph([collective("0", 1, members), at("in-collective", line=99, text="barrier"), at("computing")], history)
    assert waits(other) == {0: (2, 1), 1: (2,)}
    assert other.stuck == frozenset()


def test_without_any_journal_all_wait_for_those_outside():
    found = graph([at("in-collective", line=1), at("in-collective", line=2), at("exited"), at("computing")])
    assert waits(found) == {0: (3,), 1: (3,)}, "the living first"
    found = graph([at("in-collective", line=1), at("in-collective", line=1), at("exited")])
    assert waits(found) == {0: (2,), 1: (2,)}
    found = graph([at("in-collective", line=1), at("in-collective", line=2)])
    assert found.stuck == {0, 1}


def test_waiting_on_the_store_for_those_that_have_not_joined():
    found = graph([JOINING, JOINING, at("absent"), at("computing")])
    assert waits(found) == {0: (2, 3), 1: (2, 3)}
    assert found.stuck == {0, 1}


def test_a_key_of_the_users_own_is_no_rendezvous():
    """Who will set it, nobody can tell."""
    found = graph([at("store-wait", stack=(Frame(USER, 10, "train"),)), at("computing")])
    assert found.waits == ()


def test_a_rank_that_has_made_the_group_is_past_the_store():
    made = Journal("probe", (ProcessGroup("0", (0, 1)), ProcessGroup("1", (0, 1))))
    ranks = (
        RankSnapshot(0, "node", "probe", journal=Journal("probe", (ProcessGroup("0", (0, 1)),))),
        RankSnapshot(1, "node", "probe", journal=made),
    )
    job = JobSnapshot(taken=1.0, mode="watch", ranks=ranks)
    assert graph([JOINING, at("computing")], job=job).waits == ()


def test_locks_and_pipes_lead_to_the_rank_that_holds_the_other_end():
    """Also where the holder is a child of that rank's process."""
    held = OpenFile(5, "pipe:[7]", (2001,), "read")
    ranks = (
        RankSnapshot(0, "node", "probe", process=Process(1000, 1, "rank", blocking_files=(held,))),
        RankSnapshot(1, "node", "probe", process=Process(1001, 1, "rank", children=(Process(2001, 1001, "child"),))),
    )
    job = JobSnapshot(taken=1.0, mode="watch", ranks=ranks)
    found = graph([at("pipe"), collective("0", 1, (0, 1))], calls("0", (0, 1), r1="barrier*"), job=job)
    assert waits(found) == {0: (1,), 1: (0,)}
    assert found.stuck == {0, 1}


def test_who_would_free_the_others():
    found = graph([at("recv", peer=1), at("recv", peer=2), at("recv", peer=1), at("send", peer=0)])
    assert found.stuck == {0, 1, 2, 3}
    assert found.dissolves({1})
    assert found.dissolves({2})
    assert not found.dissolves({0})
    assert not found.dissolves(set())


def test_peers_that_are_no_ranks_of_the_job():
    assert graph([at("recv", peer=9), at("send", peer=None)]).waits == ()


def test_a_group_that_nobody_knows():
    found = graph([collective("7", 3, (0, 1)), at("computing")])
    assert waits(found) == {0: (1,)}
    assert all(isinstance(wait, Wait) for wait in found.waits)
    assert END not in {wait.why for wait in found.waits}


def test_ranks_that_wait_for_the_same_share_one_set_of_them():
    """Of thousands of ranks, each would otherwise copy thousands."""
    found = graph([at("in-collective"), at("in-collective"), at("computing"), at("computing", line=12)])
    assert found.on(0) is found.on(1)
    assert found.on(0) == {2, 3}
