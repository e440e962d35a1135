"""Ranks without a majority to be compared with: their own rhythm, their siblings and the ranks beside them decide."""

from __future__ import annotations

from pathlib import Path

import pytest
from device_dumps import folder

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis

DATA = {"dp0": [0, 1], "dp1": [2, 3]}
SHORT, LONG = "all_reduce/4@40", "all_reduce/8@40"


def said(found: Diagnosis) -> tuple[tuple[int, ...], str | None, str]:
    return found.culprits, found.cause.code if found.cause else None, found.confidence


def in_group(name: str, words: str) -> str:
    return " ".join(f"{name}:{word}" for word in words.split())


# --- two ranks that give different arguments -------------------------------------------------------------------------


def test_of_two_ranks_the_one_that_leaves_the_order_of_its_calls_made_another_call(tmp_path: Path) -> None:
    """Short, long, short, long: rank 1 left the last long one out, and both sizes are usual."""
    before = f"{SHORT} {LONG} " * 2
    ranks = {
        0: in_group("dp0", f"{before} {SHORT} {LONG}*"),
        1: in_group("dp0", f"{before} {SHORT} {SHORT}* {LONG}*"),
        2: in_group("dp1", f"{before} {SHORT} {LONG}"),
        3: in_group("dp1", f"{before} {SHORT} {LONG}"),
    }
    found = api.diagnose(folder(tmp_path, ranks, groups=DATA, after=700.0, mesh=True))
    assert said(found) == ((1,), "HD101", "likely")
    assert "Rank 1 left the order that these calls always had" in found.why


def test_two_sizes_in_no_order_accuse_neither_rank(tmp_path: Path) -> None:
    before = f"{SHORT} {LONG} {LONG} {SHORT} {SHORT} {LONG} {SHORT} {LONG} {LONG} {SHORT}"
    found = api.diagnose(folder(tmp_path, {0: f"{before} {LONG}*", 1: f"{before} {SHORT}*"}, after=700.0))
    assert said(found)[1:] == ("HD104", "possible") and found.alternatives


def test_a_size_that_the_line_never_had_is_a_wrong_size(tmp_path: Path) -> None:
    before = "all_reduce/2@50 all_reduce/4@40 " * 3
    ranks = dict.fromkeys(range(3), f"{before} all_reduce/2@50 all_reduce/4@40*")
    ranks[2] = f"{before} all_reduce/2@50 all_reduce/2@40*"
    assert said(api.diagnose(folder(tmp_path, ranks, after=700.0)))[:2] == ((2,), "HD104")


# --- the ranks beside two sides --------------------------------------------------------------------------------------


@pytest.mark.parametrize("odd", [0, 1])
def test_of_two_ranks_of_a_small_group_the_one_that_the_others_went_with_is_right(tmp_path: Path, odd: int) -> None:
    """Without stacks nothing tells a round from what follows it: but all others are in the call of the odd one's
    partner."""
    pairs = {"ep0": [0, 1], "ep1": [2, 3], "ep2": [4, 5]}
    of = {rank: name for name, members in pairs.items() for rank in members}
    rounds = {rank: f"{of[rank]}:all_to_all {of[rank]}:all_to_all all_reduce " * 3 for rank in range(6)}
    ranks = {rank: f"{rounds[rank]} all_gather{'*' if rank < 2 else '+'}" for rank in range(6)}
    ranks[odd] = f"{rounds[odd]} ep0:all_to_all*"
    found = api.diagnose(folder(tmp_path, ranks, groups=pairs, after=700.0, frames=False, mesh=True))
    assert found.culprits == (odd,) and found.confidence != "certain"


# --- the same stage of other pipelines -------------------------------------------------------------------------------

PIPES = {"pp0": [0, 2], "pp1": [1, 3]}


def pipelines(first: str, last: str, words: dict[int, str]) -> dict[int, str]:
    """Two pipelines of two stages: one whole round of each, then what is given."""
    stages = {0: ("pp0", 2, first), 1: ("pp1", 3, first), 2: ("pp0", 0, last), 3: ("pp1", 1, last)}
    return {
        rank: " ".join(f"{pipe}:{word.format(peer)}" for word in f"{whole} {words[rank]}".split())
        for rank, (pipe, peer, whole) in stages.items()
    }


def test_a_message_left_out_in_the_second_round_is_seen_against_the_other_pipeline(tmp_path: Path) -> None:
    first = "send>{}@60 send>{}@60 recv<{}@61 recv<{}@61"
    last = "recv<{}@70 recv<{}@70 send>{}@71 send>{}@71"
    words = {
        0: "send>{}@60 send>{}@60 recv<{}@61 recv<{}@61",
        1: "send>{}@60 recv<{}@61* recv<{}@61*",
        2: last,
        3: "recv<{}@70 recv<{}@70* send>{}@71* send>{}@71*",
    }
    found = api.diagnose(folder(tmp_path, pipelines(first, last, words), groups=PIPES, after=700.0, mesh=True))
    assert said(found) == ((1,), "HD202", "likely")
    assert "Rank 1 left out the send to rank 3 at train.py:60" in found.verdict
    assert "Rank 0 has its place in another group" in found.why


def test_two_ranks_that_each_left_a_call_out_are_both_named(tmp_path: Path) -> None:
    """Six pipelines of two stages, the first stages in groups of two: ranks 1 and 3 leave the same call out."""
    groups = {f"pp{n}": [n, n + 6] for n in range(6)} | {f"tp{n}": [2 * n, 2 * n + 1] for n in range(3)}
    ranks = {}
    for rank in range(6):
        tp, message = f"tp{rank // 2}:all_reduce", f"pp{rank}:send>{rank + 6}@60"
        step = f"{tp}@50 {tp}@51 {message}"
        held = f"{tp}@50 {tp}@51* {message}* all_reduce@80*"
        odd = f"{tp}@51 {message} all_reduce@80*"
        recv = f"pp{rank}:recv<{rank}@70"
        ranks[rank] = f"{step} {step} {odd if rank in (1, 3) else step if rank > 3 else held}"
        ranks[rank] += " all_reduce@80*" if rank > 3 else ""
        ranks[rank + 6] = f"{recv} {recv} {recv}{'*' if rank in (0, 2) else ''} all_reduce@80*"
    found = api.diagnose(folder(tmp_path, ranks, groups=groups, after=700.0, mesh=True))
    assert found.culprits == (1, 3) and found.confidence == "likely"
    assert "Independently of that, rank 3 left out the all_reduce at train.py:50" in found.verdict


# --- a call that may follow the loop ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("behind", "sure"), [("", "likely"), (" all_reduce@30* all_gather@31*", "certain")])
def test_a_last_call_that_no_round_had_may_follow_the_loop(tmp_path: Path, behind: str, sure: str) -> None:
    """Rank 1's barrier is one too many where it goes on with the round behind it; else its loop may have ended."""
    before = "all_reduce@30 all_gather@31 " * 3
    ranks = dict.fromkeys(range(4), f"{before} all_reduce@30* all_gather@31*")
    ranks[1] = f"{before} barrier@90*{behind}"
    found = api.diagnose(folder(tmp_path, ranks, after=700.0))
    assert found.culprits == (1,) and (found.cause.code if found.cause else None) in ("HD101", "HD102")
    assert found.confidence == sure
