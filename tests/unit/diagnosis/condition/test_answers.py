"""By what a function answers that a condition asks."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.answers import answers
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


def told(program: str, line: int) -> dict[str, list[tuple[int, str]]]:
    """Function → (line, source) of each test, of what the condition at that line of the program asks."""
    sources = Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))
    return {a.function: [(test.line, test.source) for test in a.tests] for a in answers(sources, FILE, line)}


def test_a_return_under_a_condition() -> None:
    program = """
    def fit(guard, batch):
        if not guard.spiked(batch):
            step(batch)
    class Guard:
        def spiked(self, batch):
            for p in batch:
                if p.norm() > self.limit:
                    return True
            return False
    """
    assert told(program, 2) == {"spiked": [(7, "if p.norm() > self.limit:")]}


def test_a_value_that_is_returned() -> None:
    program = """
    def fit(self, step):
        if READY and self.due(step):
            save()
    def due(self, step):
        return step % self.every == 0
    """
    assert told(program, 2) == {"due": [(5, "return step % self.every == 0")]}


def test_a_property_a_variable_and_a_function_that_asks_another() -> None:
    program = """
    def fit(self):
        stop = self.monitor.exhausted
        if stop:
            return
    class Monitor:
        @property
        def exhausted(self):
            return self.late()
        def late(self):
            over = clock() > self.deadline
            return over
    """
    assert told(program, 3) == {"exhausted": [(10, "over = clock() > self.deadline")]}


@pytest.mark.parametrize(
    "condition",
    ["self.loss() < best", "first(self.due(step))", "step % 2 == 0", "self.every", "other.unknown()"],
)
def test_what_asks_no_function_of_the_program_for_its_truth(condition: str) -> None:
    program = f"""
    def fit(self, step):
        if {condition}:
            save()
    def due(self, step):
        return step % self.every == 0
    def loss(self):
        return float(self.total) / self.count
    def every(self):
        return self.steps > 9
    """
    assert told(program, 2) == {}


def test_one_operand_of_several_may_not_be_what_decided() -> None:
    program = """
    def fit(self, step, loss):
        if self.due(step) and not loss.isnan():
            save()
    def due(self, step):
        return step % self.every == 0
    """
    assert told(program, 2) == {}


def test_two_functions_of_one_name_are_not_told_apart() -> None:
    program = """
    def fit(self):
        if self.plan.due():
            save()
    class One:
        def due(self): return self.a > 1
    class Two:
        def due(self): return self.b > 1
    """
    assert told(program, 2) == {}


def test_what_was_made_is_no_test() -> None:
    program = """
    def fit(self):
        if self.take():
            step()
    def take(self):
        batch = zeros(3)
        return batch
    """
    assert told(program, 2) == {}


def test_functions_that_ask_each_other_come_to_an_end() -> None:
    program = """
    def fit():
        if even(4):
            step()
    def even(n):
        return not odd(n - 1)
    def odd(n):
        return not even(n - 1)
    """
    assert len(told(program, 2)["even"]) <= 3


def test_who_hands_on_a_flag_answers_by_it() -> None:
    program = """
    def fit(self, step):
        if not self.due(step):
            return
    def due(self, step):
        if step % self.every:
            return False
        return self.writes
    """
    assert told(program, 2) == {"due": [(5, "if step % self.every:"), (7, "return self.writes")]}


def test_who_hands_on_what_is_no_flag_tells_nothing() -> None:
    program = """
    def fit(self):
        if self.model() is None:
            return
    def model(self):
        return self.net
    """
    assert told(program, 2) == {}


def test_match_asks_as_an_if_does() -> None:
    program = """
    def fit(self):
        match self.plan(loss):
            case Action.SAVE:
                save()
    def plan(self, loss):
        if loss < self.best:
            return Action.SAVE
        return Action.NOTHING
    """
    assert told(program, 3) == {"plan": [(6, "if loss < self.best:")]}


@pytest.mark.parametrize(
    "line",
    [
        "path = self.is_best and self.write()",
        "return self.is_best and self.write()",
        "[self.write(x) for x in xs if self.is_best]",
        "if any(x.is_best for x in xs): pass",
        "if self.is_best is Answer.YES: pass",
    ],
)
def test_tests_within_an_expression_ask(line: str) -> None:
    program = f"""
    def fit(self):
        {line}
    class Store:
        @property
        def is_best(self): return self.loss <= min(self.losses)
    """
    assert told(program, 2) == {"is_best": [(5, "return self.loss <= min(self.losses)")]}


@pytest.mark.parametrize("line", ["x = f() if self.is_best and self.ready() else 0", "a = self.is_best and b and c()"])
def test_one_of_several_operands_is_not_said_to_decide(line: str) -> None:
    program = f"""
    def fit(self):
        {line}
    class Store:
        @property
        def is_best(self): return self.loss <= min(self.losses)
    """
    assert told(program, 2) == {}


def test_a_container_whose_items_are_chosen_by_a_test_is_none_itself() -> None:
    program = """
    def fit(self):
        if self.select() is None:
            return
    def select(self):
        if not self.rows:
            return None
        return {k: v[keep] if len(v) > 3 else v for k, v in self.rows}
    """
    assert told(program, 2) == {"select": [(5, "if not self.rows:")]}
