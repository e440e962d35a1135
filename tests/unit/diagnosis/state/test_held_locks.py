"""Who holds the lock file that a rank polls for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.diagnosis.state.held_locks import holds_named
from hangdoc.model.diagnosis import Activity
from hangdoc.model.process import Frame, Local, OpenFile, Process
from hangdoc.model.snapshot import RankSnapshot

POLLS = "/venv/lib/python3.11/site-packages/filelock/_api.py"
USER = Frame("/home/me/train.py", 9, "load")


def rank(number: int, *locks: OpenFile, host: str = "node") -> RankSnapshot:
    return RankSnapshot(number, host, "probe", process=Process(100 + number, 1, "rank", named_locks=locks))


def polling(timeout: str) -> Activity:
    acquire = Frame(POLLS, 40, "BaseFileLock.acquire", (Local("timeout", timeout),))
    return Activity(1, "node", 101, "file-lock", "polling for a lock file", stack=(acquire, USER))


HELD = OpenFile(-1, "/data/index.lock", (100,), "named")


def test_the_rank_whose_process_has_locked_the_named_file_holds_it() -> None:
    ranks = {0: rank(0), 1: rank(1, HELD), 2: rank(2)}
    assert holds_named(ranks[1], polling("-1"), ranks) == {0}
    assert holds_named(ranks[1], polling("None"), ranks) == {0}


def test_a_process_of_that_number_on_another_host_holds_nothing() -> None:
    ranks = {0: rank(0, host="other"), 1: rank(1, HELD)}
    assert holds_named(ranks[1], polling("-1"), ranks) == frozenset()


@pytest.mark.parametrize("timeout", ["30", "0.5"])
def test_a_rank_that_gives_up_waits_for_nobody(timeout: str) -> None:
    ranks = {0: rank(0), 1: rank(1, HELD)}
    assert holds_named(ranks[1], polling(timeout), ranks) == frozenset()


def test_a_rank_that_only_names_a_lock_file_does_not_wait_for_it() -> None:
    ranks = {0: rank(0), 1: rank(1, HELD)}
    assert holds_named(ranks[1], replace(polling("-1"), kind="sleeping"), ranks) == frozenset()
