"""Does one call run different functions on the two sides, and which line chose what it runs?"""

from __future__ import annotations

import textwrap

import pytest
from called_jobs import Made, diagnosis

from hangdoc.diagnosis.condition.elsewhere.called_otherwise import called_otherwise
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"
TEXT = textwrap.dedent("""
    class Plain:
        def reduce(self):
            all_reduce()
            barrier()

    class Scaled:
        def reduce(self):
            all_gather()

    class Session:
        def __init__(self, name):
            self.reducer = REGISTRY[name]()

        def train(self, kind, callbacks):
            for step in range(3):
                self.reducer.reduce()
            run = STEPS[kind]
            run(self)
            for callback in callbacks:
                callback.reduce()
""").lstrip("\n")
SOURCES = Sources((SourceText(FILE, "<module>", 1, TEXT),))


@pytest.mark.parametrize(
    ("line", "functions", "name", "chosen"),
    [
        pytest.param(16, ("reduce", "reduce"), None, None, id="not in a loop, whose rounds may differ"),
        pytest.param(18, ("plain_step", "scaled_step"), "run", 17, id="a variable that holds a function"),
        pytest.param(20, ("reduce", "reduce"), None, None, id="not the items of a loop, at which the sides may differ"),
    ],
)
def test_what_a_call_runs_is_chosen_elsewhere(
    line: int, functions: tuple[str, str], name: str | None, chosen: int | None
) -> None:
    sides = [(Frame(FILE, at, f), Frame(FILE, line, "train")) for at, f in zip((3, 8), functions, strict=True)]

    found = called_otherwise(SOURCES, (sides[0], sides[1]))

    assert (found and found.name, found and found.chosen.line) == (name, chosen)


def test_two_lines_of_one_function_are_no_other_call() -> None:
    caller = Frame(FILE, 16, "train")

    assert called_otherwise(SOURCES, ((Frame(FILE, 3, "reduce"), caller), (Frame(FILE, 4, "reduce"), caller))) is None


PHASES = """
class Warm:
    def run(self, batch):
        if batch.bad:
            return
        dist.all_reduce(batch.x)
class Main:
    def run(self, batch):
        dist.broadcast(batch.x)
class Trainer:
    def step(self, i, batch):
        self.phase = Warm() if i < self.warmup else Main()
        self.phase.run(batch)
    def fit(self, loader):
        for i, batch in enumerate(loader):
            self.step(i, batch)
"""
WARM, MAIN = ("all_reduce", "5 run, 12 step, 15 fit"), ("broadcast", "8 run, 12 step, 15 fit")

HANDLED = """
def on_data(msg):
    if msg.empty:
        return
    dist.all_reduce(msg.x)
def on_sync(msg):
    dist.broadcast(msg.x)
HANDLERS = {"data": on_data, "sync": on_sync}
def serve(inbox):
    while True:
        msg = inbox.get()
        dispatch(msg)
def dispatch(msg):
    handler = HANDLERS[msg.kind]
    handler(msg)
"""
DATA, SYNC = ("all_reduce", "4 on_data, 14 dispatch, 11 serve"), ("broadcast", "6 on_sync, 14 dispatch, 11 serve")

STAGES = """
class Encoder:
    def run(self, batch):
        if batch.bad:
            return
        dist.all_reduce(batch.x)
class Decoder:
    def run(self, batch):
        dist.all_reduce(batch.x)
class Trainer:
    def __init__(self, rank):
        self.stage = STAGES[rank]()
    def fit(self, loader):
        for batch in loader:
            self.stage.run(batch)
            dist.broadcast(batch.y)
"""
ENCODES, DECODES, SHARES = ("all_reduce", "5 run, 14 fit"), ("all_reduce", "8 run, 14 fit"), ("broadcast", "15 fit")


@pytest.mark.parametrize(
    ("text", "usual", "skipped", "condition"),
    [
        pytest.param(PHASES, [WARM, WARM, WARM], [WARM, WARM, MAIN], "if batch.bad:", id="an attribute set each round"),
        pytest.param(HANDLED, [DATA, SYNC, DATA], [DATA, SYNC, SYNC], "if msg.empty:", id="a variable in a while"),
    ],
)
def test_a_side_that_is_a_round_further_did_not_choose_otherwise(
    text: str, usual: list[Made], skipped: list[Made], condition: str
) -> None:
    found = diagnosis(text, {0: usual, 1: usual, 2: usual, 3: skipped})
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.condition == condition
    assert "made another" not in str(found.why)


def test_the_stages_of_a_pipeline_are_no_other_choice() -> None:
    decodes = [DECODES, SHARES, DECODES]
    found = diagnosis(STAGES, {0: [ENCODES, SHARES, SHARES], 1: decodes, 2: decodes, 3: decodes})
    assert "made another" not in str(found.why)


TASKS = """
class Task:
    def __init__(self, kind):
        self.work = WORK[kind]()
    def run(self):
        self.work.apply()
def main(tasks):
    for task in tasks:
        task.run()
class One:
    def apply(self):
        dist.broadcast(1)
class Two:
    def apply(self):
        dist.all_reduce(1)
"""


def test_the_items_of_a_loop_are_several_objects_that_each_choose_once() -> None:
    sources = Sources((SourceText(FILE, "<module>", 1, TASKS.strip("\n")),))
    outer = Frame(FILE, 5, "run"), Frame(FILE, 8, "main")
    assert called_otherwise(sources, ((Frame(FILE, 11, "apply"), *outer), (Frame(FILE, 14, "apply"), *outer))) is None
