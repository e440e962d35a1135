"""Calls of autograd's threads get the program's line that calls backward()."""

from __future__ import annotations

from hangdoc.diagnosis.source.backward_lines import with_backward_lines
from hangdoc.model.journal import Call, Journal
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/job/train.py"
TRAIN = "def train(model, batches):\n    for x in batches:\n        loss = model(x).mean()\n        loss.backward()\n"
GAN = TRAIN + "        penalty(x).backward()\n"
MINE = (Frame(FILE, 9, "main"),)


def call(thread: str, stack: int) -> Call:
    return Call("0", 1, 1, "all_reduce", stack, thread_name=thread)


def job(source: str, *calls: Call) -> JobSnapshot:
    text = SourceText(FILE, "<module>", 1, source)
    rank = RankSnapshot(0, "node", "probe", journal=Journal("probe", calls=calls, stacks=(MINE,)))
    return JobSnapshot(taken=1.0, mode="watch", ranks=(rank,), sources=(text,))


def stacks(snapshot: JobSnapshot) -> list[tuple[Frame, ...]]:
    journal = snapshot.ranks[0].journal
    assert journal is not None
    return [journal.stack(each.stack) for each in journal.calls]


def test_a_call_without_a_stack_comes_from_the_only_backward() -> None:
    found = with_backward_lines(job(TRAIN, call("pt_autograd_0", -1), call("python", 0)))
    assert stacks(found) == [(Frame(FILE, 4, "train"),), MINE]


def test_of_several_backwards_any_may_be_it() -> None:
    before = job(GAN, call("pt_autograd_0", -1))
    assert with_backward_lines(before) is before


def test_a_call_with_a_line_of_the_program_keeps_it() -> None:
    before = job(TRAIN, call("pt_autograd_0", 0))
    assert with_backward_lines(before) is before


def test_calls_of_other_threads_are_left_alone() -> None:
    before = job(TRAIN, call("python", -1))
    assert with_backward_lines(before) is before
