"""Does a loop go over what the program writes out, and never changes?"""

from __future__ import annotations

import ast

import pytest
from made_calls import Made, made_calls

from hangdoc.diagnosis import diagnose
from hangdoc.diagnosis.source.equal_counts import is_over_fixed, is_over_written
from hangdoc.diagnosis.source.settings import place_of
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
        "self.metrics = {f'{kind}/f1': make() for kind, make in KINDS.items()}\nKINDS = {'a': F1, 'b': Accuracy}\n",
        METRICS + "self.metrics = {name: F1() for name in CLASSES}\n" + CLASSES,
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
        "if rank < 3:\n    self.metrics = ['loss', 'f1']\nelse:\n    self.metrics = ['loss']\n",
        "self.metrics = {rank: F1(), 0: Accuracy()}\n",
        "self.metrics = {0, rank}\n",
        "self.metrics = {name: F1() for name in ('all', rank_name)}\n",
        "self.metrics = {name % size: F1() for name, size in KINDS.items()}\nKINDS = {4: size, 5: size}\n",
        "self.metrics = {size: F1() for size in KINDS.values()}\nKINDS = {'a': size, 'b': 2}\n",
        "self.metrics = {short(name): F1() for name in CLASSES}\n" + CLASSES,
        "self.metrics = dict([('all', F1()), (rank_name, F1())])\n",
        METRICS + CLASSES + "self.metrics.add_module(name, F1())\n",
        METRICS + CLASSES + "self.metrics.__setitem__(name, F1())\n",
        METRICS + CLASSES + "setattr(self, 'metrics', more)\n",
        METRICS + CLASSES + "known = self.metrics\nknown['all'] = F1()\n",
        "self.metrics = known = {'f1': F1()}\nknown['all'] = F1()\n",
    ],
)
def test_not_what_may_differ(text: str) -> None:
    assert not is_fixed(text)


TWO_LISTS = """
class Evaluation:
    def __init__(self, rank):
        if rank < 3:
            self.heads = ["loss", "accuracy"]
        else:
            self.heads = ["loss"]

    def run(self):
        for name in self.heads:
            value = self.compute(name)
            if value is not None:
                dist.all_reduce(value)
        dist.barrier()
"""


def test_lists_of_two_lengths_do_not_let_the_condition_in_the_loop_decide() -> None:
    call: Made = ("all_reduce", [(12, "run"), (20, "main")])
    past: Made = ("barrier", [(13, "run"), (20, "main")])
    found = diagnose(made_calls(TWO_LISTS, {rank: [call, call if rank < 3 else past] for rank in range(4)}))
    assert found.cause is not None
    assert (found.cause.code, str(found.confidence)) == ("HD102", "likely")
    one = TWO_LISTS.replace('["loss"]', '["loss", "accuracy"]')
    found = diagnose(made_calls(one, {rank: [call, call if rank < 3 else past] for rank in range(4)}))
    assert found.cause is not None
    assert found.cause.code == "HD101"


def is_written(over: str, before: str = "", more: str = "") -> bool:
    text = f"def main():\n    {before}\n    for each in {over}:\n        call(each)\n\n{more}"
    sources = Sources((SourceText("/home/me/train.py", "<module>", 1, text),))
    at = place_of(sources, "/home/me/train.py", 3)
    assert at is not None
    return is_over_written(sources, at, 3)


@pytest.mark.parametrize(
    ("over", "before"),
    [
        ("[a, b]", "pass"),
        ("[*asked[:2], *texts, asked[2]]", "asked = [ask(i) for i in range(3)]; texts = ['a', 'b']"),
        ("known + [rank]", "known = list(range(4))"),
        ("zip(known, range(2))", "known = [a, b]"),
        ("enumerate(known[-2:])", "known = [a, b, c]"),
    ],
)
def test_as_many_as_the_source_shows(over: str, before: str) -> None:
    assert is_written(over, before)


@pytest.mark.parametrize(
    ("over", "before"),
    [
        ("[*rows, a]", "rows = load()"),
        ("known[:rank]", "known = [a, b]"),
        ("[x for x in known if x]", "known = [a, b]"),
        ("{*known}", "known = [a, b]"),
        ("known + rows", "known = [a]; rows = load()"),
        ("zip(*known)", "known = [a, b]"),
        ("zip(known, rows)", "known = [a, b]; rows = load()"),
        ("known", "known = [a, b]; known.append(c)"),
        ("known", "known = [a, b]; known.pop()"),
        ("known", "known = [a, b]; known[:] = []"),
        ("known", "known = [a, b]; known = [a]"),
        ("{rank, 0}", "pass"),
        ("range(rank)", "pass"),
    ],
)
def test_as_many_as_only_the_rank_knows(over: str, before: str) -> None:
    assert not is_written(over, before)
