"""Which guard is likelier to be where two sides diverged?"""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.scores import LEFT_LOOP, TRY_BODY, score_of_condition, score_of_loop
from hangdoc.diagnosis.source.guards import Guard


def guard(kind: str, condition: str, taken: bool = True, depth: int = 0) -> Guard:
    return Guard(kind, 3, condition, taken, (), (3, 9), depth)


def plain(kind: str, condition: str, taken: bool = True, depth: int = 0) -> float:
    """The score where nothing but the words of the condition is known."""
    return score_of_condition(guard(kind, condition, taken, depth), rank_like=False, differs=False)


def test_the_kinds_of_evidence_come_in_the_order_that_the_module_states():
    on_rank = score_of_condition(guard("if", "if rank == 0:"), rank_like=True, differs=False)
    except_suite = plain("try", "except OSError:")
    differs = score_of_condition(guard("if", "if loss < best:"), rank_like=False, differs=True)
    left = score_of_loop(guard("loop", "for batch in loader:"), counts_differ=False)
    assert on_rank > except_suite > differs > left > plain("if", "if verbose:") > plain("try", "try:")


def test_a_try_body_is_one_wherever_it_is_scored():
    assert plain("try", "try:") == plain("try", "with suppress(OSError):") == TRY_BODY
    assert score_of_loop(guard("loop", "for batch in loader:"), counts_differ=False) == LEFT_LOOP


def test_a_loop_whose_counts_differ_is_likelier():
    loop = guard("loop", "for batch in loader:")
    assert score_of_loop(loop, counts_differ=True) > score_of_loop(loop, counts_differ=False)


@pytest.mark.parametrize(
    ("likelier", "less_likely"),
    [
        (("if", "if step % 10 == 0:"), ("if", "if step:")),
        (("if", "if ready:"), ("return", "if ready:", False)),
        (("if", "if ready:", True, 2), ("if", "if ready:", True, 1)),
        (("if", "if ready:"), ("if", "if world_size > 1:")),
        (("try", "except OSError:", False), ("try", "finally:")),
    ],
)
def test_what_orders_conditions_of_unknown_values(likelier, less_likely):
    assert plain(*likelier) > plain(*less_likely)


def test_values_that_differ_outweigh_words_that_suggest_one_value():
    words = guard("if", "if world_size > 1:")
    other = guard("if", "if ready:")
    assert score_of_condition(words, rank_like=False, differs=True) == score_of_condition(
        other, rank_like=False, differs=True
    )
