"""Does a loop go over what the program writes out, and never changes?"""

from __future__ import annotations

import ast

import pytest

from hangdoc.diagnosis.source.fixed import is_over_fixed
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

LOOP = "for name, metric in self.metrics.items():\n    pass\n"
METRICS = "self.metrics = {name: F1() for name in CLASSES}\n"
CLASSES = 'CLASSES = ("de", "fr")\n'


def is_fixed(text: str, loop: str = LOOP) -> bool:
    whole = f"{loop}{text}"
    return is_over_fixed(Sources((SourceText("/home/me/train.py", "<module>", 1, whole),)), ast.parse(whole), 1)


@pytest.mark.parametrize(
    "text",
    [
        METRICS + CLASSES,
        "self.metrics = {'f1': F1(), 'accuracy': Accuracy()}\n",
        "self.metrics = nn.ModuleDict({'f1': F1()})\n",
        "self.metrics = dict.fromkeys(range(4), 0)\n",
        "self.metrics: dict[str, Metric] = {'f1': F1()}\n",
    ],
)
def test_written_out(text: str) -> None:
    assert is_fixed(text)
    assert is_fixed(text, "for name in sorted(self.metrics):\n    pass\n")


@pytest.mark.parametrize(
    "text",
    [
        "",
        METRICS,
        METRICS + "CLASSES = load()\n",
        METRICS + CLASSES + "self.metrics[name] = F1()\n",
        METRICS + CLASSES + "board.metrics.update(more)\n",
        METRICS + CLASSES + "del self.metrics[name]\n",
        METRICS + CLASSES + "self.metrics |= more\n",
        METRICS + CLASSES + "self.metrics = load()\n",
        METRICS + CLASSES + "self.metrics, rest = load()\n",
        "self.metrics = {}\n",
        "self.metrics = {'f1': F1(), **more}\n",
        "self.metrics = {name: F1() for name in CLASSES if name in seen}\n" + CLASSES,
        "self.metrics = metrics\n",
        "self.metrics = self.metrics\n",
    ],
)
def test_not_what_may_differ(text: str) -> None:
    assert not is_fixed(text)
