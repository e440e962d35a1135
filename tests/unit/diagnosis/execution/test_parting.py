"""Where two ranks parted, by what each decided and called: made-up programs, with what their probes would record."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

import pytest

from hangdoc.diagnosis.execution.decisions import decisions, part_of, whole_counts
from hangdoc.diagnosis.execution.executions import Executions
from hangdoc.diagnosis.execution.moments import moment
from hangdoc.diagnosis.execution.parting import Parting
from hangdoc.diagnosis.execution.table import Table
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import MOST_BRANCHES, BranchCounts, Taken
from hangdoc.model.diagnosis import BranchMoment
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process, Stack
from hangdoc.model.snapshot import RankSnapshot, SourceText

FILE = "/job/train.py"
PROGRAM = """\
def train(loader, rank):
    for batch in loader:
        if rank == 0 and verbose:
            print(batch)
        if not batch.ok:
            continue
        dist.all_reduce(batch)
        if batch.late or batch.last:
            break
        if rank == 0:
            dist.broadcast(batch)
    dist.barrier()
def reduced(metrics):
    for each in metrics:
        if each.stale:
            dist.all_reduce(each)
"""
SOURCES = Sources((SourceText(FILE, "<module>", 1, PROGRAM),))
_TREE = ast.parse(PROGRAM)


def jump(line: int, text: str) -> BranchCounts:
    """The one that is decided by the expression (of a loop, by the loop) in that line."""
    for node in ast.walk(_TREE):
        if isinstance(node, ast.For) and (node.lineno, text) == (line, "for"):
            return _jump(node.iter)
        if isinstance(node, ast.expr) and node.lineno == line and ast.unparse(node) == text:
            return _jump(node)
    raise AssertionError(text)


def _jump(node: ast.expr) -> BranchCounts:
    line, end = node.lineno, node.end_lineno or 0
    return BranchCounts(FILE, "train", line, node.col_offset, end, node.end_col_offset or 0, "TF", (0, 0))


TESTS = {
    "for": jump(2, "for"),
    "main": jump(3, "rank == 0"),
    "verbose": jump(3, "verbose"),
    "ok": jump(5, "batch.ok"),
    "late": jump(8, "batch.late"),
    "last": jump(8, "batch.last"),
    "zero": jump(10, "rank == 0"),
    "each": jump(14, "for"),
    "stale": jump(15, "each.stale"),
}
NAMES = list(TESTS)


@dataclass
class Rank:
    """'for+ ok+ @7 late- last-': tests that came out true or false, and calls at lines, in order."""

    number: int
    story: str
    before: int = 0
    """Rounds that the recorder has counted and does not tell in order any more."""
    lost: bool = False
    made: list[Call] = field(default_factory=list)

    def snapshot(self) -> RankSnapshot:
        taken, calls, lines = [], [], []
        for at, word in enumerate(self.story.split(), 1_000):
            if word[0] == "@":
                lines.append(int(word[1:]))
                number = len(calls) + 1
                calls.append(Call("0", number, number, "all_reduce", number - 1, created_ns=at))
            else:
                taken.append(Taken(NAMES.index(word[:-1]), "T" if word[-1] == "+" else "F", at))
        counts = {name: [0, 0] for name in NAMES}
        counts["for"][0] += self.before
        for each in taken:
            counts[NAMES[each.branch]][each.value == "F"] += 1
        branches = tuple(replace(TESTS[name], counts=(both[0], both[1])) for name, both in counts.items())
        journal = Journal(
            "probe",
            (ProcessGroup("0", (0, 1, 2)),),
            tuple(calls),
            stacks=tuple((Frame(FILE, line, "train"),) for line in lines),
        )
        process = Process(1, 0, "rank", branches=branches, taken=tuple(taken))
        return RankSnapshot(self.number, "h", "probe", process=process, journal=journal)


def parted(*stories: str, before: tuple[int, ...] = (0, 0, 0)) -> Parting | None:
    """Of rank 0, the culprit, and the others."""
    ranks = {n: Rank(n, story, before[n]).snapshot() for n, story in enumerate(stories)}
    return Executions(SOURCES, ranks).parting((0,), tuple(range(1, len(stories))))


def told(found: Parting | None) -> tuple[str, bool, int] | None:
    return (found.guard.condition, found.guard.taken, found.side) if found is not None else None


QUIET = "main- ok+ @7 late- last- zero-"


def test_the_call_that_one_alone_makes_is_under_the_condition() -> None:
    found = parted("for+ main- ok+ @7 late- last- zero+ @11", f"for+ {QUIET} for+ main- ok+ @7")
    assert told(found) == ("if rank == 0:", True, 0)
    assert found is not None
    assert found.guard.line == 10


def test_a_difference_on_which_no_call_depends_is_none() -> None:
    harmless = parted("for+ main+ verbose+ ok+ @7 late- last- zero+ @11", f"for+ {QUIET} for+ main- ok+ @7")
    assert told(harmless) == ("if rank == 0:", True, 0)
    assert harmless is not None
    assert harmless.guard.line == 10


def test_a_loop_that_one_has_left() -> None:
    assert told(parted(f"for+ {QUIET} for- @12", f"for+ {QUIET} for+ main- ok+ @7")) == (
        *("for batch in loader:", True, 1),
    )


def test_a_way_out_of_the_loop() -> None:
    assert told(parted("for+ main- ok+ @7 late+ @12", f"for+ {QUIET} for+ main- ok+ @7")) == (
        *("if batch.late or batch.last:", False, 1),
    )
    assert told(parted("for+ main- ok+ @7 late- last+ @12", f"for+ {QUIET} for+ main- ok+ @7")) == (
        *("if batch.late or batch.last:", False, 1),
    )


def test_what_is_decided_in_two_rounds_of_a_loop_is_not_compared() -> None:
    """Rank 0 has one metric more; rank 1 has left the loop, and goes over the same metrics again."""
    once = "each+ stale+ @16"
    assert parted(f"{once} {once}", f"{once} each- each+ stale- each- @12") is None
    assert told(parted(f"{once} {once}", f"{once} each+ stale- each- @12")) == ("if each.stale:", True, 0)


def test_a_call_left_out_rounds_ago_is_found_by_the_rounds_though_later_calls_paired() -> None:
    skipped = f"for+ {QUIET} for+ main- ok- for+ {QUIET} for- @12"
    assert told(parted(skipped, f"for+ {QUIET} for+ {QUIET} for+ main- ok+ @7")) == ("if not batch.ok:", False, 1)


def test_rounds_that_are_counted_only_are_the_same_rounds() -> None:
    skipped = f"for+ {QUIET} for+ main- ok- for+ {QUIET} for- @12"
    whole = f"for+ {QUIET} for+ {QUIET} for+ main- ok+ @7"
    assert told(parted(skipped, whole, before=(40, 40, 0))) == ("if not batch.ok:", False, 1)


def test_who_waits_in_the_same_call_has_not_parted() -> None:
    assert parted(f"for+ {QUIET} for+ main- ok+ @7", f"for+ {QUIET} for+ main- ok+ @7") is None


def test_who_has_not_come_so_far_has_not_parted() -> None:
    assert parted(f"for+ {QUIET} for+ main- ok+ @7", f"for+ {QUIET}") is None


def test_nothing_is_said_where_another_rank_decided_as_the_culprit_did() -> None:
    alone = "for+ main- ok+ @7 late- last- zero+ @11"
    assert told(parted(alone, f"for+ {QUIET} for+ main- ok+ @7", alone)) is None


ROUND, OTHER = "for+ main- ok+ @7 late- last- zero+ @11", f"for+ {QUIET}"


def test_what_two_always_decide_otherwise_is_their_part_and_a_sibling_of_the_same_part_is_compared() -> None:
    culprit, another = f"{ROUND} {ROUND} for+ main- ok- for- @12", f"{OTHER} {OTHER} for+ main- ok+ @7"
    assert parted(culprit, another) is None
    assert told(parted(culprit, another, f"{ROUND} {ROUND} for+ main- ok+ @7")) == ("if not batch.ok:", False, 1)


def test_who_recorded_nothing_has_no_part() -> None:
    ranks = {0: Rank(0, "for+ @7").snapshot(), 1: RankSnapshot(1, "h", "probe", process=Process(1, 0, "rank"))}
    assert Executions(SOURCES, ranks).pair(0, 1) is None


def test_what_the_probe_gave_up_on_is_left_out_on_both_sides() -> None:
    ranks = {
        0: Rank(0, "for+ main- ok+ @7 late- last- zero+ @11").snapshot(),
        1: Rank(1, f"for+ {QUIET} for+ main- ok+ @7").snapshot(),
    }
    process = ranks[1].process
    assert process is not None
    branches = tuple(replace(each, cut=each.line == 10) for each in process.branches)
    ranks[1] = replace(ranks[1], process=replace(process, branches=branches))
    assert Executions(SOURCES, ranks).parting((0,), (1,)) is None


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        ("main+ verbose+", ["True"]),
        ("main+ verbose-", ["False"]),
        ("main-", ["False"]),
        ("late- last+", ["True"]),
        ("late+ late- last-", ["True", "False"]),
        ("main+ main+ verbose-", ["False"]),
        ("ok+ ok-", ["False", "True"]),
        ("for+ for-", ["another round", "ended"]),
    ],
)
def test_jumps_become_decisions(story: str, expected: list[str]) -> None:
    tests = [(TESTS[word[:-1]], "T" if word[-1] == "+" else "F") for word in story.split()]
    assert [each.value for each in decisions(SOURCES, tests)] == expected


def test_a_chain_is_decided_by_its_last_jump() -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, "if 0 <= x < n:\n    pass\n"),))
    test = BranchCounts(FILE, "<module>", 1, 3, 1, 13, "TF", (0, 0))
    assert [each.value for each in decisions(sources, [(test, v) for v in "TTTFF"])] == ["True", "False", "False"]


def test_a_test_without_source_is_no_decision() -> None:
    assert part_of(Sources(()), TESTS["ok"]) is None
    assert decisions(Sources(()), [(TESTS["ok"], "T")]) == []


def counted(**each: tuple[int, int]) -> tuple[BranchCounts, ...]:
    """(true, false) of each test; those that are not named were never asked."""
    return tuple(replace(TESTS[name], counts=both, whole=True) for name, both in each.items())


def by_counts(stack: int | tuple[int, int], *ranks: tuple[BranchCounts, ...]) -> tuple[str, bool, int] | None:
    """Of rank 0, the culprit, and the others, whose order is not known. ``stack``: the line of the others' call, or
    (the culprit's, the others')."""
    known = {
        number: RankSnapshot(number, "h", "probe", process=Process(1, 0, "rank", branches=branches))
        for number, branches in enumerate(ranks)
    }
    lines = stack if isinstance(stack, tuple) else (12, stack)
    stacks = tuple((Frame(FILE, line, "train"),) for line in lines)
    found = Executions(SOURCES, known).once((stacks[0], stacks[1]), (0,), tuple(range(1, len(ranks))))
    return (found.guard.condition, found.guard.taken, found.side) if found is not None else None


NEVER = counted(**{"for": (9, 0), "ok": (9, 0), "late": (0, 8), "last": (0, 8)})


def test_what_was_once_so_on_one_rank_alone_kept_it_from_the_call() -> None:
    skipped = counted(**{"for": (9, 0), "ok": (8, 1), "late": (0, 8), "last": (0, 8)})
    assert by_counts(7, skipped, NEVER, NEVER) == ("if not batch.ok:", False, 1)
    assert by_counts(7, skipped, NEVER, skipped) is None
    twice = counted(**{"for": (9, 0), "ok": (7, 2), "late": (0, 7), "last": (0, 7)})
    assert by_counts(7, twice, NEVER) is None  # which of both is not known
    role = counted(**{"for": (1, 0), "ok": (0, 1)})
    assert by_counts(7, role, NEVER) is None  # it never decided otherwise


def test_counts_that_are_not_whole_prove_nothing() -> None:
    skipped = counted(**{"for": (9, 0), "ok": (8, 1), "late": (0, 8), "last": (0, 8)})
    unsure = tuple(replace(each, whole=False) for each in NEVER)
    assert by_counts(7, skipped, unsure) is None
    assert by_counts(7, tuple(replace(each, whole=False) for each in skipped), NEVER) is None


def test_a_rank_that_has_asked_more_often_may_only_be_further_on() -> None:
    ahead = counted(**{"for": (10, 0), "ok": (9, 1), "late": (0, 9), "last": (0, 9)})
    assert by_counts(7, ahead, NEVER) is None
    left = counted(**{"for": (9, 1), "ok": (9, 0), "late": (0, 9), "last": (0, 9)})
    assert by_counts(7, left, NEVER) is None
    early = counted(**{"for": (7, 1), "ok": (7, 0), "late": (0, 7), "last": (0, 7)})
    assert by_counts(7, early, NEVER) == ("for batch in loader:", True, 1)


def test_a_call_that_one_alone_has_made_once() -> None:
    extra = counted(**{"for": (9, 0), "ok": (9, 0), "late": (0, 8), "last": (0, 8), "zero": (1, 7)})
    usual = counted(**{"for": (9, 0), "ok": (9, 0), "late": (0, 8), "last": (0, 8), "zero": (0, 8)})
    assert by_counts((11, 7), extra, usual, usual) == ("if rank == 0:", True, 0)


@pytest.mark.parametrize(
    ("counts", "whole"),
    [
        ({"late": (1, 5), "last": (2, 3)}, {"True": 3, "False": 3}),
        ({"late": (0, 5)}, None),  # an exception led out of it
        ({"main": (2, 5), "verbose": (1, 1)}, {"True": 1, "False": 6}),
        ({"main": (0, 5)}, {"True": 0, "False": 5}),
        ({"ok": (4, 1)}, {"True": 1, "False": 4}),  # of `not batch.ok`
        ({"for": (4, 1)}, {"another round": 4, "ended": 1}),
    ],
)
def test_how_often_a_whole_condition_came_out_in_each_way(
    counts: dict[str, tuple[int, int]], whole: dict[str, int] | None
) -> None:
    assert list(whole_counts(SOURCES, counted(**counts)).values()) == ([] if whole is None else [whole])


def test_what_came_out_as_never_before_on_one_rank_alone_since_the_last_call_is_new() -> None:
    """Whether or not a call stands under it."""
    usual, odd = f"for+ {QUIET}", "for+ main- ok+ @7 late- last- zero-"
    culprit = f"{usual} {usual} for+ main+ verbose- ok+ @7"
    assert new(culprit, f"{usual} {usual} {odd}") == {}  # `rank == 0` is a part of a condition that came out as ever
    assert new(f"{usual} {usual} for+ main+ verbose+ ok+ @12", f"{usual} {usual} for+ main- ok+ @7") == {
        (FILE, 3, "rank == 0 and verbose"): "True"
    }
    again = "for+ main+ verbose+ ok+ @7 late- last- zero-"
    assert new(f"{usual} {again} for+ main- ok+ @12", f"{usual} {usual} for+ main- ok+ @7") == {}  # calls came since
    assert new(f"{usual} {again} for+ main+ verbose+ ok+ @12", f"{usual} {usual} for+ main- ok+ @7") == {}
    other = f"{usual} {usual} for+ main+ verbose+ ok+ @7"
    assert new(f"{usual} {usual} for+ main+ verbose+ ok+ @12", other) == {}


def new(*stories: str) -> dict[tuple[str, int, str], str]:
    """Of rank 0, the culprit; all counts are whole."""
    return executions(*stories).new((0,), tuple(range(1, len(stories))))


def executions(*stories: str, groups: tuple[str, ...] = ()) -> Executions:
    """Of ranks whose counts are whole. ``groups``: those of their last calls."""
    ranks = {}
    for number, story in enumerate(stories):
        snapshot = Rank(number, story).snapshot()
        process, journal = snapshot.process, snapshot.journal
        assert process is not None
        assert journal is not None
        if groups:
            calls = (*journal.calls[:-1], replace(journal.calls[-1], group=groups[number]))
            both = tuple(ProcessGroup(name, (0, 1, 2)) for name in ("0", "1"))
            journal = replace(journal, calls=calls, groups=both)
        whole = tuple(replace(each, whole=True) for each in process.branches)
        ranks[number] = replace(snapshot, process=replace(process, branches=whole), journal=journal)
    return Executions(SOURCES, ranks)


def test_calls_of_two_groups_that_both_ranks_are_in_are_not_the_same_call() -> None:
    story = f"for+ {QUIET} for+ main- ok+ @7"
    same, apart = executions(story, story).pair(0, 1), executions(story, story, groups=("0", "1")).pair(0, 1)
    assert same is not None
    assert apart is not None
    last = len(same.columns) - 1
    assert (same.is_alike(last), apart.is_alike(last)) == (True, False)
    assert apart.call_before(last + 1) < last


def test_a_condition_at_which_both_decided_alike_has_not_parted_them() -> None:
    sides = (0,), (1,)
    skip = Guard("return", 5, "if not batch.ok:", False, ("batch.ok",), (5, 6))
    same, later = f"for+ {QUIET} for+ main- ok+ @7", f"for+ {QUIET} for+ main- ok+ @12"
    assert executions(same, later).refutes(FILE, skip, sides)
    assert not executions(same, f"for+ {QUIET} for+ main- ok- for- @12").refutes(FILE, skip, sides)
    # Nobody came to it, or one alone did.
    assert not executions("@7 for+", "@7 for+").refutes(FILE, skip, sides)
    assert not executions("@7 for+ main- ok+", "@7 for+ main-").refutes(FILE, skip, sides)
    left_out = f"for+ {QUIET} for+ main- ok- for+ {QUIET} for- @12"
    assert not executions(left_out, f"for+ {QUIET} for+ {QUIET} for+ main- ok+ @7").refutes(FILE, skip, sides)


def stack(line: int) -> Stack:
    return (Frame(FILE, line, "train"),)


def test_what_came_out_once_as_never_before_on_the_way_to_a_call() -> None:
    """By the rank's own rounds: no other rank is looked at."""
    usual = f"for+ {QUIET}"
    left_out = executions(f"{usual} {usual} for+ main- ok- for- @12")
    assert [each.guard.condition for each in left_out.anew(0, stack(7), came=False)] == ["if not batch.ok:"]
    assert left_out.anew(0, stack(7), came=True) == []
    extra = executions(f"{usual} {usual} for+ main- ok+ @7 late- last- zero+ @11")
    assert [each.guard.condition for each in extra.anew(0, stack(11), came=True)] == ["if rank == 0:"]
    twice = executions(f"{usual} for+ main- ok- for+ main- ok- for- @12")
    assert twice.anew(0, stack(7), came=False) == []
    part = executions("for+ main- ok- for- @12")  # it never came to it
    assert part.anew(0, stack(7), came=False) == []
    assert part.anew(5, stack(7), came=False) == []


NOTHING = Table(SOURCES, Program(), {}, {})


def test_the_moment_of_a_condition_that_several_jumps_make_up() -> None:
    usual = f"for+ {QUIET}"
    key = (FILE, 8, "batch.late or batch.last")
    found = executions(f"{usual} {usual} for+ main- ok+ @7 late- last+ @12", f"{usual} {usual} {usual}")
    assert found.decided(0, key) == ({"True": 1, "False": 2}, "True")
    assert moment(NOTHING, found, key, (0, 1), (0,)) == BranchMoment((0,), "True", 2, alone=True)
    assert moment(NOTHING, found, key, (0, 1, 2), (0,)) == BranchMoment((0,), "True", 2, alone=False)
    assert moment(NOTHING, found, (FILE, 9, "other"), (0, 1), (0,)) is None
    since = executions(f"{usual} for+ main- ok+ @7 late- last+ {usual}", f"{usual} {usual} {usual}")
    assert moment(NOTHING, since, key, (0, 1), (0,)) is None  # it has come out as ever since


def test_counts_are_whole_where_all_parts_are_told_though_there_was_no_room_for_others() -> None:
    full = (*counted(late=(1, 5), last=(2, 3)), *(replace(TESTS["main"], line=100 + n) for n in range(MOST_BRANCHES)))
    assert whole_counts(SOURCES, full)[FILE, 8, "batch.late or batch.last"] == {"True": 3, "False": 3}
    part = (*counted(late=(1, 5)), *(replace(TESTS["main"], line=100 + n) for n in range(MOST_BRANCHES)))
    assert (FILE, 8, "batch.late or batch.last") not in whole_counts(SOURCES, part)
