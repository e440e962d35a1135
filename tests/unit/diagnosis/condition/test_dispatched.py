"""What did one side alone look up and run, and which items of a loop did the sides call?"""

from __future__ import annotations

import textwrap
from dataclasses import replace

import pytest

from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.elsewhere.dispatched import dispatched, looked_up_below
from hangdoc.diagnosis.source.guards import Guard
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"
TEXT = textwrap.dedent("""
    class Trainer:
        def __init__(self, callbacks, shard):
            self.callbacks = [c for c in callbacks if c.applies(shard)]
        def step(self, x):
            name = draw()
            {call}
            reduce(x)
        def notify(self):
            for callback in self.callbacks:
                callback.end(self)
        def mix(self, x):
            gather(x)
    class Balance:
        def end(self, trainer):
            gather(trainer)
    class Share:
        def end(self, trainer):
            reduce(trainer)
""").lstrip("\n")


def sources(call: str = "self.ops[name](x)") -> Sources:
    return Sources((SourceText(FILE, "<module>", 1, TEXT.format(call=call)),))


def stack(*lines: tuple[int, str]) -> Stack:
    """Innermost first."""
    return tuple(Frame(FILE, line, function) for line, function in lines)


MIX, REDUCE = stack((12, "mix"), (6, "step")), stack((7, "step"))


@pytest.mark.parametrize("call", ["self.ops[name](x)", "getattr(self, name)(x)", "self.ops.get(name, keep)(x)"])
def test_one_side_alone_is_in_what_was_looked_up(call: str) -> None:
    found = dispatched(sources(call), (MIX, REDUCE))
    assert found is not None
    assert (found.call.source, found.call.line, found.function, found.side) == (call, 6, "mix", 0)
    found = dispatched(sources(call), (REDUCE, MIX))
    assert found is not None
    assert found.side == 1


def test_a_function_that_is_named_or_is_an_object_is_not_looked_up() -> None:
    assert dispatched(sources("self.mix(x)"), (MIX, REDUCE)) is None
    assert dispatched(sources("self.model(x)"), (MIX, REDUCE)) is None
    called = stack((12, "__call__"), (6, "step"))
    assert dispatched(sources(), (called, REDUCE)) is None


def test_what_a_library_calls_is_not_looked_up() -> None:
    through = (
        MIX[0],
        Frame("/python/lib/python3.11/site-packages/torch/nn/modules/module.py", 9, "_call_impl"),
        MIX[1],
    )
    assert dispatched(sources(), (through, REDUCE)) is None


def test_a_condition_above_a_look_up() -> None:
    """The others may have gone the same way, to another function; unless its values say which way they went."""
    guard = Guard("if", 6, "if known:", True, ("known",), (6, 7))
    point = BranchPoint(guard, FILE, "step", 6, 0, 0.0)
    assert looked_up_below(sources(), (MIX, REDUCE), point) is not None
    assert looked_up_below(sources(), (MIX, REDUCE), replace(point, differs=True)) is None
    assert looked_up_below(sources(), (MIX, REDUCE), replace(point, guarded=1)) is None


def test_the_look_up_before_the_call_is_told() -> None:
    text = "def step(kind, x):\n    loss = LOSSES.get(kind, plain)\n    y = net(x)\n    loss(y)\n    reduce(x)\n"
    text += "def pairs(x):\n    gather(x)\n"
    found = dispatched(
        Sources((SourceText(FILE, "<module>", 1, text),)), (stack((7, "pairs"), (4, "step")), stack((5, "step")))
    )
    assert found is not None
    assert (found.call.source, found.call.line) == ("LOSSES.get(kind, plain)", 2)


BY_TYPE = textwrap.dedent("""
    @singledispatch
    def loss_of(sample):
        raise TypeError
    @loss_of.register
    def _(sample: Pair):
        gather(sample)
    def fit(samples):
        for sample in samples:
            loss_of(sample).backward()
""").lstrip("\n")


def test_the_type_of_an_argument_looks_up_what_runs() -> None:
    by = Frame("/usr/lib/python3.11/functools.py", 909, "wrapper")
    fit = Frame(FILE, 9, "fit")
    sides = ((fit,), (Frame(FILE, 6, "_"), by, fit))
    found = dispatched(Sources((SourceText(FILE, "<module>", 1, BY_TYPE),)), sides)
    assert found is not None
    assert (found.call.source, found.call.line, found.side) == ("loss_of(sample)", 9, 1)
    plain = Sources((SourceText(FILE, "<module>", 1, BY_TYPE.replace("@singledispatch", "@traced")),))
    assert dispatched(plain, sides) is None


def test_a_handler_that_a_library_calls_may_look_up_what_it_runs() -> None:
    after = "def after(x):\n    run = TABLE.get(x)\n    run(x)\n"
    text = f"def train(x):\n    reduce(x)\n{after}def save(x):\n    gather(x)\nfit()\n"
    engine = [Frame("/x/site-packages/ignite/engine.py", line, "_run") for line in (1, 2)]
    main = Frame(FILE, 8, "<module>")
    sides = ((Frame(FILE, 2, "train"), engine[0], main), (*stack((7, "save"), (5, "after")), engine[1], main))
    found = dispatched(Sources((SourceText(FILE, "<module>", 1, text),)), sides)
    assert found is not None
    assert (found.call.source, found.function, found.side) == ("TABLE.get(x)", "save", 1)
