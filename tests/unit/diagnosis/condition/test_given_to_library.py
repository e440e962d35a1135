"""What the user's code gives a library by which the library communicates, ends its loop or leaves something out."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.contexts import flags_chosen
from hangdoc.diagnosis.condition.elsewhere.hooks import skipped_by_hook
from hangdoc.diagnosis.condition.loops.fed_loop import of_answer, of_items, of_score
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"


def sources_of(text: str, file: str = FILE) -> Sources:
    return Sources((SourceText(file, "<module>", 1, textwrap.dedent(text).strip("\n")),))


def flags(text: str, line: int) -> list[str]:
    frame = Frame(FILE, line, "save")
    return [flag.guard.condition for flag in flags_chosen(sources_of(text), (frame,), (frame,), 0)]


def test_a_flag_of_the_call_itself() -> None:
    assert flags("def save(self):\n    dcp.save(state, no_dist=self.local_only)", 2) == ["no_dist=self.local_only"]


@pytest.mark.parametrize("given", ["no_dist=True", "no_dist=no_dist", "planner=self.planner"])
def test_what_decides_nothing_there(given: str) -> None:
    """A constant, what the caller gave, and an argument that says nothing of communicating."""
    assert flags(f"def save(self, no_dist):\n    dcp.save(state, {given})", 2) == []


def test_a_flag_in_options_that_the_call_is_given() -> None:
    export = """
    def save(self, model):
        options = StateDictOptions(full_state_dict=self.writes, cpu_offload=True)
        return get_model_state_dict(model, options=options)
    """
    assert flags(export, 3) == ["full_state_dict=self.writes"]


def test_a_flag_of_the_context_around_the_call() -> None:
    step = """
    def save(self, rows):
        with self.fabric.no_backward_sync(self.model, enabled=self.plan.collecting(rows)):
            self.fabric.backward(self.model(rows))
    """
    assert flags(step, 3) == ["enabled=self.plan.collecting(rows)"]


SAMPLER = """
class ByTokens(Sampler):
    def __iter__(self):
        rows, tokens = [], 0
        for i in range(len(self.lengths)):
            if rows and TEST:
                yield rows
                rows, tokens = [], 0
            rows.append(i)
            tokens += self.lengths[i]
"""


def items(text: str) -> list[str]:
    return [each.source for each in of_items(sources_of(text))]


def test_what_a_sampler_makes_its_batches_by() -> None:
    assert items(SAMPLER.replace("TEST", "tokens > self.limit")) == ["if rows and tokens > self.limit:"]


def test_not_that_a_batch_is_full_nor_which_rank_it_is() -> None:
    assert items(SAMPLER.replace("TEST", "len(rows) == self.size")) == []
    assert items(SAMPLER.replace("TEST", "i % self.world == self.rank")) == []


def test_what_a_data_set_is_filtered_by() -> None:
    assert items("kept = data.filter(lambda row: row['n'] < LIMIT)") == ['lambda row: row["n"] < LIMIT']
    assert items("def short(row):\n    return row['n'] < LIMIT\nkept = data.filter(short)") == [
        'return row["n"] < LIMIT'
    ]


SCORED = """
def metrics(prediction):
    if len(prediction) < LEAST:
        return {"f1": 0.0}
    return {"f1": prediction.mean()}
trainer = Trainer(compute_metrics=metrics, callbacks=[CALLBACK])
"""


def test_a_score_that_stops_the_loop() -> None:
    found = of_score(sources_of(SCORED.replace("CALLBACK", "EarlyStoppingCallback(2)")))
    assert [each.source for each in found] == ["if len(prediction) < LEAST:"]
    assert of_score(sources_of(SCORED.replace("CALLBACK", "PrinterCallback()"))) == []


@pytest.mark.parametrize("answer", ["-1", "None", ""])
def test_a_hook_that_has_the_rest_left_out(answer: str) -> None:
    hook = f"def on_train_batch_start(self, batch, i):\n    if self.over(batch):\n        return {answer}"
    assert [each.source for each in skipped_by_hook(sources_of(hook))[1]] == ["if self.over(batch):"]


def test_not_a_hook_that_answers_otherwise() -> None:
    hook = "def training_step(self, batch, i):\n    if self.plain:\n        return loss(batch)\n    return other(batch)"
    assert skipped_by_hook(sources_of(hook)) == ("", [])


CRITERION = """
class Budget(StoppingCriteria):
    def __call__(self, ids, scores):
        done = ids.shape[1] >= self.limit
        return torch.full((len(ids),), done)
"""


def test_a_criterion_that_a_library_asks_in_each_round() -> None:
    assert [each.source for each in of_answer(sources_of(CRITERION))] == ["done = ids.shape[1] >= self.limit"]
    assert of_answer(sources_of(CRITERION.replace("(StoppingCriteria)", "(Budgeted)"))) == []
