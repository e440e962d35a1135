"""At which condition did two sides diverge?"""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.branch_values import describe
from hangdoc.diagnosis.condition.candidates import diverging_guards, wrapped_for_one_rank
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.process import Frame, Local, Process, ProcessState, Stack, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/home/me/train.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
NOTHING_SEEN = JobSnapshot(taken=1.0, mode="watch")


class Program:
    """A source with lines marked ``# A``, ``# B``, …"""

    def __init__(self, source: str) -> None:
        self.text = textwrap.dedent(source).strip("\n")
        self.sources = Sources((SourceText(FILE, "<module>", 1, self.text),))

    def stack(self, *marks: str) -> Stack:
        """A stack through those marks, innermost first."""
        lines = self.text.splitlines()
        found = []
        for mark in marks:
            number = next(i for i, line in enumerate(lines, 1) if line.endswith(f"# {mark}"))
            name = next(
                (lines[i][4:].split("(")[0] for i in range(number - 1, -1, -1) if lines[i].startswith("def ")), ""
            )
            found.append(Frame(FILE, number, name))
        return (Frame(C10D, 9, "barrier"), *found)

    def diverging(self, mine: Stack, theirs: Stack, seen: JobSnapshot = NOTHING_SEEN) -> list[BranchPoint]:
        """The guards at which rank 0 can have diverged from ranks 1 and 2."""
        return diverging_guards(self.sources, Values(seen), (mine, theirs), ((0,), (1, 2)))


def seen(function: str, **names: tuple[str, ...]) -> JobSnapshot:
    """What py-spy saw in that function: name → value by rank."""
    ranks = []
    for rank in range(3):
        values = tuple(Local(name, per_rank[rank]) for name, per_rank in names.items())
        thread = Thread(rank, "MainThread", "S", frames=(Frame(FILE, 99, function, values),))  # after all of it
        ranks.append(
            RankSnapshot(
                rank, "n", "p", process=Process(rank, 1, "rank", looks=(ProcessState(1.0, "S", threads=(thread,)),))
            )
        )
    return JobSnapshot(taken=1.0, mode="watch", ranks=tuple(ranks))


GUARD = Program("""
    def train(rank, loader):
        for batch in loader:
            step(batch)
            if rank == 0:
                save()  # A
            step(batch)  # B
        done()  # C
""")


def test_the_condition_around_one_side():
    (top, *_) = GUARD.diverging(GUARD.stack("A"), GUARD.stack("B"))
    assert top.guard.condition == "if rank == 0:"
    assert (top.guarded, top.rank_like, top.guard.taken) == (0, True, True)
    (top, *_) = GUARD.diverging(GUARD.stack("B"), GUARD.stack("A"))
    assert (top.guard.condition, top.guarded) == ("if rank == 0:", 1)


def test_a_loop_that_one_side_has_left():
    (top, *_) = GUARD.diverging(GUARD.stack("C"), GUARD.stack("B"))
    assert top.guard.condition == "for batch in loader:"
    assert (top.uneven, top.guarded) == (True, 1)


def test_a_condition_whose_values_agree_explains_nothing():
    program = Program("""
        def train(loss, best):
            if loss < best:
                save()  # A
            step()  # B
    """)
    (top, *_) = program.diverging(
        program.stack("A"), program.stack("B"), seen("train", loss=("1", "3", "3"), best=("2", "2", "2"))
    )
    assert (top.guard.condition, top.differs, top.rank_like) == ("if loss < best:", True, False)
    same = seen("train", loss=("1", "1", "1"), best=("2", "2", "2"))
    assert program.diverging(program.stack("A"), program.stack("B"), same) == []


CALLED_IN_A_LOOP = Program("""
    def iteration(i, every):
        backward()  # A
        if i % every == 0:
            report()  # B

    def fit(batches, every):
        for i in range(9):
            iteration(i, every)  # C
        for batch in batches:
            iteration(batch, every)  # D
""")


def before_the_condition(caller: str, count: str, between: Stack = ()) -> list[str]:
    """The conditions where rank 0 is under the `if`, and the others at the line before it, all in round 7 or not."""
    stacks = [CALLED_IN_A_LOOP.stack(at, caller) for at in ("B", "A")]
    mine, theirs = ((*stack[:2], *between, *stack[2:]) for stack in stacks)
    found = CALLED_IN_A_LOOP.diverging(mine, theirs, seen("fit", i=("7", count, count), batch=("7", count, count)))
    return [point.guard.condition for point in found]


def test_a_condition_that_the_others_have_not_come_to_in_their_callers_round_explains_nothing():
    assert before_the_condition("C", "7") == []


@pytest.mark.parametrize(("caller", "count"), [("C", "8"), ("D", "7")])
def test_they_may_have_come_to_it_in_another_round_or_one_that_nothing_counts(caller, count):
    assert before_the_condition(caller, count) == ["if i % every == 0:"]


def test_a_library_between_may_go_round_a_loop_of_its_own():
    library = Frame("/venv/lib/python3.11/site-packages/somelib/trainer.py", 5, "run")
    assert before_the_condition("C", "7", (library,)) == ["if i % every == 0:"]


def test_a_condition_on_the_round_comes_after_one_that_may_differ():
    program = Program("""
        def run(steps):
            for step in range(steps):
                work()  # A
                if due(step):
                    save(step)  # B

        def save(step):
            if ready:
                write()  # C
    """)
    found = program.diverging(program.stack("C", "B"), program.stack("A"))
    assert [point.guard.condition for point in found] == ["if ready:", "if due(step):"]


def test_a_difference_within_one_side_tells_nothing():
    """Ranks 1 and 2 are on one side and differ; rank 0 has a value of theirs."""
    program = Program("""
        def train(shard):
            if shard > 1:
                save()  # A
            step()  # B
    """)
    assert program.diverging(program.stack("A"), program.stack("B"), seen("train", shard=("5", "5", "7"))) == []


def test_both_arms():
    program = Program("""
        def train(flag):
            if flag:
                save()  # A
            else:
                load()  # B
    """)
    found = program.diverging(program.stack("A"), program.stack("B"))
    assert {(p.guard.taken, p.guarded, p.both_arms) for p in found} == {(True, 0, True), (False, 1, True)}


def test_an_early_return():
    program = Program("""
        def loss(labels):
            if not labels:
                return 0
            reduce()  # A

        def train(labels):
            loss(labels)  # B
            gather()  # C
    """)
    (top, *_) = program.diverging(program.stack("C"), program.stack("A", "B"))
    assert top.guard.condition == "if not labels:"
    assert (top.guard.kind, top.guard.taken, top.guarded) == ("return", False, 1)


def test_a_guard_that_both_are_under_explains_nothing():
    program = Program("""
        def train(rank, on):
            if on:
                while True:
                    step()  # A
                    if rank == 0:
                        save()  # B
    """)
    found = program.diverging(program.stack("B"), program.stack("A"))
    assert [p.guard.condition for p in found] == ["if rank == 0:"]


def test_a_guard_several_calls_deep():
    program = Program("""
        def export(rank):
            if rank == 0:
                write()  # A

        def finish(rank):
            export(rank)  # B

        def train(rank):
            finish(rank)  # C
            step()  # D
    """)
    (top, *_) = program.diverging(program.stack("A", "B", "C"), program.stack("D"))
    assert (top.guard.condition, top.function) == ("if rank == 0:", "export")


def test_the_most_telling_first():
    program = Program("""
        def train(rank, cfg):
            if cfg.distributed:
                if rank == 0:
                    save()  # A
            step()  # B
    """)
    found = program.diverging(program.stack("A"), program.stack("B"))
    assert [p.guard.condition for p in found] == ["if rank == 0:", "if cfg.distributed:"]


def test_the_name_of_the_module_is_no_branch_point():
    program = Program("""
        if __name__ == "__main__":
            main()  # A
        other()  # B
    """)
    assert program.diverging(program.stack("A"), program.stack("B")) == []


@pytest.mark.parametrize(
    "condition",
    [
        "rank == 0",
        "self.is_main_process",
        "trainer.is_global_zero",
        "state.is_world_process_zero",
        "dist.get_rank() == 0",
        "args.local_rank in (-1, 0)",
        "myrank == 0",
        "cfg.rank0",
        "is_master()",
        "not main_process",
    ],
)
def test_conditions_on_the_rank(condition):
    program = Program(f"def train(x):\n    if {condition}:\n        save()  # A\n    step()  # B")
    (top, *_) = program.diverging(program.stack("A"), program.stack("B"))
    assert top.rank_like


@pytest.mark.parametrize("condition", ["loss < best", "ready", "self.ranking", "pagerank > 1", "domain == 1"])
def test_conditions_on_something_else(condition):
    program = Program(f"def train(x):\n    if {condition}:\n        save()  # A\n    step()  # B")
    (top, *_) = program.diverging(program.stack("A"), program.stack("B"))
    assert not top.rank_like


def test_a_variable_that_equals_the_rank_is_the_rank():
    program = Program("def train(me):\n    if me < 1:\n        save()  # A\n    step()  # B")
    (top, *_) = program.diverging(program.stack("A"), program.stack("B"), seen("train", me=("0", "1", "2")))
    assert top.rank_like


def test_without_sources_or_stacks_nothing_is_found():
    assert diverging_guards(Sources(()), Values(NOTHING_SEEN), (GUARD.stack("A"), GUARD.stack("B")), ((0,), (1,))) == []
    assert GUARD.diverging((), ()) == []
    assert [p.guard.condition for p in GUARD.diverging(GUARD.stack("A"), ())][:1] == ["if rank == 0:"]


def test_truth_follows_from_the_path_values_from_what_was_seen():
    program = Program("def train(loss):\n    if loss < 2:\n        save()  # A\n    step()  # B")
    values = Values(seen("train", loss=("1", "3", "3")))
    (top, *_) = diverging_guards(program.sources, values, (program.stack("A"), program.stack("B")), ((0,), (1, 2)))
    shown = {
        (v.name, v.value, v.ranks, v.seen)
        for v in describe(top, program.sources, values, ((0,), (1, 2)), past=False, doubted=False).values
    }
    assert ("loss", "1", (0,), "now") in shown
    assert ("loss", "3", (1, 2), "now") in shown
    assert ("loss < 2", "True", (0,), "inferred-from-path") in shown
    assert ("loss < 2", "False", (1, 2), "inferred-from-path") in shown
    later = describe(top, program.sources, values, ((0,), (1, 2)), past=True, doubted=False).values
    assert {v.seen for v in later} == {"inferred-from-path"}, "the values of today say nothing about then"


def test_library_wrappers_that_run_on_one_rank():
    wrapper = Frame("/venv/lib/python3.11/site-packages/lightning_utilities/core/rank_zero.py", 41, "wrapped_fn")
    assert wrapped_for_one_rank((Frame(FILE, 3, "save"), wrapper, Frame(FILE, 9, "train")))
    assert not wrapped_for_one_rank((Frame(FILE, 3, "save"), Frame(FILE, 9, "train")))
