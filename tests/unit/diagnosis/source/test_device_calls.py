"""The call behind which a device waits, by the source of the line at which its rank stands."""

from __future__ import annotations

from hangdoc.diagnosis.source.device_calls import call_behind
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


def behind(source: str, line: int, function: str = "train") -> str:
    return call_behind(Sources((SourceText(FILE, "<module>", 1, source),)), (Frame(FILE, line, function),))


PLAIN = """\
def train(x):
    dist.all_reduce(x)
    y = x * 2
    print(y.item())

def other(x):
    dist.barrier()
"""


def test_it_is_the_last_one_above_the_line() -> None:
    assert behind(PLAIN, 4) == "all_reduce"


def test_a_line_above_every_call_waits_for_none() -> None:
    assert behind(PLAIN.replace("    dist.all_reduce(x)\n    y", "    y"), 3) == ""


def test_a_call_under_a_condition_may_have_been_left_out() -> None:
    assert behind("def train(x):\n    if x.numel():\n        dist.all_reduce(x)\n    print(x.item())\n", 4) == ""


def test_a_loop_that_has_ended_has_called_it() -> None:
    wrapped = "model = DDP(net)\ndef train(xs):\n    for x in xs:\n        model(x).backward()\n    sync()\n"
    assert behind(wrapped, 5) == "backward"


def test_backward_without_a_wrapped_model_calls_nothing() -> None:
    assert behind("def train(x):\n    net(x).backward()\n    sync()\n", 3) == ""


def test_calls_of_functions_inside_do_not_count_for_the_module() -> None:
    assert behind(PLAIN + "torch.cuda.synchronize()\n", 8, "<module>") == ""
