"""On which ranks, and for which events, was the handler registered that only one side is in?"""

from __future__ import annotations

import ast
import textwrap
from time import process_time

import pytest
from called_jobs import diagnosis

from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.values import Values
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import JobSnapshot, SourceText

FILE = "/home/me/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/somelib/engine.py"
RUN = Frame(LIBRARY, 9, "Engine.run"), Frame(FILE, 40, "main")
STEP: Stack = (Frame(FILE, 30, "step"), Frame(LIBRARY, 11, "Engine.step"), *RUN)


def conditions(text: str, inside: str = "dump", other: Stack = STEP) -> list[str]:
    """The conditions by which rank 0 alone is in that handler, which the library called."""
    lines = textwrap.dedent(text).strip("\n").splitlines()
    padded = [*lines, *["pass"] * (60 - len(lines))]  # so that the stacks' lines are of this file
    sources = Sources((SourceText(FILE, "<module>", 1, "\n".join(padded)),))
    stack = (Frame(FILE, 50, inside), Frame(LIBRARY, 20, "Engine.fire"), *RUN)
    values = Values(JobSnapshot(taken=1.0, mode="watch"))
    return [p.guard.condition for p in diverging_guards(sources, values, (stack, other), ((0,), (1, 2)))]


FILTERED = "engine.add_event_handler(Events.STARTED(event_filter=spike), self.dump)"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if rank == 0:\n    engine.add_event_handler(Events.STARTED, self.dump)", ["if rank == 0:"]),
        (FILTERED, ["event_filter=spike"]),
        ("engine.add_event_handler(Events.STARTED(spike), dump)", ["Events.STARTED(spike)"]),
        ("@engine.on(Events.STARTED(event_filter=spike))\ndef dump(engine):\n    pass", ["event_filter=spike"]),
        ("def main():\n    if rank == 0:\n        @engine.on(Events.STARTED)\n        def dump(e):\n            pass",
         ["if rank == 0:"]),
        ("if verbose:\n    engine.add_event_handler(Events.STARTED, self.dump)", []),
        ("def log(dump):\n    if rank == 0:\n        print(dump)", []),
        (f"{FILTERED}\nengine.add_event_handler(Events.COMPLETED, self.dump)", []),
        ("if rank == 0:\n    print('dumps first:', args.dump)", []),
        ("if rank == 0:\n    timer = Repeat(60, plot.dump)", []),
        ("if rank == 0:\n    atexit.register(plot.dump)", []),
        ("if rank == 0:\n    callbacks.append(self.dump)", ["if rank == 0:"]),
        ("class Plot:\n    def dump(self):\n        pass\nclass Saver:\n    def dump(self):\n        pass\n"
         "if rank == 0:\n    engine.on(Events.STARTED, plot.dump)", []),
    ],
)  # fmt: skip
def test_what_decides_where_the_handler_runs(text: str, expected: list[str]) -> None:
    assert conditions(text) == expected


ATTACH = "def attach(engine):\n    engine.add_event_handler(Events.STARTED, dump)\n"
PLAN = 'PLAN = {"main": [log, attach], "worker": [log]}\n'
ROLE = 'role = "main" if rank == 0 else "worker"\n'
LOOKUP = "for each in PLAN[role]:\n    each(engine)\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("if rank == 0:\n    attach(engine)", ["if rank == 0:"]),
        ("if rank == 0:\n    attach(engine)\nattach(other)", []),
        ("if rank == 0:\n    attach(engine)\nhooks = [attach]", []),
        ("attach(engine)", []),
        (PLAN + ROLE + LOOKUP, ["attach in PLAN[role]"]),
        (PLAN + "role = cfg.role\n" + LOOKUP, []),
        (PLAN.replace("[log]", "[attach]") + ROLE + LOOKUP, []),
        (PLAN + ROLE + LOOKUP + "attach(engine)", []),
    ],
)
def test_what_runs_the_function_that_registers_the_handler(text: str, expected: list[str]) -> None:
    assert conditions(ATTACH + text) == expected


def test_nothing_where_the_other_side_is_in_the_handler_as_well() -> None:
    assert conditions(FILTERED, other=(Frame(FILE, 52, "dump"), Frame(LIBRARY, 20, "Engine.fire"), *RUN)) == []


def test_many_lines_that_register_a_handler_are_read_at_once() -> None:
    lines = ["def main(engine, hook):", *("    engine.on(Events.STARTED, hook)" for _ in range(8000))]
    text = "\n".join([*lines, "def hook(engine):", "    dist.barrier()"])
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    stack = (Frame(FILE, 8003, "hook"), Frame(LIBRARY, 20, "Engine.fire"), Frame(LIBRARY, 9, "Engine.run"))
    began = process_time()
    ast.parse(text)
    once = process_time() - began
    began = process_time()
    values = Values(JobSnapshot(taken=1.0, mode="watch"))
    assert diverging_guards(sources, values, (stack, (Frame(LIBRARY, 9, "Engine.run"),)), ((0,), (1, 2))) == []
    assert process_time() - began < 60 * once + 1


ENGINE = """
def run(self, data):
    while self.state.epoch < self.state.max_epochs:
        self._run_once()
        self._fire(Events.EPOCH_COMPLETED)
def _run_once(self):
    while True:
        try:
            batch = next(self._it)
        except StopIteration:
            break
        self.process(batch)
def _fire(self, event):
    for func, args in self.handlers[event]:
        func(self, *args)
"""
VALIDATED = """
def validate(engine):
    x = 1
    dist.barrier()
def main(cfg, loader):
    engine = Engine(step)
    engine.add_event_handler(Events.EPOCH_COMPLETED(event_filter=even_epochs), validate)
    engine.run(loader)
def step(engine, batch):
    dist.all_reduce(batch)
"""
TRAINS = ("all_reduce", "9 step, lib:11 _run_once, lib:3 run, 7 main")
VALIDATES = ("barrier", "3 validate, lib:14 _fire, lib:4 run, 7 main")


@pytest.mark.parametrize("library", [ENGINE, ""])
def test_a_filter_of_the_epochs_end_is_not_why_one_epoch_ended_earlier(library: str) -> None:
    found = diagnosis(
        VALIDATED, {r: [TRAINS, TRAINS, VALIDATES if r == 2 else TRAINS] for r in range(4)}, library=library
    )
    branch = found.divergence.branch if found.divergence is not None else None
    assert branch is None or "event_filter" not in branch.condition


NAMED = """
class Saver:
    def save(self, trainer):
        x = 1
        dist.barrier()
def main(rank):
    saver = Saver()
    if rank == 0:
        trainer.callbacks.append(saver.save)
    trainer.fit()
"""


@pytest.mark.parametrize("shown", [{}, {rank: {"rank": str(rank)} for rank in range(4)}])
def test_a_condition_on_the_rank_that_the_values_contradict_decided_nothing(shown: dict[int, dict[str, str]]) -> None:
    trains, saves = (
        ("all_reduce", "lib:77 step, lib:70 fit, 9 main"),
        ("barrier", "4 save, lib:88 fire, lib:72 fit, 9 main"),
    )
    found = diagnosis(NAMED, {r: [trains, trains, saves if r == 2 else trains] for r in range(4)}, shown)
    assert found.confidence != Confidence.CERTAIN or "rank == 0" not in str(found.why)
    assert not shown or "rank == 0" not in str(found.why)
