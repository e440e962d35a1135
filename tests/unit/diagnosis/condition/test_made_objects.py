"""At which condition was the object made whose method only one side is in?"""

from __future__ import annotations

import textwrap

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.condition.elsewhere.made_objects import class_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/home/me/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/somelib/trainer.py"


def program(*, otherwise: str = "") -> Sources:
    """Rank 0 is to have a Saver, at line 3; the others what ``otherwise`` says."""
    text = textwrap.dedent("""
        def callbacks(rank):
            if rank == 0:
                yield Saver(rank)
            else:
                yield OTHERWISE

        def main(rank):
            fit(callbacks(rank))
    """).strip("\n")
    return Sources((SourceText(FILE, "<module>", 1, text.replace("OTHERWISE", otherwise or "None")),))


def within(function: str) -> Stack:
    """A stack in that method, which the library's loop called."""
    return Frame(LIBRARY, 20, function), Frame(LIBRARY, 9, "Trainer.fit"), Frame(FILE, 8, "main")


STEP = Frame(LIBRARY, 11, "Trainer.step"), Frame(LIBRARY, 7, "Trainer.fit"), Frame(FILE, 8, "main")


def diverging(sources: Sources, mine: Stack, theirs: Stack) -> list[BranchPoint]:
    seen = Values(JobSnapshot(taken=1.0, mode="watch"))
    library = SourceText(LIBRARY, "<module>", 1, "\n" * 30)
    texts = tuple(text for text, _ in sources.trees(FILE))
    return diverging_guards(Sources((*texts, library)), seen, (mine, theirs), ((0,), (1,)))


def test_the_condition_around_the_line_that_made_the_object():
    (top,) = diverging(program(), within("Saver.on_step_end"), STEP)
    assert (top.guard.condition, top.guard.line, top.line) == ("if rank == 0:", 2, 3)
    assert (top.guarded, top.made, top.rank_like) == (0, "Saver", True)
    (top,) = diverging(program(), STEP, within("Saver.on_step_end"))
    assert (top.guarded, top.made) == (1, "Saver")


def test_an_object_that_is_made_elsewhere_without_a_condition_says_nothing():
    everywhere = program()
    text = next(text for text, _ in everywhere.trees(FILE))
    also = Sources((SourceText(FILE, "<module>", 1, f"{text.text}\n\n\nspare = Saver(7)\n"),))
    assert diverging(also, within("Saver.on_step_end"), STEP) == []


def test_objects_of_both_arms_say_nothing():
    assert diverging(program(otherwise="Counter()"), within("Saver.on_step_end"), within("Counter.on_step_end")) == []


def test_a_class_that_both_sides_are_in_says_nothing():
    assert diverging(program(), within("Saver.on_step_end"), within("Saver.on_epoch_end")) == []


def test_the_class_of_a_method():
    names = {"Saver.save": "Saver", "Outer.Saver.save": "Saver", "save": "", "main.<locals>.Saver.save": "Saver"}
    names |= {"Saver.save.<locals>.inner": "", "Saver.save.<locals>.<lambda>": ""}
    assert {name: class_of(Frame(FILE, 1, name)) for name in names} == names
