"""An all_to_all whose sizes do not fit, as the dumps of its ranks show it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from recorder_dumps import config, dump, nccl, write

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis

Sizes = list[list[int]]


def exchange(number: int, sent: Sizes, expected: Sizes, **changes: Any) -> dict[str, Any]:
    known = {"profiling_name": "nccl:all_to_all", "input_sizes": sent, "output_sizes": expected}
    return nccl(number, **(known | changes))


def said_of(where: Path, ranks: list[list[tuple[Sizes, Sizes]]]) -> Diagnosis:
    """The diagnosis of what each rank passes to its exchanges, of which the last does not complete.

    The files have the times of a copy: only the sizes can show who is to blame.
    """
    for rank, calls in enumerate(ranks):
        made = [exchange(n, *given) for n, given in enumerate(calls, 1)]
        made[-1] |= {"state": "scheduled", "retired": False}
        write(where / f"trace_{rank}", dump(*made, pg_config=config(len(ranks))))
    return api.diagnose(api.load(where))


def test_lists_of_tensors_tell_which_pair_disagrees(tmp_path: Path) -> None:
    agreed: tuple[Sizes, Sizes] = ([[4], [4], [4]], [[4], [4], [4]])
    found = said_of(tmp_path, [[agreed], [([[4], [4], [5]], [[4], [4], [4]])], [agreed]])
    assert found.outcome == "hang" and found.cause is not None and found.cause.code == "HD104"
    assert "Rank 1 sends [5] to rank 2" in found.verdict and "rank 2 expects [4]" in found.verdict
    assert found.culprits == (1,) and found.alternatives == ((2,),) and found.confidence == "possible"


def test_a_rank_that_disagrees_with_all_others_is_to_blame(tmp_path: Path) -> None:
    agreed: tuple[Sizes, Sizes] = ([[4], [4], [4]], [[4], [4], [4]])
    found = said_of(tmp_path, [[agreed], [([[5], [4], [5]], [[4], [4], [4]])], [agreed]])
    assert found.culprits == (1,) and not found.alternatives and found.confidence == "likely"


def test_sums_that_do_not_fit_prove_a_hang_and_name_nobody(tmp_path: Path) -> None:
    rounds: list[list[tuple[Sizes, Sizes]]] = [
        [([[5]], [[6]]), ([[9]], [[7]]), ([[4]], [[3]])],
        [([[8]], [[7]]), ([[2]], [[4]]), ([[6]], [[8]])],
    ]
    found = said_of(tmp_path, rounds)
    assert found.outcome == "hang" and found.cause is not None and found.cause.code == "HD104"
    assert "do not add up: 10 elements are sent and 11 expected" in found.verdict
    assert not found.culprits and found.alternatives == ((0,), (1,))


def test_sums_that_fit_show_nothing_where_they_always_differ(tmp_path: Path) -> None:
    rounds: list[list[tuple[Sizes, Sizes]]] = [
        [([[5]], [[6]]), ([[9]], [[7]]), ([[4]], [[3]])],
        [([[8]], [[7]]), ([[2]], [[4]]), ([[6]], [[7]])],
    ]
    found = said_of(tmp_path, rounds)
    assert (found.outcome, found.culprits) == ("hang", ())
    assert "add up" not in found.verdict and found.confidence == "possible"


def test_the_rank_whose_sizes_are_new_is_to_blame_where_all_repeat_theirs(tmp_path: Path) -> None:
    usual: tuple[Sizes, Sizes] = ([[6]], [[6]])
    found = said_of(tmp_path, [[usual] * 4, [usual, usual, usual, ([[8]], [[6]])], [usual] * 4])
    assert found.culprits == (1,) and found.confidence == "likely"


def test_of_two_ranks_the_other_may_be_the_one_that_missed_the_change(tmp_path: Path) -> None:
    usual: tuple[Sizes, Sizes] = ([[6]], [[6]])
    found = said_of(tmp_path, [[usual] * 4, [usual, usual, usual, ([[8]], [[6]])]])
    assert found.culprits == (1,) and found.alternatives == ((0,),) and found.confidence == "possible"
