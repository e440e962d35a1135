"""Does one call run different functions on the two sides, and which line chose what it runs?"""

from __future__ import annotations

import pytest
from called_jobs import Made, diagnosis

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
