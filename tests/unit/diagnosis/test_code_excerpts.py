"""The lines that a report shows as proof: which, and what is said beside them."""

from __future__ import annotations

import pytest
from cases import case, with_text

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
    assert shown("polling")[0][2] == ("rank 1: in time.sleep or a polling loop",)


def test_the_child_and_the_thread_at_which_the_culprits_wait_ends_are_shown() -> None:
    assert shown("forked_lock") == [
        ("main", 32, ("rank 1: DataLoader waiting for its worker",)),
        ("__getitem__", 19, ("rank 1, DataLoader worker 31470: waits for a lock that no thread of it holds",)),
    ]
    assert shown("silent_uploader") == [
        ("main", 35, ("decides uploader",)),
        ("submit", 27, ("rank 1: waiting on a queue",)),
        ("run", 24, ("rank 1, thread `uploader`: waiting in recvfrom",)),
    ]
    assert shown("d_staging")[1] == ("_fill", 18, ("rank 3, thread `stager`: waiting on a queue",))
    assert shown("no_main_guard")[1] == ("train", 39, ("rank 0, child process 25564: in barrier",))


def test_who_holds_the_lock_that_the_others_wait_for_is_shown() -> None:
    assert [(line, notes) for _, line, notes in shown("locks_abba")] == [
        (20, ("rank 1, main thread: holds `self.lock`",)),
        (23, ("rank 1: waits for `self.cache.lock`",)),
        (28, ("rank 1, thread `Thread-1 (drain)`: holds `self.cache.lock`",)),
        (31, ("rank 1, thread `Thread-1 (drain)`: waits for `self.lock`",)),
    ]
    told = [notes for _, _, notes in shown("locked_server")]
    assert ("rank 0, main thread: holds `LOCK`",) in told
    assert ("rank 0, thread `server`: waits for `LOCK`",) in told
    assert shown("remote_locks_crossed")[1][2] == ("ranks 0 and 1, thread `pt_thread_pool`: holds `LOCK`",)
    assert shown("lock_over_collective_watched")[1][2] == ("rank 0, thread `metrics`: holds `self.lock`",)


@pytest.mark.parametrize("name", with_text())
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
