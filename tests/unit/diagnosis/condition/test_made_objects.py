"""At which condition was the object made whose method only one side is in?"""

from __future__ import annotations

import textwrap

import pytest

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


CHOSEN = {
    "a name": "    kind = Saver if rank == 0 else Quiet\n    return kind(path)",
    "a return": "    if rank == 0:\n        return Saver\n    return Quiet",
    "an argument": "    return make(Saver if rank == 0 else Quiet, path)",
    "a list": "    kinds = [Quiet]\n    if rank == 0:\n        kinds.append(Saver)\n    return [k() for k in kinds]",
}
CLASSES = """
class Quiet:
    def after(self):
        pass

class Saver(Quiet):
    def after(self):
        dist.barrier()
"""


def chosen(body: str, more: str = "") -> list[str]:
    """The conditions on which rank 0 is in the Saver, whose method is recorded with its plain name."""
    text = f"def choose(rank, path):\n{body}\n{CLASSES}{more}"
    line = text.splitlines().index("        dist.barrier()") + 1
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    within = Frame(FILE, line, "after"), Frame(LIBRARY, 9, "Trainer.fit"), Frame(FILE, 80, "main")
    return [p.guard.condition.rstrip(":") for p in diverging(sources, within, STEP) if p.made == "Saver"]


@pytest.mark.parametrize("body", CHOSEN.values(), ids=CHOSEN)
def test_a_class_that_is_chosen_before_it_is_called(body: str) -> None:
    assert chosen(body) == ["if rank == 0"]


def test_a_test_of_the_class_or_an_annotation_chooses_nothing() -> None:
    harmless = "\ndef show(saver: Saver) -> None:\n    print(isinstance(saver, Saver))\n"
    assert chosen(CHOSEN["a name"], harmless) == ["if rank == 0"]


@pytest.mark.parametrize(
    "more",
    ["\nEVERYWHERE = Saver\n", "\nclass Twice(Saver):\n    pass\n", "\nif verbose:\n    saver = Saver(path)\n"],
    ids=["named elsewhere", "inherited", "made elsewhere"],
)
def test_a_class_that_others_may_have_as_well_says_nothing(more: str) -> None:
    assert chosen(CHOSEN["a name"], more) == []
