"""What is told of calls of several groups at once, and of groups that some ranks made."""

from __future__ import annotations

import pytest
from cases import diagnosed


@pytest.mark.parametrize("name", ["expert_route", "shard_writer"])
def test_numbers_of_two_groups_are_never_subtracted(name):
    """The ranks diverged at their last calls, whose numbers in their own groups are far below that of all calls."""
    told = [each["text"] for each in diagnosed(name).document["evidence"]]
    assert any("together" in each for each in told)
    assert not any("calls before the hang" in each for each in told)


def test_a_rank_that_is_no_member_of_a_group_made_it_only_if_its_line_has_run():
    """Rank 3 alone made (3,) at 34; ranks 1 and 2 are in neither group, and never ran that line."""
    document = diagnosed("node_topology").document
    assert document["culprits"] == [3] and document["cause"]["code"] == "HD303"
    assert "was True on rank 3 and False on ranks 0, 1 and 2" in document["why"]


def test_no_port_is_missing_where_others_have_more_than_they_need():
    told = [each["text"] for each in diagnosed("shard_commit").document["evidence"] if each["kind"] == "port"]
    assert told == ["no listening socket of rank 3: never opened, or gone with the process"]


def test_a_call_of_a_signal_handler_is_one_too_many():
    document = diagnosed("drain_notice").document
    assert (document["culprits"], document["cause"]["code"]) == ([2], "HD112")
    assert "Rank 2 waits in all_reduce at drain_notice.py:47" in document["verdict"]
