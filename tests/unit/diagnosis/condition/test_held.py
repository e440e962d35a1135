"""What decides how many items a loop finds in a container?"""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangdoc.diagnosis.condition.loops.held import items_of, items_of_value
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/job/train.py"


def chosen(program: str) -> list[tuple[int, str]]:
    """(line, source) of the conditions that choose what the loop in `fit` goes over."""
    text = textwrap.dedent(program).lstrip("\n")
    sources = Sources((SourceText(FILE, "<module>", 1, text),))
    tree = sources.function(FILE, 1)
    assert tree is not None
    fit = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "fit")
    loop = next(n for n in ast.walk(fit) if isinstance(n, ast.For))
    return [(each.line, each.source) for each in items_of(sources, FILE, tree, loop)]


def test_a_property_counts_what_a_condition_lets_in() -> None:
    program = """
    class Rows:
        def __init__(self, rows):
            self.clean = []
            for row in rows:
                if row.std() < LIMIT:
                    continue
                self.clean.append(row)
    class Trainer:
        @property
        def budget(self):
            return len(self.rows.clean) // 4
        def fit(self):
            for _ in range(self.budget):
                step()
    """
    assert chosen(program) == [(5, "if row.std() < LIMIT:")]


def test_entries_that_are_taken_out() -> None:
    program = """
    class Heads:
        def __init__(self):
            self.heads = {name: Head() for name in load()}
        def prune(self):
            for name in list(self.heads):
                if self.heads[name].failures > 3 and ready():
                    pass
                if name.failures > 3:
                    del self.heads[name]
        def fit(self):
            for name, head in self.heads.items():
                head.step()
    """
    assert chosen(program) == [(8, "if name.failures > 3:")]


def test_a_filter_in_the_object_that_a_call_was_given() -> None:
    program = """
    class Texts:
        def __init__(self, texts):
            self.texts = [t for t in texts if len(t) > 6]
        def __len__(self):
            return len(self.texts) // 2
    class Trainer:
        def __init__(self, labeled, unlabeled):
            self.labeled, self.unlabeled = labeled, unlabeled
        def fit(self):
            for a, b in zip(self.labeled, self.unlabeled):
                step(a, b)
    Trainer(load(), Texts(read())).fit()
    """
    assert chosen(program) == [(3, "if len(t) > 6")]


def test_a_generator_of_generators() -> None:
    program = """
    class Packer:
        def full(self):
            for doc in self.docs:
                yield doc
        def rest(self):
            if self.carry:
                yield self.carry
        def epoch(self):
            yield from self.full()
            yield from self.rest()
    def fit(packer):
        for batch in packer.epoch():
            step(batch)
    """
    assert chosen(program) == [(6, "if self.carry:")]


def test_a_handler_that_leaves_an_item_out() -> None:
    program = """
    def read(lines):
        rows = []
        for line in lines:
            try:
                rows.append(parse(line))
            except ValueError:
                log(line)
        return rows
    def fit(lines):
        for row in read(lines):
            step(row)
    """
    assert chosen(program) == [(6, "except ValueError:")]


@pytest.mark.parametrize(
    "fills",
    [
        "rows = [r for r in load() if r.endswith('.bin')]",  # which kind of file it is
        "rows = [r for r in load() if rank == 0]",
        "rows = load()",
        "rows = [r for r in load() if a(r) if b(r) if c(r)]",  # too many to tell
    ],
)
def test_what_says_nothing(fills: str) -> None:
    program = f"""
    def fit():
        {fills}
        for row in rows:
            step(row)
    """
    assert chosen(program) == []


def test_a_list_that_is_full_leaves_nothing_out() -> None:
    program = """
    def batches(items):
        batch = []
        for item in items:
            batch.append(item)
            if len(batch) == 4:
                yield batch
                batch = []
    def fit(items):
        for batch in batches(items):
            step(batch)
    """
    assert chosen(program) == []


@pytest.mark.parametrize(
    ("expected", "returned"),
    [
        ([(3, "if device.free > self.need")], "[device for device in find() if device.free > self.need]"),
        ([], "list(find())"),
    ],
)
def test_what_decides_a_count_of_processes(expected: list[tuple[int, str]], returned: str) -> None:
    program = f"""\
class Launcher:
    def usable(self):
        return {returned}
    def start(self):
        devices = self.usable()
        spawn(train, args=(devices,), nprocs=len(devices))
"""
    sources = Sources((SourceText(FILE, "<module>", 1, program),))
    (call,) = sources.user_calls("spawn")
    found = items_of_value(sources, FILE, call.function, call.call.keywords[1].value)
    assert [(each.line, each.source) for each in found] == expected


def test_who_is_left_out_beside_the_rank_itself() -> None:
    program = """
    def fit(box, boxes):
        for peer in [r for r, other in boxes if r != rank and box.touches(other)]:
            step(peer)
    """
    assert chosen(program) == [(2, "if r != rank and box.touches(other)")]


@pytest.mark.parametrize(
    ("test", "told"),
    [
        ("dst != self.rank and hi[dst] > lo[dst]", [(4, "if dst != self.rank and hi[dst] > lo[dst]:")]),
        ("dst != self.rank", []),
    ],
)
def test_of_a_condition_the_part_counts_that_is_not_on_the_rank(test: str, told: list[tuple[int, str]]) -> None:
    program = f"""
    class Mover:
        def outgoing(self, lo, hi):
            for dst in range(self.size):
                if {test}:
                    yield dst
        def fit(self, lo, hi):
            for dst in self.outgoing(lo, hi):
                dist.send(rows, dst)
    """
    assert chosen(program) == told
