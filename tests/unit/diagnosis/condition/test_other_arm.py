"""A leader and its workers: whether the condition that deals the parts can be the reason."""

from __future__ import annotations

import textwrap

from hangdoc.diagnosis.condition.elsewhere.other_arm import is_answered
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/serve.py"
PROGRAM = """
def main(rank):
    if rank == 0:
        lead()
    else:
        work()
    dist.barrier()
def lead():
    dist.broadcast(command, src=0)
    step()
def work():
    {work}
    step()
def step():
    dist.all_reduce(x)
"""


def answered(work: str, *theirs: tuple[int, str]) -> bool:
    """True if the others, whose frames are ``theirs``, make the broadcast of line 8 as well."""
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(PROGRAM.format(work=work)).lstrip("\n")),))
    mine = (Frame(FILE, 8, "lead"), Frame(FILE, 3, "main"))
    return is_answered(sources, mine, tuple(Frame(FILE, *each) for each in theirs))


WORK = ((14, "step"), (12, "work"), (5, "main"))


def test_the_others_part_makes_the_call() -> None:
    assert answered("dist.broadcast(command, src=0)", *WORK)


def test_the_others_part_makes_another_one() -> None:
    assert not answered("dist.all_reduce(y)", *WORK)


def test_the_others_have_no_part() -> None:
    assert not answered("dist.broadcast(command, src=0)", (6, "main"))


ARMS = """
def epoch(self):
    if self.first:
        for x in self.images:
            self.schedule.step(x)
    elif self.last:
        for y in self.labels:
            self.schedule.step(target=y)
    dist.barrier()
"""
