"""Which functions tell ranks apart by what has run of them."""

from __future__ import annotations

from hangdoc.model.ran import RanCode, one_sided, partly_idle


def _code(name: str, called: bool | None = True, ran: tuple[int, ...] = (), idle: tuple[int, ...] = ()) -> RanCode:
    return RanCode("/job/train.py", name, len(name), called, ran, idle)


def test_a_function_of_which_ranks_ran_other_lines_is_one_sided() -> None:
    here = [_code("same", ran=(5,), idle=(6,)), _code("parts", ran=(5, 6)), _code("rarely"), _code("unknown", None)]
    there = [
        _code("same", ran=(5,), idle=(6,)),
        _code("parts", ran=(5,), idle=(6,)),
        _code("rarely", called=False),
        _code("unknown", called=False),
    ]
    assert [code.function for code in one_sided([here, there])] == ["parts", "rarely"]
    assert one_sided([here, here]) == one_sided([]) == []


def test_a_function_that_has_run_in_part_may_have_run_whole_elsewhere() -> None:
    codes = [_code("part", ran=(5,), idle=(6,)), _code("whole", ran=(5,)), _code("never", called=False, idle=(5,))]
    assert [code.function for code in partly_idle([codes, codes])] == ["part"]
