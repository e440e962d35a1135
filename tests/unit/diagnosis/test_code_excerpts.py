"""The lines that a report shows as proof: which, and what is said beside them."""

from __future__ import annotations

import pytest
from cases import case, names

from hangdoc import api
from hangdoc.diagnosis.code_excerpts import _columns


def shown(name: str) -> list[tuple[str, int, tuple[str, ...]]]:
    found = api.diagnose(api.load(case(name))).code
    return [(excerpt.function, line.number, line.notes) for excerpt in found for line in excerpt.lines]


def test_the_condition_the_call_that_it_leads_to_and_the_others_line_are_shown() -> None:
    assert shown("rank_guard") == [
        ("train", 39, ("True on rank 0, False on rank 1",)),
        ("train", 40, ("rank 0: in mean_loss()",)),
        ("train", 41, ("rank 1: barrier",)),
        ("mean_loss", 28, ("rank 0: all_reduce",)),
    ]


def test_a_loop_that_one_side_has_left() -> None:
    assert shown("uneven_batches")[0] == ("train", 41, ("ended on rank 2, continues on ranks 0, 1 and 3",))


def test_without_a_divergence_the_culprits_line_is_shown() -> None:
    assert shown("forked_lock") == [("main", 32, ("rank 1: DataLoader waiting for its worker",))]


@pytest.mark.parametrize("name", names()[::5])
def test_what_is_shown_are_lines_of_the_source_in_order(name: str) -> None:
    job = api.load(case(name))
    for excerpt in api.diagnose(job).code:
        numbers = [line.number for line in excerpt.lines]
        assert numbers == sorted(set(numbers))
        texts = [text for text in job.sources if (text.file, text.function) == (excerpt.file, excerpt.function)]
        assert any(
            all(text.holds(line.number) and text.lines()[line.number].rstrip() == line.text for line in excerpt.lines)
            for text in texts
        )
        for line in excerpt.lines:
            assert line.mark is None or 0 <= line.mark[0] < line.mark[1] <= len(line.text)
            assert "  " not in "".join(line.notes)


@pytest.mark.parametrize(
    ("text", "condition", "expected"),
    [
        ("    if a == 0:", "a == 0", (7, 13)),
        ("    elif (a == 0 and", "a == 0 and b", (4, 20)),
        ("    for x in xs:  # all", "for x in xs", (4, 15)),
    ],
)
def test_the_mark_is_under_the_condition(text: str, condition: str, expected: tuple[int, int]) -> None:
    assert _columns(text, condition) == expected
