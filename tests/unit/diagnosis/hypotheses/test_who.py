"""Who is to blame, by evidence that adds up and by proofs that stand above it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulator import Issued, Op, Program, Run, break_program, run, snapshot, write_program

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.hypotheses.judge import hypotheses, standing, suspected
from hangdoc.diagnosis.hypotheses.proofs import PROOFS, STANDS_STILL, UNEQUAL
from hangdoc.diagnosis.hypotheses.suspects import Ranks, Suspects, classes
from hangdoc.diagnosis.needs.needs import Needs
from hangdoc.diagnosis.verdict import prepared
from hangdoc.diagnosis.weighing import shares, weights_of
from hangdoc.model.journal import ProcessGroup
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame, Local, OpenFile, Process, ProcessExit, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

DATA = Path(__file__).parents[3] / "data"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
IN_CALL = (Frame(C10D, 3000, "all_reduce"), Frame("/job/train.py", 44, "train"))
ELSEWHERE = (Frame("/job/train.py", 71, "save"), Frame("/job/train.py", 40, "train"))
KINDS = [*weights_of("hangdoc.diagnosis.hypotheses"), *sorted(PROOFS)]


WORLD = ("0", (0, 1, 2, 3))
CALLS = (Op(1, "all_reduce", WORLD, (20,)), Op(2, "all_reduce", WORLD, (21,)))
PLAIN = Program(4, ((WORLD,),), dict.fromkeys(range(4), CALLS), {})


def job(*stacks: Stack | None, state: Mapping[int, str] | None = None) -> JobSnapshot:
    """Ranks with these stacks, each without a journal; None: a rank that a signal has ended."""
    ranks = []
    for rank, frames in enumerate(stacks):
        letter = (state or {}).get(rank, "S")
        look = ProcessState(1.0, letter, threads=(Thread(100 + rank, "MainThread", letter, frames=frames or ()),))
        process = Process(100 + rank, 1, "rank", looks=(look,) if frames is not None else ())
        end = ProcessExit(1.0, None, 9) if frames is None else None
        ranks.append(RankSnapshot(rank, "host", "environment", len(stacks), process=process, exit=end))
    return JobSnapshot(2.0, "attach", world_size=len(stacks), ranks=tuple(ranks))


def likeliest(of: JobSnapshot) -> Ranks:
    return hypotheses(prepared(of))[0].culprits


def simulated(seed: int, *, messages: bool) -> Run:
    """A hang of a random program with one fault."""
    rng = random.Random(seed)
    while True:
        program = write_program(rng, sizes=(3, 6), point_to_point=messages)
        fault = break_program(rng, program, ("skip", "extra", "swap", "replace", "argument", "exit"))
        found = run(rng, program, fault.calls) if fault is not None else None
        if found is not None and "blocked" in found.state.values():
            return found


def renumbered(found: Run, new: Mapping[int, int]) -> Run:
    """The same run where rank r has number new[r]."""

    def renamed(each: Issued) -> Issued:
        name, members = each.op.group
        group = (name, tuple(sorted(new[rank] for rank in members)))
        peer = new[each.op.peer] if each.op.peer >= 0 else -1
        return replace(each, op=replace(each.op, group=group, peer=peer))

    families = tuple(
        tuple((name, tuple(sorted(new[rank] for rank in members))) for name, members in family)
        for family in found.program.families
    )
    issued = {new[rank]: [renamed(each) for each in calls] for rank, calls in found.issued.items()}
    state = {new[rank]: each for rank, each in found.state.items()}
    return Run(replace(found.program, families=families), issued, state)


def judged(of: JobSnapshot, back: Mapping[int, int]) -> dict[Ranks, float]:
    """Suspects → share, with the numbers that the ranks had."""
    found = hypotheses(prepared(of))
    return {tuple(sorted(back[rank] for rank in each.culprits)): each.share for each in found}


@given(
    st.dictionaries(
        st.lists(st.integers(0, 5), min_size=1, unique=True).map(lambda ranks: tuple(sorted(ranks))),
        st.frozensets(st.sampled_from(KINDS)),
        min_size=1,
    )
)
@settings(deadline=None)
def test_all_shares_together_are_one(suspects: dict[Ranks, frozenset[str]]) -> None:
    found = shares(standing(suspects), weights_of("hangdoc.diagnosis.hypotheses"))
    assert sum(found.values()) == pytest.approx(1.0)
    assert all(share > 0 for share in found.values())
    proved = [ranks for ranks, kinds in suspects.items() if kinds & PROOFS]
    assert not proved or set(found) == set(proved)


def test_no_kind_is_a_proof_and_weighs_as_well() -> None:
    assert not PROOFS & weights_of("hangdoc.diagnosis.hypotheses").keys()


@pytest.mark.parametrize("messages", [False, True], ids=["collectives", "messages"])
@pytest.mark.parametrize("seed", range(12))
def test_ranks_with_other_numbers_are_judged_alike(seed: int, messages: bool) -> None:
    """Of messages, the peers are compared by their distance round the circle of the ranks: this is only turned. Of two
    calls in another order, either may be the first of the repair, which hardly changes the shares."""
    found = simulated(seed, messages=messages)
    ranks = sorted(found.state)
    order = ranks[:]
    random.Random(seed).shuffle(order)
    new = {rank: (rank + 1) % len(ranks) for rank in ranks} if messages else dict(zip(ranks, order, strict=True))
    back = {number: rank for rank, number in new.items()}
    assert judged(snapshot(renumbered(found, new)), back) == pytest.approx(
        judged(snapshot(found), {rank: rank for rank in ranks}), abs=0.06
    )


def test_hash_seeds_change_nothing() -> None:
    """The order of sets differs between runs; what is said of a case does not."""
    program = (
        "import json, sys; from pathlib import Path\n"
        "from hangdoc.diagnosis.hypotheses.judge import hypotheses\n"
        "from hangdoc.diagnosis.verdict import prepared\n"
        "from hangdoc.model.codec import load_snapshot\n"
        "for path in sys.argv[1:]:\n"
        "    found = hypotheses(prepared(load_snapshot(Path(path))))\n"
        "    print(json.dumps([(each.culprits, each.share, sorted(each.evidence)) for each in found]))\n"
    )
    chosen = [str(path) for path in sorted(DATA.glob("HD*/*.hangdoc"))[::120]]
    said = {
        subprocess.run(
            [sys.executable, "-c", program, *chosen],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in (1, 2)
    }
    assert len(said) == 1
    assert len([json.loads(line) for line in said.pop().splitlines()]) == len(chosen) > 3


def test_a_rank_that_a_signal_has_ended_stands_above_all_evidence() -> None:
    found = hypotheses(prepared(job(IN_CALL, ELSEWHERE, None, IN_CALL)))  # the others wait for rank 1, by the graph
    assert [(each.culprits, each.share) for each in found] == [((2,), 1.0)]
    assert STANDS_STILL in found[0].evidence


def test_a_stopped_rank_is_proved_to_keep_the_others() -> None:
    assert likeliest(job(IN_CALL, ELSEWHERE, IN_CALL, state={1: "T"})) == (1,)
    assert STANDS_STILL not in hypotheses(prepared(job(IN_CALL, ELSEWHERE, IN_CALL)))[0].evidence


def test_two_stopped_ranks_are_to_blame_together() -> None:
    assert likeliest(job(IN_CALL, ELSEWHERE, ELSEWHERE, IN_CALL, state={1: "T", 2: "T"})) == (1, 2)


LOCKING = (Frame("/job/cache.py", 12, "locked"), Frame("/job/train.py", 30, "publish"))


def locked(of: JobSnapshot, holders: Mapping[int, int]) -> JobSnapshot:
    """Ranks that wait for a file lock; its holder as the kernel names it."""
    ranks = list(of.ranks)
    for rank, holder in holders.items():
        process = ranks[rank].process
        assert process is not None
        wanted = OpenFile(7, f"/job/{holder}.lock", peers=(100 + holder,), operation="flock")
        ranks[rank] = replace(ranks[rank], process=replace(process, blocking_files=(wanted,)))
    return replace(of, ranks=tuple(ranks))


def test_ranks_that_hold_the_file_locks_of_each_other_are_proved_together() -> None:
    waiting = job(LOCKING, LOCKING, LOCKING, IN_CALL, IN_CALL)
    first = hypotheses(prepared(locked(waiting, {0: 1, 1: 0, 2: 0})))[0]  # rank 2 holds nothing
    assert (first.culprits, STANDS_STILL in first.evidence) == ((0, 1), True)


def test_a_lock_that_a_child_may_hold_proves_nothing() -> None:
    of = locked(job(LOCKING, LOCKING, IN_CALL), {0: 1, 1: 0})
    process = of.ranks[0].process
    assert process is not None
    first = replace(of.ranks[0], process=replace(process, children=(replace(process, pid=200),)))
    found = hypotheses(prepared(replace(of, ranks=(first, *of.ranks[1:]))))
    assert not any(STANDS_STILL in each.evidence for each in found)


def test_a_rank_in_a_call_may_let_its_file_lock_go_yet() -> None:
    found = hypotheses(prepared(locked(job(LOCKING, IN_CALL, IN_CALL), {0: 1})))
    assert not any(STANDS_STILL in each.evidence for each in found)


def test_the_rarer_argument_of_a_call_is_proved() -> None:
    found = run(
        random.Random(1), PLAIN, {rank: (CALLS[0], replace(CALLS[1], size=9 if rank == 2 else 1)) for rank in range(4)}
    )
    first = hypotheses(prepared(snapshot(found)))[0]
    assert (first.culprits, first.share) == ((2,), 1.0)
    assert UNEQUAL in first.evidence
    halves = {rank: (CALLS[0], replace(CALLS[1], size=9 if rank > 1 else 1)) for rank in range(4)}
    assert not any(
        UNEQUAL in each.evidence for each in hypotheses(prepared(snapshot(run(random.Random(1), PLAIN, halves))))
    )


def test_whoever_was_not_seen_is_no_suspect() -> None:
    suspects = Suspects(Case(job(IN_CALL, ELSEWHERE)))
    suspects.add((1, 7), "root")
    suspects.add((), "root")
    suspects.add((1, 1), "sole root")
    assert suspects.evidence() == {(0,): frozenset(), (1,): frozenset({"sole root"})}


def test_odd_are_those_outside_of_the_one_largest_class() -> None:
    case = Case(job(*[IN_CALL] * 5))
    suspects = Suspects(case)
    suspects.add_classes(classes({0: "a", 1: "b", 2: "a", 3: "c", 4: "a"}), "another stack")
    assert {ranks for ranks, kinds in suspects.evidence().items() if kinds} == {(1,), (3,), (1, 3)}
    halves = Suspects(case)
    halves.add_classes([(0, 1), (2, 3)], "another stack")
    assert {ranks for ranks, kinds in halves.evidence().items() if kinds} == {(0, 1), (2, 3)}


def test_the_rank_with_another_value_than_all_others_is_likelier() -> None:
    def at(step: str) -> Stack:
        return (IN_CALL[0], replace(IN_CALL[1], locals=(Local("step", step), Local("rank", "4"), Local("part", step))))

    found = suspected(prepared(job(at("7"), at("7"), at("5"), at("7"))))
    assert {"another value", "another value where they stand"} <= found[(2,)]
    assert likeliest(job(at("7"), at("7"), at("5"), at("7"))) == (2,)
    own = suspected(prepared(job(at("7"), at("8"), at("5"), at("6"))))  # each has one of its own
    assert not any("another value" in kinds for kinds in own.values())
    half = suspected(prepared(job(at("7"), at("7"), at("5"), at("5"))))
    assert not any("another value" in kinds for kinds in half.values())


def test_a_rank_elsewhere_is_likelier_than_those_that_wait_for_it() -> None:
    found = suspected(prepared(job(IN_CALL, ELSEWHERE, IN_CALL)))
    assert {"root", "sole root", "another stack"} <= found[(1,)]
    assert likeliest(job(IN_CALL, ELSEWHERE, IN_CALL)) == (1,)


def test_ranks_that_made_another_number_of_groups_are_odd() -> None:
    found = run(random.Random(1), PLAIN, {**PLAIN.calls, 2: PLAIN.calls[2][:1]}, {2: 1})
    whole = snapshot(found)
    journal = whole.ranks[2].journal
    assert journal is not None
    more = replace(journal, groups=(*journal.groups, ProcessGroup("1", (2, 3))))
    ranks = (*whole.ranks[:2], replace(whole.ranks[2], journal=more), whole.ranks[3])
    fewer = suspected(prepared(replace(whole, ranks=ranks)))
    assert {ranks for ranks, kinds in fewer.items() if "another number of groups" in kinds} == {(2,)}
    assert not any("another number of groups" in kinds for kinds in suspected(prepared(whole)).values())


def test_all_ranks_are_suspects_where_none_is_unlike_the_others() -> None:
    assert "all alike" in suspected(prepared(job(ELSEWHERE, ELSEWHERE, ELSEWHERE)))[(0, 1, 2)]
    assert (0, 1, 2) not in suspected(prepared(job(ELSEWHERE, ELSEWHERE, IN_CALL)))


def test_confidence_follows_from_the_share() -> None:
    (first, *_) = hypotheses(prepared(job(IN_CALL, ELSEWHERE, IN_CALL, state={1: "T"})))
    assert first.confidence is Confidence.CERTAIN
    shared = [replace(first, share=share).confidence for share in (0.98, 0.7, 0.69)]
    assert shared == [Confidence.LIKELY, Confidence.LIKELY, Confidence.POSSIBLE]


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_wait_alike_have_the_effect_that_each_has(seed: int) -> None:
    """The graph is asked once for all of them."""
    case = prepared(snapshot(simulated(seed, messages=seed % 2 == 1)))
    found = suspected(case)
    asked = {ranks for ranks in found if case.graph.stuck and len(ranks) == 1 and case.graph.dissolves(ranks)}
    assert {ranks for ranks, kinds in found.items() if "frees all alone" in kinds} == asked
    needs = Needs(case).graph
    ended = {ranks for ranks in found if needs.stuck and needs.dissolves(ranks)}
    assert {ranks for ranks, kinds in found.items() if "ends all needs" in kinds} == ended
