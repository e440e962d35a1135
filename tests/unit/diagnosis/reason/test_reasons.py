"""What parted two sides: by stacks, counters, the rank and values; on small programs whose ranks are given here."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping

import pytest

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.reasons import Found, reasons
from hangdoc.diagnosis.reason.starts import CULPRITS, OTHERS, Sides
from hangdoc.model.process import Frame, Local, Process, ProcessState, Stack, Thread
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import JobSnapshot, Module, RankSnapshot

FILE = "/job/train.py"
SIDES = Sides((1,), (0, 2))


def line_of(code: str, marked: str) -> int:
    """The line in which the words stand."""
    return next(number for number, text in enumerate(code.split("\n"), 1) if marked in text)


def stack(code: str, *marked: str, **local: str) -> Stack:
    """Frames at the lines in which these words stand, the innermost first; the innermost has the locals."""
    frames = [Frame(FILE, line_of(code, each), _function(code, line_of(code, each))) for each in marked]
    inner = Frame(FILE, frames[0].line, frames[0].function, tuple(Local(*each) for each in local.items()))
    return (inner, *frames[1:])


def _function(code: str, line: int) -> str:
    heads = [text for text in code.split("\n")[:line] if text.startswith("def ")]
    return heads[-1][4:].partition("(")[0] if heads and not code.split("\n")[line - 1][:1].strip() else "<module>"


def case_of(
    code: str, stacks: Mapping[int, Stack], ran: Mapping[int, RanCode | tuple[RanCode, ...]] | None = None
) -> Case:
    """A job whose ranks have these stacks now."""
    ranks = []
    for rank, frames in stacks.items():
        thread = Thread(100 + rank, "MainThread", "S", frames=frames)
        counted = ran[rank] if ran else ()
        counted = (counted,) if isinstance(counted, RanCode) else counted
        process = Process(100 + rank, 1, "rank", looks=(ProcessState(1.0, "S", threads=(thread,)),), code=counted)
        ranks.append(RankSnapshot(rank, "host", "environment", world_size=len(stacks), process=process))
    job = JobSnapshot(1.0, "attach", ranks=tuple(ranks), modules=(Module(FILE, "sha256:0", code),))
    return Case(job)


def found_in(
    code: str, culprit: Stack, other: Stack, ran: Mapping[int, RanCode] | None = None, *, parted: bool = True
) -> Found:
    """The reasons where rank 1 has left ranks 0 and 2."""
    case = case_of(code, {0: other, 1: culprit, 2: other}, ran)
    return reasons(case, SIDES, [(CULPRITS, culprit, True), (OTHERS, other, True)] if parted else ())


def first(found: Found) -> tuple[str, tuple[str, str], Strength]:
    reason = found.reasons[0]
    return reason.item.text, reason.outcomes, reason.strength


def code(text: str) -> str:
    return textwrap.dedent(text).lstrip("\n")


TWO_CALLS = code(
    """
    def step(rows, verbose):
        if verbose:
            print(rows)
        if len(rows) > limit():
            dist.all_reduce(rows)
        else:
            dist.barrier()

    def main():
        for number in range(9):
            step(load(number), True)
    """
)


@pytest.mark.parametrize("parted", [True, False])
def test_the_test_between_the_two_lines_differs_as_the_stacks_prove(parted: bool) -> None:
    found = found_in(
        TWO_CALLS,
        stack(TWO_CALLS, "barrier", "step(load"),
        stack(TWO_CALLS, "all_reduce", "step(load"),
        parted=parted,
    )
    assert first(found) == ("len(rows) > limit()", ("False", "True"), Strength.PROVED)


def test_the_slice_keeps_what_the_list_of_reasons_leaves_out() -> None:
    found = found_in(TWO_CALLS, stack(TWO_CALLS, "barrier", "step(load"), stack(TWO_CALLS, "all_reduce", "step(load"))
    constant = next(each for each in found.slice if isinstance(each, Predicate) and each.kind == "for")
    assert constant.text == "number in range(9)"
    assert constant not in [each.item for each in found.reasons]


GUARDS = code(
    """
    def step(batch):
        if batch.sum() > bound():
            if healthy(batch):
                dist.all_reduce(batch)
                log(batch)
        else:
            skip(batch)
        dist.barrier()
    """
)


def ran(*lines: int, idle: tuple[int, ...] = ()) -> RanCode:
    return RanCode(FILE, "step", 1, called=True, ran=lines, idle=idle)


def test_of_two_guards_the_counters_prove_the_one_that_decided() -> None:
    counted = {
        0: ran(2, 3, 4, idle=(5, 7, 8)),
        1: ran(2, 7, 8, idle=(3, 4, 5)),
        2: ran(2, 3, 4, idle=(5, 7, 8)),
    }
    found = found_in(GUARDS, stack(GUARDS, "barrier"), stack(GUARDS, "all_reduce"), counted)
    assert found.reasons[0].item.text == "batch.sum() > bound()"
    assert (found.reasons[0].strength, found.reasons[0].source) == (Strength.PROVED, "counters")
    # The culprit has never come to the inner one, which therefore decided nothing.
    assert "healthy(batch)" in {each.text for each in found.slice}
    assert "healthy(batch)" not in {each.item.text for each in found.reasons}


def test_the_inner_guard_is_the_reason_where_the_counters_say_so() -> None:
    counted = {
        0: ran(2, 3, 4, idle=(5, 7, 8)),
        1: ran(2, 3, 8, idle=(4, 5, 7)),
        2: ran(2, 3, 4, idle=(5, 7, 8)),
    }
    found = found_in(GUARDS, stack(GUARDS, "barrier"), stack(GUARDS, "all_reduce"), counted)
    assert found.reasons[0].item.text == "healthy(batch)"
    # Both sides have been in the arm of the outer one: it proves nothing.
    assert all(each.item.text != "batch.sum() > bound()" or each.strength < Strength.PROVED for each in found.reasons)


ONE_PATH = code(
    """
    def main(rank):
        tensor = torch.ones(4 + rank_offset(rank))
        dist.all_reduce(tensor)
    """
)


def test_where_no_predicate_differs_the_value_is_listed_with_its_definition() -> None:
    here = stack(ONE_PATH, "all_reduce", tensor="Tensor[5]")
    there = stack(ONE_PATH, "all_reduce", tensor="Tensor[4]")
    found = found_in(ONE_PATH, here, there)
    reason = found.reasons[0]
    assert isinstance(reason.item, Definition)
    assert (reason.item.name, reason.item.line, reason.strength) == ("tensor", 2, Strength.MAY)


BY_RANK = code(
    """
    def main(rank):
        if rank == 1:
            dist.barrier()
        dist.all_reduce(x)
    """
)


def test_a_test_of_the_rank_is_computed_without_any_value_in_the_frames() -> None:
    found = found_in(BY_RANK, stack(BY_RANK, "barrier"), stack(BY_RANK, "all_reduce"))
    assert (found.reasons[0].item.text, found.reasons[0].strength) == ("rank == 1", Strength.PROVED)


def test_a_test_of_the_rank_that_is_the_same_on_both_sides_is_never_listed() -> None:
    other = BY_RANK.replace("rank == 1", "rank < 5")
    found = found_in(other, stack(other, "barrier"), stack(other, "barrier"), parted=False)
    assert "rank < 5" in {each.text for each in found.slice}
    assert "rank < 5" not in {each.item.text for each in found.reasons}


FLAG = code(
    """
    def main(steps):
        for step in range(steps):
            loss = train(step)
            if not isfinite(loss):
                self.veto = True
            if self.veto:
                dist.barrier()
            dist.all_reduce(x)
    """
)


def test_what_sets_a_flag_stands_before_the_test_of_it() -> None:
    found = found_in(FLAG, stack(FLAG, "barrier"), stack(FLAG, "all_reduce"))
    assert [each.item.text for each in found.reasons[:2]] == ["not isfinite(loss)", "self.veto"]
    assert [each.strength for each in found.reasons[:2]] == [Strength.MAY, Strength.MAY]  # it differs as the flag does


QUEUE = code(
    """
    def produce(rows):
        for row in rows:
            if row.valid:
                QUEUE.put(row)

    def consume():
        return QUEUE.get()
    """
)


def test_of_a_wait_the_guard_of_what_was_to_end_it_is_listed() -> None:
    found = found_in(QUEUE, stack(QUEUE, "for row in rows"), stack(QUEUE, "QUEUE.get"), parted=False)
    assert found.reasons[0].item.text == "row.valid"


def test_without_source_there_is_no_reason() -> None:
    here, there = stack(TWO_CALLS, "barrier"), stack(TWO_CALLS, "all_reduce")
    assert found_in("", here, there) == Found((), ())


CHAIN = code(
    """
    def bad(loss):
        if loss > ceiling():
            note(loss)
            return True
        return False

    def step(loss):
        if bad(loss):
            count(loss)
            return
        dist.all_reduce(loss)

    def main(losses):
        for loss in losses:
            step(loss)
        dist.barrier()
    """
)


def of_function(name: str, *lines: int, idle: tuple[int, ...] = ()) -> RanCode:
    return RanCode(FILE, name, line_of(CHAIN, f"def {name}"), called=True, ran=lines, idle=idle)


def test_of_a_chain_that_is_proved_the_first_to_differ_is_the_reason() -> None:
    others = (of_function("bad", 2, 5, idle=(3,)), of_function("step", 8, 11, idle=(9,)))
    culprit = (of_function("bad", 2, 3, 5), of_function("step", 8, 9, 11))
    here, there = stack(CHAIN, "dist.barrier"), stack(CHAIN, "all_reduce", "step(loss)")
    case = case_of(CHAIN, {0: there, 1: here, 2: there}, {0: others, 1: culprit, 2: others})
    found = reasons(case, SIDES, [(CULPRITS, here, True), (OTHERS, there, True)])
    assert [each.item.text for each in found.reasons[:2]] == ["loss > ceiling()", "bad(loss)"]
    assert [(each.strength, each.source) for each in found.reasons[:2]] == [(Strength.PROVED, "counters")] * 2


def test_the_values_that_a_caller_hands_on_tell_which_test_behind_the_first_decided() -> None:
    text = code(
        """
        def due(step, used):
            if step < first():
                return False
            if used > limit():
                return True
            return False

        def main():
            for step in range(start(), 99):
                used = measure()
                if due(step, used):
                    dist.barrier()
                dist.all_reduce(x)
        """
    )
    here = stack(text, "barrier", step="6", used="900")
    there = stack(text, "all_reduce", step="7", used="12")
    found = found_in(text, here, there)
    assert found.reasons[0].item.text == "used > limit()"


LOCK = code(
    """
    def acquire(lock):
        while not create(lock):
            if owner_is_gone(lock):
                remove(lock)
                continue
            if too_old(lock):
                clear(lock)
            pause(lock)
    """
)


def test_at_its_own_waiting_line_the_culprit_is_compared_by_how_it_came_there() -> None:
    counted = {
        0: RanCode(FILE, "acquire", 1, called=True, ran=(2, 3, 4), idle=(6, 7, 8)),
        1: RanCode(FILE, "acquire", 1, called=True, ran=(2, 3, 6, 8), idle=(4, 7)),
    }
    case = case_of(LOCK, {0: (), 1: stack(LOCK, "pause(lock)")}, counted)
    found = reasons(case, Sides((1,), (0,)))
    assert found.reasons[0].item.text == "owner_is_gone(lock)"
    assert found.reasons[0].strength == Strength.PROVED
    assert "too_old(lock)" not in {each.item.text for each in found.reasons}  # the others never came to it


def test_what_anybody_could_have_raised_is_no_start_where_the_counters_saw_nobody_raise() -> None:
    text = code(
        """
        def main(rows):
            if missing():
                raise ValueError(rows)
            dist.all_reduce(rows)
        """
    )
    at = stack(text, "all_reduce")
    counted = {rank: RanCode(FILE, "main", 1, called=True, ran=(2, 4), idle=()) for rank in (0, 1, 2)}
    found = reasons(case_of(text, {0: at, 1: at, 2: at}, counted), SIDES)
    assert all(each.start.name != "RAISED" for each in found.reasons)


def test_without_ranks_to_compare_with_nothing_is_said() -> None:
    here = stack(TWO_CALLS, "barrier", "step(load")
    found = reasons(case_of(TWO_CALLS, {0: here, 1: here}), Sides((0, 1), ()))
    assert found.slice
    assert not found.reasons


def test_a_value_of_which_nothing_is_seen_is_not_said() -> None:
    found = found_in(ONE_PATH, stack(ONE_PATH, "all_reduce"), stack(ONE_PATH, "all_reduce"))
    assert found.slice
    assert not found.reasons


def test_the_test_around_its_own_waiting_line_is_no_part_that_it_plays() -> None:
    text = code(
        """
        def main(rank):
            if rank == 1:
                while not marker.exists():
                    time.sleep(1)
            dist.all_reduce(x)
        """
    )
    found = found_in(text, stack(text, "time.sleep"), stack(text, "all_reduce"), parted=False)
    by_rank = next(each for each in found.reasons if each.item.text == "rank == 1")
    assert by_rank.strength == Strength.PROVED
