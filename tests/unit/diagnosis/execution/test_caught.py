"""Handlers as decisions: what one rank caught and another did not, and ranks of which busy tests are not all known."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.execution.caught import caught_alone
from hangdoc.diagnosis.execution.executions import Executions
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.branches import BranchCounts, Caught, Taken
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Process
from hangdoc.model.snapshot import RankSnapshot, SourceText

FILE = "/job/train.py"
PROGRAM = """\
def decode(batch):
    if batch.bad:
        raise ValueError(batch)
    return batch.sample

def train(loader):
    for batch in loader:
        for word in batch:
            count(word)
        try:
            sample = decode(batch)
            dist.all_reduce(sample)
        except ValueError:
            sample = None
        except:
            raise
        with suppress(OSError):
            load(batch)
            dist.broadcast(sample)
    dist.barrier()
"""
SOURCES = Sources((SourceText(FILE, "<module>", 1, PROGRAM),))
TESTS = {
    "bad": BranchCounts(FILE, "decode", 2, 7, 2, 16, "TF", (0, 0)),
    "for": BranchCounts(FILE, "train", 7, 17, 7, 23, "TF", (0, 0)),
    "word": BranchCounts(FILE, "train", 8, 20, 8, 25, "TF", (0, 0)),
    "value": BranchCounts(FILE, "train", 13, 8, 14, 25, "TF", (0, 0)),
    "bare": BranchCounts(FILE, "train", 15, 8, 16, 17, "TF", (0, 0)),
    "with": BranchCounts(FILE, "train", 17, 13, 17, 30, "FT", (0, 0)),  # as of CPython 3.13
}
NAMES = list(TESTS)


def rank(number: int, story: str, since: dict[str, int] | None = None) -> RankSnapshot:
    """'for+ value+ @12': tests that came out true, and calls at lines, at 1000, 1001, …; ``since``: of which the older
    are not known, whatever the story says of them."""
    taken, calls, lines, counts = [], [], [], {name: [0, 0] for name in NAMES}
    for at, word in enumerate(story.split(), 1_000):
        if word[0] == "@":
            lines.append(int(word[1:]))
            made = len(calls) + 1
            calls.append(Call("0", made, made, "all_reduce", made - 1, created_ns=at))
            continue
        name, value = word[:-1], "T" if word[-1] == "+" else "F"
        counts[name][TESTS[name].values.index(value)] += 1
        if at >= (since or {}).get(name, 0):
            taken.append(Taken(NAMES.index(name), value, at))
    branches = tuple(
        BranchCounts(
            *(FILE, test.function, test.line, test.column, test.end_line, test.end_column, test.values),
            counts=(counts[name][0], counts[name][1]),
            since_ns=(since or {}).get(name, 0),
        )
        for name, test in TESTS.items()
    )
    caught = tuple(
        Caught(each.branch, each.at_ns, "ValueError", FILE, 3, "decode")
        for each in taken
        if NAMES[each.branch] in ("value", "bare", "with")
    )
    stacks = tuple((Frame(FILE, line, "train"),) for line in lines)
    journal = Journal("probe", (ProcessGroup("0", (0, 1, 2)),), tuple(calls), stacks=stacks)
    process = Process(1, 0, "rank", branches=branches, taken=tuple(taken), caught=caught)
    return RankSnapshot(number, "h", "probe", process=process, journal=journal)


def parted(*ranks: RankSnapshot) -> tuple[str, bool, int] | None:
    """Of rank 0, the culprit, and the others."""
    found = Executions(SOURCES, dict(enumerate(ranks))).parting((0,), tuple(range(1, len(ranks))))
    return (found.guard.condition, found.guard.taken, found.side) if found is not None else None


ROUND = "for+ @12 @19"


@pytest.mark.parametrize(
    ("story", "condition"),
    [
        (f"{ROUND} for+ value+ @19 for- @20", "try:"),
        (f"{ROUND} for+ @12 with+ for- @20", "with suppress(OSError):"),
    ],
)
def test_what_the_culprit_alone_caught_is_the_condition(story: str, condition: str) -> None:
    usual = rank(1, f"{ROUND} {ROUND} for- @20")
    assert parted(rank(0, story), usual) == (condition, True, 1)


def test_the_test_that_led_to_the_raise_comes_before_the_handler() -> None:
    story = f"{ROUND} for+ bad+ value+ @19 for- @20".replace("for+ @12", "for+ bad- @12")
    usual = f"{ROUND} {ROUND} for- @20".replace("for+ @12", "for+ bad- @12")
    assert parted(rank(0, story), rank(1, usual)) == ("if batch.bad:", True, 0)


def test_what_both_caught_is_none() -> None:
    alike = f"{ROUND} for+ value+ @19"
    assert parted(rank(0, f"{alike} for- @20"), rank(1, f"{alike} {ROUND}")) == ("for batch in loader:", True, 1)


def test_what_one_catches_in_each_round_is_its_part() -> None:
    own = "for+ @12 with+ @19"
    assert parted(rank(0, f"{own} {own} for+ @12 with+ for- @20"), rank(1, f"{ROUND} {ROUND} {ROUND} for- @20")) is None


def test_who_alone_caught_something_is_known_only_where_all_were_recorded() -> None:
    ranks = [rank(0, f"{ROUND} for+ value+ @19"), rank(1, f"{ROUND} {ROUND}"), rank(2, f"{ROUND} {ROUND}")]
    tried = next(guard for guard in guards(SOURCES.function(FILE, 12) or pytest.fail(), 12) if guard.is_tried)
    processes = {each.rank: each.process for each in ranks}
    found = caught_alone(SOURCES, processes, FILE, tried, (0,))
    assert {number: (each.exception, each.line) for number, each in found.items()} == {0: ("ValueError", 3)}
    assert not caught_alone(SOURCES, processes, FILE, tried, (0, 1))
    assert not caught_alone(SOURCES, {**processes, 2: None}, FILE, tried, (0,))
    assert not caught_alone(SOURCES, {**processes, 2: ranks[0].process}, FILE, tried, (0,))


BUSY = "word+ " * 5 + "word-"


def test_ranks_are_compared_by_what_is_known_of_both() -> None:
    """The last values of the busy loop alone are there; the rare ones from the start."""
    mine = f"for+ {BUSY} @12 @19 for+ {BUSY} value+ @19 for+ {BUSY} word+"
    theirs = f"for+ {BUSY} @12 @19 for+ word+ word+ word- @12"
    assert parted(rank(0, mine, {"word": 1_028}), rank(1, theirs, {"word": 1_011})) == ("try:", True, 1)
    pair = Executions(SOURCES, {0: rank(0, mine, {"word": 1_028}), 1: rank(1, theirs, {"word": 1_011})}).pair(0, 1)
    assert pair is not None
    keys = [act.decided.key[2] for act in pair.sides[1] if act.decided is not None]
    assert "for word in batch" not in keys


def test_what_is_known_since_a_common_call_is_compared_since_then() -> None:
    mine, theirs = f"for+ {BUSY} @12 @19 for+ word+ word-", f"for+ {BUSY} @12 @19 for+ word-"
    pair = Executions(SOURCES, {0: rank(0, mine, {"word": 1_005}), 1: rank(1, theirs, {"word": 1_004})}).pair(0, 1)
    assert pair is not None
    found = [act.step.value for act in pair.sides[0] if act.decided is not None and act.decided.key[1] == 8]
    assert found == ["another round", "ended"]
