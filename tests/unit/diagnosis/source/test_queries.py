"""What a piece of source shows besides its guards."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.loops import item_loop
from hangdoc.diagnosis.source.queries import binds, group_given, works_before


def parse(source: str) -> tuple[ast.AST, int]:
    """The tree, and the line that is marked with ``# here``."""
    text = textwrap.dedent(source).strip("\n")
    return ast.parse(text), next(i for i, line in enumerate(text.splitlines(), 1) if "# here" in line)


@pytest.mark.parametrize(
    ("body", "works"),
    [
        ("dist.all_reduce(x)  # here", False),
        ("dist.all_reduce(load(x))  # here", True),
        ("y = x + 1\n        dist.all_reduce(y)  # here", False),
        ("y = load(x)\n        dist.all_reduce(y)  # here", True),
        ("dist.all_reduce(x)  # here\n        log(x)", False),
        ("if x:\n            log(x)\n        dist.all_reduce(x)  # here", True),
    ],
)
def test_what_a_try_body_does_before_it_calls(body: str, works: bool) -> None:
    for head, tail in (("try:", "\n    except ValueError:\n        pass"), ("with suppress(ValueError):", "")):
        tree, line = parse(f"def f(x):\n    {head}\n        {body}{tail}")
        assert works_before(tree, 2, line) is works


@pytest.mark.parametrize(
    ("head", "rounds"),
    [
        ("for i in range(n):", ("i",)),
        ("for i in range(1, n, 2):", ("i",)),
        ("for i in range(rank, n, world):", ()),
        ("for i, batch in enumerate(loader):", ("i",)),
        ("for i, batch in enumerate(loader, start=1):", ("i",)),
        ("for i, batch in enumerate(loader, offset):", ()),
        ("for i in mine:", ()),
        ("for i in range(*bounds):", ()),
        ("while i < n:", ()),
    ],
)
def test_names_that_count_rounds_alike_on_every_rank(head: str, rounds: tuple[str, ...]) -> None:
    tree, line = parse(f"def f():\n    {head}\n        g(i)  # here")
    assert [g.rounds for g in guards(tree, line) if g.kind == "loop"] == [rounds]


@pytest.mark.parametrize(
    ("decorator", "decides"),
    [
        ("functools.lru_cache(maxsize=None)", True),
        ("cache", True),
        ("cached_property", True),
        ("accelerator.on_main_process", True),
        ("rank_zero_only", True),
        ("functools.wraps(f)", False),
        ("retry(3)", False),
        ("uncached", False),
    ],
)
def test_decorators_that_decide_whether_the_function_runs(decorator: str, decides: bool) -> None:
    tree, line = parse(f"@{decorator}\ndef f():\n    barrier()  # here")
    assert [g.condition for g in guards(tree, line)] == ([f"@{decorator}"] if decides else [])


def test_a_suppressed_exception_is_a_try() -> None:
    tree, line = parse("def f():\n    with open(p) as g, contextlib.suppress(OSError):\n        barrier()  # here")
    assert [(g.kind, g.condition) for g in guards(tree, line)] == [("try", "with contextlib.suppress(OSError):")]
    tree, line = parse("def f():\n    with open(p):\n        barrier()  # here")
    assert guards(tree, line) == []


def test_an_expression_both_of_whose_arms_call_tells_nothing() -> None:
    tree, line = parse("def f(self):\n    return again(g) if self.again else g()  # here")
    assert guards(tree, line, frozenset({"forward"})) == []
    assert [g.taken for g in guards(tree, line, frozenset({"g"}))] == [False]


@pytest.mark.parametrize(
    ("name", "bound"),
    [("step", True), ("model", True), ("batch", True), ("config", False), ("rest", True), ("self.step", False)],
)
def test_names_that_a_call_brings_with_it(name: str, bound: bool) -> None:
    tree, line = parse("""
        def train(model, *rest, step=0):
            for batch in model.data:
                if step:
                    save(config)  # here
    """)
    assert binds(tree, line, name) is bound


@pytest.mark.parametrize(
    ("source", "function", "loop"),
    [
        ("for name, t in tasks.items():\n    out[name] = t.finish()  # here", "finish", "for name, t in tasks.items()"),
        ("for hook in hooks:\n    hook(x)  # here", "log", "for hook in hooks"),
        ("for hook in hooks:\n    hook.close(); other.log()  # here", "log", None),
        ("for i in range(3):\n    model.log(i)  # here", "log", None),
        ("a = {m.name: m.compute() for m in metrics}  # here", "compute", "for m in metrics"),
        ("for outer in x:\n    for inner in outer:\n        inner.go()  # here", "go", "for inner in outer"),
        ("m.compute()  # here", "compute", None),
    ],
)
def test_a_loop_whose_items_are_called(source: str, function: str, loop: str | None) -> None:
    tree, line = parse(source)
    found = item_loop(tree, line, function)
    assert (found[1] if found is not None else None) == loop


@pytest.mark.parametrize(
    ("source", "given"),
    [("dist.all_reduce(x, group=groups[t])  # here", "groups[t]"), ("dist.all_reduce(t)  # here", "")],
)
def test_the_group_that_a_call_is_given(source: str, given: str) -> None:
    tree, line = parse(source)
    assert group_given(tree, line) == given
