"""What likely led the culprits there is told where no condition was found, and only as that."""

from __future__ import annotations

from pathlib import Path

import pytest
from cases import diagnosed

SAID = "What likely led"
ENDS = "What ends the wait of"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("log_writer_died", f"{SAID} rank 1 there is `if number == limit:` (logger_mp.py:16)"),
        ("dead_producer", f"{ENDS} rank 1 likely depends on `if rank == 1 and i == 7:` (dead_producer.py:8)"),
        ("failed_and_does_not_exit", f"{SAID} rank 3 there is `if rank == 3 and step == 6:` (exc_one.py:11)"),
    ],
)
def test_where_no_condition_was_found(name, told):
    document = diagnosed(name).document
    assert told in document["why"]
    branch = document["divergence"]["branch"]
    assert told.endswith(f"`{branch['condition']}` ({Path(branch['file']).name}:{branch['line']})")
    assert document["confidence"] != "certain"


@pytest.mark.parametrize(
    "name",
    [
        "fell_out_of_a_loop",  # a condition was found
        "stopped_rank",  # certain: every clause has to hold
        "async_checkpoint",  # the likeliest is a loop that all are in
    ],
)
def test_else_nothing_is_said_of_it(name):
    assert SAID not in diagnosed(name).document["why"]


def test_what_a_handler_caught_is_told_by_the_raise_that_the_culprits_alone_came_to():
    document = diagnosed("auc_metric").document
    said = "Rank 2 alone came to the `raise` under `if not len(positive) or not len(negative):` (auc_metric.py:16)"
    assert said in document["why"]
    branch = document["divergence"]["branch"]
    assert (branch["line"], branch["condition"]) == (16, "if not len(positive) or not len(negative):")
    assert [(each["line"], each["subject"]) for each in branch["answers"]] == [(44, "what is caught")]


@pytest.mark.parametrize("name", ["code_snapshot", "sample_counters"])
def test_a_test_in_which_the_culprits_wait_or_that_only_chooses_a_value_is_not_the_nearest(name):
    assert SAID not in diagnosed(name).document["why"]
