"""What set, filled or chose what a condition only asks."""

from __future__ import annotations

import textwrap

import pytest

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.set_before import set_before, with_settings
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.message import Condition
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


def captured(program: str) -> Sources:
    return Sources((SourceText(FILE, "<module>", 1, textwrap.dedent(program).lstrip("\n")),))


def told(program: str) -> list[str]:
    """What set the values of the condition in the line that ends in `# asked`."""
    sources = captured(program)
    line = next(i for i, text in enumerate(textwrap.dedent(program).lstrip("\n").splitlines(), 1) if "# asked" in text)
    return [test.source for answer in set_before(sources, FILE, line) for test in answer.tests]


_TOLD = {
    "an attribute that another method sets, not where it begins anew": (
        """
        class Monitor:
            def __init__(self):
                self.stale = False
            def reset(self):
                self.stale = False
            def observe(self, value):
                if self.count > 3:
                    if value > 4 * self.mean:
                        self.stale = True
        def refresh(table):
            if table.monitor.stale:  # asked
                sync()
        """,
        ["if value > 4 * self.mean:"],
    ),
    "a constant that a method sets, by the only call of the method": (
        """
        class Channel:
            def __init__(self):
                self.shape = None
            def forget(self):
                self.shape = None
            def expect(self):
                if self.shape is None:  # asked
                    receive()
        def reset(block, channel):
            if block.needs_reset:
                channel.forget()
        """,
        ["if block.needs_reset:"],
    ),
    "an argument of the only call": (
        """
        def write(self, state, full=False):
            if full:  # asked
                gather(state)
        def run(self):
            self.write(self.state, full=score > self.best)
        """,
        ["full=score > self.best"],
    ),
    "an element of what a function returns": (
        """
        def step(self, docs):
            kept, dropped = self.split(docs)
            if dropped:  # asked
                report(dropped)
        def split(self, docs):
            kept, dropped = [], []
            for doc in docs:
                if doc.ok:
                    kept.append(doc)
                    continue
                if doc.length > self.limit:
                    dropped.append(doc)
            return kept, dropped
        """,
        ["if doc.length > self.limit:"],
    ),
    "a field of an object that a function makes": (
        """
        @dataclass
        class Decision:
            skip: bool
            scale: float = 1.0
        def decide(norm):
            return Decision(norm > ceiling, scale=2.0)
        def step(self):
            verdict = decide(norm_of(self.model))
            if verdict.skip:  # asked
                return
        """,
        ["skip=norm > ceiling"],
    ),
    "a list that a loop goes over": (
        """
        class Inspector:
            def check(self, entry):
                if crc(entry) != entry.crc:
                    self.damaged.append(entry)
            def hand_over(self):
                for entry in self.damaged:  # asked
                    send(entry)
        """,
        ["if crc(entry) != entry.crc:"],
    ),
    "a plan from which an entry is taken": (
        """
        def prepare(self, free):
            for name in list(self.plan):
                if free < self.needs[name]:
                    self.plan.pop(name)
        def start(self):
            for name, stage in self.plan.items():  # asked
                stage()
        """,
        ["if free < self.needs[name]:"],
    ),
    "what a generator gives with each item": (
        """
        class Windows:
            def __iter__(self):
                for length in self.lengths:
                    closing = False
                    if length >= self.goal:
                        closing = True
                    yield length, closing
        def fit(windows):
            for i, (batch, closing) in enumerate(windows):
                if closing:  # asked
                    sync()
        fit(Windows())
        """,
        ["if length >= self.goal:"],
    ),
    "a file that a class method asks for": (
        """
        class Tracer:
            def __init__(self, enabled):
                self.enabled = enabled
            @classmethod
            def make(cls, folder):
                return cls(os.path.exists(folder))
            def note(self):
                if self.enabled:  # asked
                    sync()
        """,
        ["enabled=os.path.exists(folder)"],
    ),
    "a choice of a handler": (
        """
        def serve(buffer):
            kind = "keep"
            if buffer.bytes > buffer.cap:
                kind = "flush"
            found = HANDLERS[kind]  # asked
        """,
        ["if buffer.bytes > buffer.cap:"],
    ),
    "a count that is compared with a limit": (
        """
        def step(self, loss):
            if loss.isnan():
                self.bad += 1
        def check(self):
            if self.bad >= self.limit:  # asked
                stop()
        """,
        ["if loss.isnan():"],
    ),
    "a generator that ends by a flag, and an object with a truth of its own": (
        """
        class Control:
            def __init__(self):
                self.memory = Memory()
            def epochs(self):
                while not self.memory:
                    yield self.memory
            def fit(self):
                for epoch in self.epochs():  # asked
                    train()
        class Memory:
            def __bool__(self):
                return len(self.items) >= self.need
        """,
        ["while not self.memory:", "return len(self.items) >= self.need"],
    ),
    "a list that is filled for each of some": (
        """
        def exchange(self):
            ops = []
            for peer in self.partners():
                ops.append(peer)
            if ops:  # asked
                send(ops)
        def partners(self):
            return [peer for peer in self.around if self.activity > self.quiet]
        """,
        ["return [peer for peer in self.around if self.activity > self.quiet]"],
    ),
    "an exception": (
        """
        def work(self):
            try:
                upload()
            except OSError:
                self.failed = True
        def check(self):
            while not self.failed:  # asked
                step()
        """,
        ["except OSError:"],
    ),
    "a name like a constant's, set where an import failed": (
        """
        try:
            import fused
            HAVE_FUSED = True
        except ImportError:
            HAVE_FUSED = False
        def norm(grads):
            if not HAVE_FUSED:  # asked
                reduce(grads)
        """,
        ["except ImportError:"],
    ),
}


@pytest.mark.parametrize("kind", _TOLD)
def test_what_set_it(kind: str) -> None:
    program, expected = _TOLD[kind]
    assert told(program) == expected


_SILENT = {
    "a comparison of what is computed there": """
        def step(self):
            loss = self.model(x)
            if loss < self.best:  # asked
                self.best = loss
        """,
    "the rank": """
        def main():
            rank = int(os.environ["RANK"])
            if rank == 0:  # asked
                save()
        """,
    "a constant of the program": """
        FIXED = os.environ.get("FIXED") == "1"
        def main():
            if FIXED:  # asked
                save()
        """,
    "a setting of the job, and a count of rounds": """
        def prepare(self, step):
            if step % self.cfg.every == 0:
                self.full = True
        def main(self):
            if self.full:  # asked
                save()
        """,
    "what a collective agreed on": """
        def look(self):
            dist.all_reduce(flag)
            if flag.item():
                self.full = True
        def main(self):
            if self.full:  # asked
                save()
        """,
    "a list that is filled under no condition": """
        def main(self):
            rows = []
            for each in self.loader:
                rows.append(each)
            if rows:  # asked
                save()
        """,
}


@pytest.mark.parametrize("kind", _SILENT)
def test_what_is_the_same_everywhere_or_no_news(kind: str) -> None:
    assert told(_SILENT[kind]) == []


_BOTH = """
def look(self, x):
    if x.sum() > 3:
        self.full = True
    if x.min() < 1:
        self.late = True
def main(self):
    if self.full and self.late:
        save()
"""


def test_an_operand_that_is_seen_alike_decides_nothing() -> None:
    sources = captured(_BOTH)
    both = set_before(sources, FILE, 7)
    assert [test.source for each in both for test in each.tests] == ["if x.sum() > 3:", "if x.min() < 1:"]
    one = set_before(sources, FILE, 7, {"self.full"}.__contains__)
    assert [(each.subject, each.how) for each in one] == [("self.late", "is set under")]


def test_no_more_than_three_tests_are_told() -> None:
    found = [Answer("f", tuple(Condition(f"if x > {i}:", FILE, 20 + i) for i in range(LISTED)))]
    assert with_settings(captured(_BOTH), FILE, 7, found) == found


def test_names_that_are_set_to_each_other_end() -> None:
    program = """
    def main(self):
        a = b
        b = a
        if a:  # asked
            save()
    """
    assert told(program) == []
