"""Which conditions choose what a loss is made of."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.condition.elsewhere.in_loss import conditions_in_loss
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


def told(program: str) -> list[str]:
    """The conditions of the loss whose backward is in the line that ends in `# here`."""
    text = textwrap.dedent(program).lstrip("\n")
    line = next(i for i, each in enumerate(text.splitlines(), 1) if "# here" in each)
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    return [each.source for each in conditions_in_loss(sources, Frame(FILE, line, "train"))]


_TOLD = {
    "a comprehension, and what fills the batch that it tests": (
        """
        class Frames:
            def __iter__(self):
                for index in range(self.count):
                    batch = {x: read(index)}
                    if (self.drive, index) not in self.radar_off:
                        batch[DEPTH] = depth(index)
                    yield batch
        def total(outputs, batch):
            parts = {t.name: t.loss(outputs[t.name], batch[t.name]) for t in TASKS if t.name in batch}
            return sum(parts.values()), {k: v.item() for k, v in parts.items()}
        def train(model):
            for batch in Frames():
                loss, parts = total(model(batch), batch)
                loss.backward()  # here
        """,
        ["if t.name in batch", "if (self.drive, index) not in self.radar_off:"],
    ),
    "a term that is added": (
        """
        def train(model, batch):
            loss = model(batch)
            if batch.depth is not None:
                loss = loss + l1(model.depth(batch), batch.depth)
            scaler.scale(loss / 4).backward()  # here
        """,
        ["if batch.depth is not None:"],
    ),
    "terms in a list, given to an engine": (
        """
        def train(model, engine, batch):
            terms = [model(batch)]
            for head in model.heads:
                if head.name not in batch.labels:
                    continue
                terms.append(head(batch))
            engine.backward(torch.stack(terms).sum())  # here
        """,
        ["if head.name not in batch.labels:"],
    ),
    "what the program answers to a trainer": (
        """
        class Mine(Trainer):
            def compute_loss(self, model, inputs, return_outputs=False):
                kept = inputs.labels > 0
                if not kept.any():
                    return zero(model)
                return model(inputs).loss
        def train(trainer):
            trainer.train()  # here
        """,
        ["if not kept.any():"],
    ),
    "not a number": (
        """
        def train(model, batch):
            weight = 2.0 if batch.hard else 1.0
            loss = weight * model(batch)
            loss.backward()  # here
        """,
        [],
    ),
    "not what is the same on all ranks": (
        """
        def train(model, batch, cfg, step):
            loss = model(batch)
            if cfg.use_aux:
                loss = loss + aux(model)
            if step % 2 == 0:
                loss = loss + penalty(model)
            loss.backward()  # here
        """,
        [],
    ),
    "not what only logs": (
        """
        def train(model, batch):
            loss = model(batch)
            if loss > best:
                print(loss)
            loss.backward()  # here
        """,
        [],
    ),
}


@pytest.mark.parametrize("program, expected", _TOLD.values(), ids=_TOLD)
def test_what_chooses_the_parts_of_a_loss(program: str, expected: list[str]) -> None:
    assert told(program) == expected
