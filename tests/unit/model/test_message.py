"""Messages are made of parts; one writer decides how they read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.model.message import (
    Condition,
    Does,
    Joined,
    Message,
    Place,
    Ranks,
    Sentence,
    Sentences,
    State,
    States,
    Values,
    Verb,
    joined,
    sentence,
)
from hangdoc.model.wording import FileNames, in_ascii
from hangdoc.model.writing import Writer

FILES = ("/job/alpha/train.py", "/job/beta/train.py", "/job/model.py")
WRITE = Writer(FileNames(FILES, "/job")).write

ranks = st.sets(st.integers(0, 40), min_size=1, max_size=12).map(lambda each: tuple(sorted(each)))


def named(text: str) -> set[int]:
    """The ranks that 'ranks 0-3,7 and 9' means."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:-(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("", ""),
        ((), ""),
        (["a", ["b", []], ""], "ab"),
        (Place("/job/model.py", 3), "model.py:3"),
        (Place("/job/model.py", 3, "fit"), "model.py:3 fit()"),
        (Place("/job/model.py", 3, "<module>"), "model.py:3"),
        (Condition("if loss < best:", "/job/alpha/train.py", 41), "`if loss < best:` (alpha/train.py:41)"),
        (Ranks((2,)), "rank 2"),
        (Ranks.of({3, 0, 1}), "ranks 0, 1 and 3"),
        (Verb((2,), "waits", "wait"), "waits"),
        (Does((0, 2), "waits", "wait"), "ranks 0 and 2 wait"),
        (Values({0: "5", 1: "4", 2: "4"}), "5 on rank 0, 4 on ranks 1 and 2"),
        (Values({0: "5", 1: "4"}, " | "), "5 on rank 0 | 4 on rank 1"),
        (Joined(["a", "", ["b", "c"], ()], " and "), "a and bc"),
        (joined("a", ["", ""], "b"), "a; b"),
        (sentence("waits in DDP", "", Ranks((1,))), "Waits in DDP; rank 1."),
        (Sentence(["it is"], end=""), "It is"),
        (sentence("", [()]), ""),
    ],
)
def test_how_each_part_reads(message: Message, text: str) -> None:
    assert WRITE(message) == text


@given(ranks)
def test_any_ranks_are_named_once_and_the_verb_agrees(members: tuple[int, ...]) -> None:
    written = WRITE(Does(members, "waits", "wait"))
    assert named(written) == set(members)
    assert written.startswith("rank " if len(members) == 1 else "ranks ")
    assert written.endswith(" waits" if len(members) == 1 else " wait")


@given(st.dictionaries(st.integers(0, 20), st.sampled_from("abc"), min_size=1))
def test_each_value_is_told_once_with_all_its_ranks(by_rank: dict[int, str]) -> None:
    told = WRITE(Values(by_rank, " | ")).split(" | ")
    assert len(told) == len(set(by_rank.values()))
    assert {value: named(where) for value, _, where in (each.partition(" on ") for each in told)} == {
        value: {rank for rank, other in by_rank.items() if other == value} for value in by_rank.values()
    }


PARTS = st.lists(st.sampled_from(["a", "b", "job", "train.py"]), min_size=1, max_size=4)


@given(st.sets(PARTS.map(lambda parts: "/" + "/".join(parts)), min_size=2, max_size=6), st.integers(1, 99))
def test_two_files_of_one_name_never_look_alike(files: set[str], line: int) -> None:
    write = Writer(FileNames(files, "/job")).write
    for part in (lambda file: Place(file, line, "f"), lambda file: Condition("if x:", file, line)):
        assert len({write(["at ", part(file)]) for file in files}) == len(files)


@given(st.dictionaries(st.integers(0, 30), st.sampled_from(["barrier", "all_reduce", "save", "load"]), min_size=1))
def test_ranks_that_do_the_same_are_one_clause_and_none_is_lost(doing: dict[int, str]) -> None:
    written = WRITE(States(tuple(State(rank, "is", "are", f"in {call}") for rank, call in doing.items())))
    clauses = [clause for clause in written.split("; ") if "elsewhere" not in clause]
    assert len({clause.partition(" in ")[2] for clause in clauses}) == len(clauses)
    sizes = [len(named(clause)) for clause in clauses]
    assert sizes == sorted(sizes, reverse=True)
    elsewhere = re.search(r"(\d+) more ranks are elsewhere$", written)
    assert sum(sizes) + int(elsewhere[1] if elsewhere else 0) == len(doing)


def test_states_fold_by_what_is_read() -> None:
    """A job may name its script both 'train.py' and '/job/train.py': to the reader it is one line."""
    write = Writer(FileNames(("train.py", "/job/train.py"), "/job")).write
    there = [State(rank, "waits", "wait", ["at ", Place(f, 9)]) for rank, f in enumerate(("train.py", "/job/train.py"))]
    assert write(States(tuple(there))) == "ranks 0 and 1 wait at train.py:9"


def test_of_many_places_the_largest_are_told_and_the_rest_counted() -> None:
    def states(*sizes: int) -> str:
        calls = [call for call, size in enumerate(sizes) for _ in range(size)]
        return WRITE(States(tuple(State(rank, "is", "are", f"in call_{call}") for rank, call in enumerate(calls))))

    assert states(1, 2, 1) == "ranks 1 and 2 are in call_1; rank 0 is in call_0; rank 3 is in call_2"
    assert (
        states(1, 3, 2, 1) == "ranks 1, 2 and 3 are in call_1; ranks 4 and 5 are in call_2; 2 more ranks are elsewhere"
    )


@given(st.text(min_size=1).filter(lambda text: text.strip()))
def test_a_sentence_changes_the_first_letter_alone(text: str) -> None:
    said = WRITE(sentence(text))
    assert said.endswith(".")
    assert said.removesuffix(".") in (each.removesuffix(".") for each in (text, text[:1].upper() + text[1:]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rank 2 waits", "Rank 2 waits."),
        ("train.py:9 waits", "train.py:9 waits."),
        ("new_group waits", "new_group waits."),
        ("`if done:` was True", "`if done:` was True."),
        ("it wrote: done.", "It wrote: done."),
        ("", ""),
    ],
)
def test_a_sentence_leaves_names_alone(text: str, said: str) -> None:
    assert WRITE(sentence(text)) == said


def test_each_of_several_facts_is_a_sentence() -> None:
    assert WRITE(Sentences(joined("the loop ended", "", "it wrote: done"))) == "The loop ended. It wrote: done."
    nested = joined(joined("one", "two"), "three")
    assert WRITE(Sentences(nested)) == "One. Two. Three."
    assert WRITE(Sentences(["a loop ", joined("ended", "left")])) == "A loop ended; left."


@given(st.text())
def test_ascii_is_ascii_and_leaves_ascii_alone(text: str) -> None:
    assert in_ascii(text).isascii()
    assert in_ascii(in_ascii(text)) == in_ascii(text)
    assert in_ascii("rank 1 → rank 2 …") == "rank 1 -> rank 2 ..."
