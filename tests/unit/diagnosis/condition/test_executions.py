"""An execution of a loop that a `return` cut short says nothing of how often the loop goes round by itself."""

from __future__ import annotations

from made_calls import Made, made_calls

from hangdoc.diagnosis import diagnose

RUN = """
def run(loader, stop=None):
    for step, batch in enumerate(loader):
        dist.all_reduce(x)
        if step == stop:
            {way}
    {after}
        dist.barrier()
    log("done")


def main():
    run(loader, stop=2)
    dist.barrier()
    run(loader)
"""


def made(op: str, line: int, main: int) -> Made:
    return op, [(line, "run"), (main, "main")]


FIRST: list[Made] = [made("all_reduce", 3, 12)] * 3 + [("barrier", [(13, "main")])]
ROUND = made("all_reduce", 3, 14)
END = made("barrier", 7, 14)


def cause(way: str, after: str) -> str:
    """Of three rounds and a way out in all ranks' first execution; then rank 2 goes round once more than the others."""
    calls = {rank: [*FIRST, *[ROUND] * (4 if rank == 2 else 3), *[END] * (rank != 2)] for rank in range(4)}
    found = diagnose(made_calls(RUN.format(way=way, after=after), calls, {}))
    assert found.cause is not None
    assert found.culprits == (2,)
    return found.cause.code


def test_a_loop_that_returned_the_first_time_may_end_on_some_ranks_the_second_time() -> None:
    assert cause("return", "with timer:") == "HD102"


def test_as_many_rounds_as_before_where_nothing_shows_that_it_returned() -> None:
    assert cause("return", "if saves:") == "HD101"


def test_one_round_more_than_before_is_one_more_round_where_what_follows_the_loop_is_sure_to_follow() -> None:
    assert cause("break", "with timer:") == "HD102"
