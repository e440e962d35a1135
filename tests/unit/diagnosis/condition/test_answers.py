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


def test_a_bare_name_is_no_method() -> None:
    program = """
    def fit(callbacks, state):
        if callbacks.vetoes(state):
            return
    class Callbacks:
        def vetoes(self, state):
            answers = [each.veto(state) for each in self.members]
            return any(answers)
    class World:
        def any(self, flag):
            if self.alone:
                return flag
            return vote(flag)
    """
    assert told(program, 2) == {"vetoes": [(7, "return any(answers)")]}


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


EVERY = """
class Every:
    def __init__(self, seconds):
        self.seconds = seconds
    def __call__(self, engine, event):
        if event % 20 == 0 and clock() - self.last >= self.seconds:
            return True
        return False
"""
OF_EVERY = [(5, "if event % 20 == 0 and clock() - self.last >= self.seconds:")]


def with_every(program: str, line: int) -> dict[str, list[tuple[int, str]]]:
    """``told`` of the program's own line, under the seven lines of the class."""
    return told(EVERY.lstrip("\n") + textwrap.dedent(program).lstrip("\n"), line + 7)


@pytest.mark.parametrize("due", ["Every(5)", "partial(Every(5), None)", "functools.partial(Every(5))"])
def test_an_object_that_a_library_is_given_as_a_filter(due: str) -> None:
    program = f"""
    def main(engine):
        due = {due}
        @engine.on(Events.ITERATION_COMPLETED(event_filter=due))
        def save(engine):
            barrier()
    """
    assert with_every(program, 3) == {"due": OF_EVERY}


def test_an_object_that_is_made_in_the_very_line() -> None:
    program = """
    def main(engine):
        engine.add_event_handler(Events.STARTED(event_filter=Every(5)), save)
    """
    assert with_every(program, 2) == {"Every": OF_EVERY}


def test_an_attribute_that_is_called_and_is_an_object_of_the_programs() -> None:
    program = """
    class Fit:
        def __init__(self):
            self.due = Every(5)
        def run(self, step):
            if self.due(self, step):
                save()
    """
    assert with_every(program, 5) == {"due": OF_EVERY}


def test_functions_lambdas_and_what_a_function_makes_are_given() -> None:
    program = """
    def late(limit, engine, event):
        return clock() > limit
    def every(n):
        def at(engine, event):
            return event % n == 0 and ready()
        return at
    def main(engine):
        soon = lambda engine, event: event > first()
        engine.on(Events.STARTED(event_filter=partial(late, 9)))
        engine.on(Events.STARTED(event_filter=every(3)))
        engine.on(Events.STARTED(event_filter=soon))
    """
    assert told(program, 9) == {"late": [(2, "return clock() > limit")]}
    assert told(program, 10) == {"every": [(5, "return event % n == 0 and ready()")]}
    assert told(program, 11) == {"soon": [(8, "lambda engine, event: event > first()")]}


@pytest.mark.parametrize(
    "setting",
    ["due = make()", "due = Every(5) if fast else Other()", "due = Every(5)\n    due = Every(6)", "due = Other(5)"],
)
def test_nothing_is_told_of_what_may_be_something_else(setting: str) -> None:
    program = f"""
def main(engine, step):
    {setting}
    if due(step):
        save()
"""
    line = 4 if "\n" in setting else 3
    assert with_every(program, line) == {}


def test_an_argument_is_no_name_that_another_function_sets() -> None:
    program = """
    def other():
        due = Every(5)
    def main(due, step):
        if due(step):
            save()
    """
    assert with_every(program, 4) == {}


def test_any_answers_by_what_it_asks_of_each() -> None:
    program = """
    def detected(self):
        return any(self.moved(p) for p in self.parts)
    def moved(self, p):
        return p.gap() > self.limit
    """
    assert told(program, 2) == {"moved": [(4, "return p.gap() > self.limit")]}


def test_what_is_made_only_after_a_test_answers_by_it() -> None:
    program = """
    def exchange(self):
        flat = self.pack()
        if flat is None:
            return
    def pack(self):
        kept = self.screen()
        return kept and torch.cat(kept)
    def screen(self):
        if self.peak > self.limit:
            return None
        return self.grads
    """
    tests = [(7, "return kept and torch.cat(kept)"), (9, "if self.peak > self.limit:")]
    assert told(program, 3) == {"pack": tests}


def test_a_key_by_which_the_function_is_looked_up_is_asked_for() -> None:
    program = """
    def step(self, x):
        mode = self.pick(x)
        self.ops[mode](x)
    def pick(self, x):
        if x.mean() > 1:
            return "mix"
        return "keep"
    """
    assert told(program, 3) == {"pick": [(5, "if x.mean() > 1:")]}


def test_of_a_long_list_the_test_is_told() -> None:
    program = """
    def lagging(self):
        return [self.replicas[number] for number in sorted(self.versions) if self.versions[number] < self.latest]

    def round(self):
        behind = self.lagging()
        sync(behind)
    """
    assert told(program, 5) == {"lagging": [(2, "if self.versions[number] < self.latest")]}


def test_what_filter_is_given() -> None:
    program = """
    def worth(name):
        return table[name].size >= SMALL

    def export(names):
        for name in filter(worth, names):
            save(name)
    """
    assert told(program, 5) == {"worth": [(2, "return table[name].size >= SMALL")]}


def test_a_property_before_a_call_whose_result_is_added() -> None:
    program = """
    def report(self, step):
        self.lines += self.active and self.emit(step)
    @property
    def active(self):
        return self.rank in self.wanted
    """
    assert told(program, 2) == {"active": [(5, "return self.rank in self.wanted")]}
