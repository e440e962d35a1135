"""Which conditions of the program are around calls that gather something from all ranks?"""

from __future__ import annotations

import textwrap

from hangdoc.diagnosis.condition.elsewhere.hidden_calls import conditions_of_gathering
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/somelib/trainer.py"


def conditions(text: str, file: str = FILE) -> list[tuple[str, int]]:
    sources = Sources((SourceText(file, "<module>", 1, textwrap.dedent(text).strip("\n")),))
    return [(each.source, each.line) for each in conditions_of_gathering(sources)]


def test_a_condition_around_the_call_and_one_around_its_caller() -> None:
    text = """
        def histogram(grad):
            return grad.full_tensor()

        def report(self, step):
            for index in range(3):
                if index > 1 and self.wanted:
                    histogram(self.grad)

        def train(self, step):
            if step % self.every:
                return
            if self.global_rank != self.keeper:
                return
            report(self, step)
    """
    expected = [("if self.global_rank != self.keeper:", 12), ("if index > 1 and self.wanted:", 6)]
    assert conditions(text) == expected
    assert conditions(text, LIBRARY) == []


def test_what_gathers_nothing_or_is_under_no_condition_says_nothing() -> None:
    assert conditions("def report(grad):\n    if grad.ok:\n        print(grad.local_tensor())") == []
    assert conditions("def f(grad):\n    for n in range(4):\n        if n > 2:\n            grad.full_tensor()") == []
    assert conditions("def report(grad):\n    return grad.full_tensor()") == []


def test_a_method_that_several_classes_have_is_not_followed() -> None:
    one = "class A:\n    def on_end(self):\n        self.grad.full_tensor()\n"
    caller = "def train(hooks, rank):\n    if rank == 0:\n        hooks.on_end()\n"
    assert conditions(one + caller) == [("if rank == 0:", 5)]
    assert conditions(one + "class B:\n    def on_end(self):\n        pass\n" + caller) == []


def test_what_is_alike_on_every_rank_is_left_out() -> None:
    text = """
        def clip(self):
            if self.cfg.max_norm > 0:
                if dist.is_initialized():
                    model.clip_grad_norm_(1)

        def share(self, step):
            if "a % b" in self.names:
                self.grad.full_tensor()
            if step%self.every == 0:
                self.grad.full_tensor()
    """
    assert conditions(text) == [('if "a % b" in self.names:', 7)]
