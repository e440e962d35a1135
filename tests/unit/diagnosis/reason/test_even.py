"""What comes out alike on all ranks by its nature, and what always goes one way in a process."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.even import Even
from hangdoc.model.snapshot import Module

FILE = "/job/train.py"


def asked(text: str) -> tuple[Even, Predicate]:
    """The predicate on the line '# here'."""
    code = textwrap.dedent(text).lstrip("\n")
    program = Program((), [Module(FILE, "sha256:0", code)])
    line = next(number for number, each in enumerate(code.split("\n"), 1) if "# here" in each)
    return Even(program), next(each for each in program.predicates() if each.line == line)


LOOP = """
    def main(rank, cfg):
        found = load(cfg.path)
        done = 0
        for step in range(100):
            done += {added}
            if {test}:  # here
                save()
"""


@pytest.mark.parametrize(
    ("test", "added", "even"),
    [
        ("step % 10 == 0", "1", True),
        ("done > cfg.steps", "1", True),
        ("step < len(range(9))", "1", True),
        ("step % 10 == rank", "1", False),  # the rank is a source of difference
        ("step % 10 == found", "1", False),  # data is
        ("done > 3", "found", False),
        ("step > limit()", "1", False),  # of a call nothing is known
        ("self.veto", "1", False),
        ("found.cancelled", "1", False),  # anybody may set it
    ],
)
def test_by_what_goes_into_it(test: str, added: str, even: bool) -> None:
    of, predicate = asked(LOOP.format(test=test, added=added))
    assert of.is_even(predicate) is even


@pytest.mark.parametrize(("under", "even"), [("step > 3", True), ("isnan(loss)", False)])
def test_what_decides_whether_it_is_set_goes_into_it(under: str, even: bool) -> None:
    text = f"""
        def main():
            late = False
            for step in range(100):
                loss = train(step)
                if {under}:
                    late = True
                if late:  # here
                    break
    """
    of, predicate = asked(text)
    assert of.is_even(predicate) is even


def test_a_setting_that_one_rank_changes_is_none() -> None:
    text = """
        def main(rank, args):
            if rank == 2:
                args.every = 3
            for step in range(9):
                if step % args.every == 0:  # here
                    save()
    """
    of, predicate = asked(text)
    assert not of.is_even(predicate)


PLACE = """
    class Channel:
        def __init__(self, after):
            self.after = after

        def send(self, x):
            if self.after is None:  # here
                return
            put(x)

        {more}
"""


@pytest.mark.parametrize(("more", "settled"), [("pass", True), ("def end(self): self.after = None", False)])
def test_what_is_set_once_is_settled(more: str, settled: bool) -> None:
    of, predicate = asked(PLACE.format(more=more))
    assert of.is_settled(predicate) is settled


def test_what_its_callers_hand_on_is_read() -> None:
    text = """
        def due(used, limit):
            if used > limit:  # here
                return True

        def main():
            largest, most = measure(), 5
            if due(largest, most):
                save()
    """
    of, predicate = asked(text)
    assert {each.name for each in of.read_by(predicate)} == {"largest", "most"}
