"""Which conditions, loops and handlers a line of source is under."""

from __future__ import annotations

import ast
import textwrap

import pytest

from hangdoc.diagnosis.source.guards import guards, guards_in_expression, jumps_further_in, way_out_guards
from hangdoc.diagnosis.source.loops import counts_to_a_bound, ends_alike, fixed_rounds, ways_out
from hangdoc.diagnosis.source.queries import (
    assignments,
    called_methods,
    evaluated_before,
    first_assigned_value,
    is_generator,
    set_after,
)
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.snapshot import SourceText

FILE = "/home/me/train.py"


def under(source: str, *, first_line: int = 1) -> list[tuple[str, str, bool]]:
    """The guards of the line marked with ``# here``: kind, condition, and the truth it must have."""
    text = textwrap.dedent(source).strip("\n")
    line = next(i for i, each in enumerate(text.splitlines()) if "# here" in each) + first_line
    tree = Sources((SourceText(FILE, "train", first_line, text),)).function(FILE, line)
    assert tree is not None
    return [(g.kind, g.condition, g.taken) for g in guards(tree, line)]


def test_if_elif_else():
    source = """
        def train(rank):
            if rank == 0:
                {0}
            elif rank == 1:
                {1}
            else:
                {2}
    """
    calls = ["barrier()"] * 3

    def marked(index: int) -> list[tuple[str, str, bool]]:
        return under(source.format(*(c + "  # here" if i == index else c for i, c in enumerate(calls))))

    assert marked(0) == [("if", "if rank == 0:", True)]
    assert marked(1) == [("if", "if rank == 0:", False), ("if", "if rank == 1:", True)]
    assert marked(2) == [("if", "if rank == 0:", False), ("if", "if rank == 1:", False)]


def test_a_line_beside_an_if_is_not_under_it():
    assert under("def f(rank):\n    if rank == 0:\n        save()\n    barrier()  # here") == []


@pytest.mark.parametrize(
    ("head", "condition"),
    [("for batch in loader:", "for batch in loader:"), ("while step < limit:", "while step < limit:")],
)
def test_loops(head, condition):
    assert under(f"def f():\n    {head}\n        step()  # here\n    done()") == [("loop", condition, True)]
    assert under(f"def f():\n    {head}\n        step()\n    done()  # here") == []


def test_all_kinds_of_guards_on_the_way_outermost_first():
    """Earlier statements of one block, any of which can leave it, are equally far in."""
    source = """
        for batch in loader:
            if batch is None:
                continue
            if done:
                break
            if rank == 0:
                batch.ok and save(batch)  # here
    """
    text = textwrap.dedent(source).strip("\n")
    found = guards(ast.parse(text), 7)
    assert [(g.kind, g.condition, g.taken, g.depth) for g in found] == [
        ("loop", "for batch in loader:", True, 0),
        ("return", "if batch is None:", False, 1),
        ("return", "if done:", False, 1),
        ("if", "if rank == 0:", True, 3),
        ("expression", "batch.ok", True, 4),
    ]


def test_loop_counters():
    text = "def f():\n    for i, (a, b) in enumerate(x):\n        step += 1\n        call()"
    tree = Sources((SourceText(FILE, "f", 1, text),)).function(FILE, 4)
    assert tree is not None
    assert sorted(guards(tree, 4)[0].counters) == ["a", "b", "i", "step"]


def test_try_except_finally():
    source = """
        def f():
            try:
                {0}
            except ValueError as error:
                {1}
            except (KeyError, OSError):
                {2}
            else:
                {3}
            finally:
                {4}
    """

    def marked(index: int) -> list[str]:
        text = source.format(*("barrier()  # here" if i == index else "other()" for i in range(5)))
        return [condition for _, condition, _ in under(text)]

    assert marked(1) == ["except ValueError:"]
    assert marked(2) == ["except (KeyError, OSError):"]
    assert marked(4) == ["finally:"]
    assert "except ValueError:" not in marked(0) + marked(3)


def test_match():
    source = """
        def f(kind):
            match kind:
                case "train":
                    fit()
                case Mode(name=other) if other:
                    barrier()  # here
    """
    assert under(source) == [("match", "case Mode(name=other) if other:", True)]


@pytest.mark.parametrize(
    "leave",
    ["return", "return None", "raise ValueError(rank)", "sys.exit(1)", "exit()", "os._exit(0)"],
)
def test_an_earlier_way_out_was_not_taken(leave):
    source = f"def f(rank):\n    if rank != 0:\n        log()\n        {leave}\n    barrier()  # here"
    assert under(source) == [("return", "if rank != 0:", False)]


@pytest.mark.parametrize("leave", ["continue", "break"])
def test_an_earlier_jump_of_the_loop_was_not_taken(leave):
    source = f"def f():\n    for x in xs:\n        if bad(x):\n            {leave}\n        barrier()  # here"
    assert under(source) == [("loop", "for x in xs:", True), ("return", "if bad(x):", False)]


def test_an_if_that_goes_on_is_no_way_out():
    assert under("def f(x):\n    if x:\n        log()\n    barrier()  # here") == []


def test_every_arm_of_an_earlier_if_counts():
    source = """
        def f(x):
            if x == 1:
                log()
            elif x == 2:
                return
            barrier()  # here
    """
    assert under(source) == [("return", "if x == 2:", False)]


def test_an_else_that_leaves_must_not_have_been_taken():
    source = """
        def f(x):
            if x:
                log()
            else:
                return
            barrier()  # here
    """
    assert under(source) == [("return", "if x:", True)]


def test_conditional_and_short_circuit_expressions():
    assert under("def f(x):\n    y = gather(x) if x else None  # here") == [("expression", "if x", True)]
    assert under("def f(x):\n    y = None if x else gather(x)  # here") == [("expression", "if x", False)]
    assert under("def f(x):\n    x and gather(x)  # here") == [("expression", "x", True)]
    assert under("def f(x):\n    x or gather(x)  # here") == [("expression", "x", False)]
    assert under("def f(x):\n    gather(x) or x  # here") == []


def test_comprehensions():
    assert under("def f(xs):\n    return [reduce(x) for x in xs if x.ok]  # here") == [("expression", "if x.ok", True)]
    assert under("def f(xs):\n    return {k: gather(k) for k in xs}  # here") == [("loop", "for k in xs", True)]


def test_only_the_function_of_the_line_counts():
    source = """
        def outer(rank):
            if rank == 0:
                def inner():
                    while True:
                        barrier()  # here
                inner()
    """
    assert under(source) == [("loop", "while True:", True)]


def test_a_decorated_method_cut_out_of_its_class():
    source = """
            @wraps(fn)
            def step(self):
                with self.lock:
                    if self.rank == 0:
                        barrier()  # here
    """
    assert under(source, first_line=41) == [("if", "if self.rank == 0:", True)]


def test_decorators_and_defaults_are_outside_of_the_function():
    assert under("if main:\n    @register(gather())  # here\n    def f(x):\n        return x") == [
        ("if", "if main:", True)
    ]


def test_statements_over_several_lines():
    source = """
        def f(rank):
            if (
                rank == 0
                and ready
            ):
                gather(
                    x,  # here
                )
    """
    assert under(source) == [("if", "if rank == 0 and ready:", True)]


def test_the_condition_itself_is_not_under_its_if():
    assert under("def f(x):\n    if agree(x):  # here\n        log()") == []
    assert under("def f(x):\n    while agree(x):  # here\n        log()") == [("loop", "while agree(x):", True)]


def test_the_header_of_a_loop_is_inside_only_while_its_iterator_makes_an_item():
    tree = ast.parse("def f(xs):\n    for x in load(xs):\n        log(x)\n    else:\n        pass")
    assert guards(tree, 2) == []
    (loop,) = guards(tree, 2, iterating=True)
    assert (loop.kind, loop.condition, loop.in_header) == ("loop", "for x in load(xs):", True)
    (body,) = guards(tree, 3)
    assert body == loop
    assert not body.in_header


def test_operands_before_the_call_decide_it():
    assert under("def f(x, rank):\n    x and rank == 0 and save(x)  # here") == [
        ("expression", "x and rank == 0", True)
    ]
    assert under("def f(x):\n    if x and agree(x):  # here\n        log()") == [("expression", "x", True)]
    assert under("def f(x):\n    return agree(x) and x  # here") == []


def test_conditions_that_leave_a_loop():
    tree = ast.parse(
        "def f(xs):\n"
        "    for x in xs:\n"
        "        if x > 9:\n"
        "            break\n"
        "        if x:\n"
        "            log(x)\n"
        "        else:\n"
        "            return x\n"
        "        for y in x:\n"
        "            if y:\n"
        "                break\n"
    )
    found = [(guard.line, guard.condition, guard.taken) for guard in way_out_guards(tree, 2)]
    assert found == [(3, "if x > 9:", False), (5, "if x:", True)]


def test_a_generator_yields_in_its_own_body():
    tree = ast.parse("def f():\n    def g():\n        yield 1\n    return g()")
    assert not is_generator(tree, 4)
    assert is_generator(tree, 3)


def test_async_code():
    source = "async def f(xs):\n    async for x in xs:\n        async with lock:\n            await gather(x)  # here"
    assert under(source) == [("loop", "for x in xs:", True)]


def test_names_in_reading_order():
    text = "def f():\n    if self.warm and rank == cfg.world.main[0] and check(x.y):\n        barrier()"
    tree = Sources((SourceText(FILE, "f", 1, text),)).function(FILE, 3)
    assert tree is not None
    assert guards(tree, 3)[0].names == ("self.warm", "rank", "cfg.world.main", "check", "x.y")


@pytest.mark.parametrize("text", ["def f(:\n    pass", "\x00", "def f():\n\treturn 1\n        x", "(" * 300])
def test_source_that_is_no_python_has_no_guards(text):
    sources = Sources((SourceText(FILE, "f", 1, text),))
    assert sources.function(FILE, 1) is None
    assert sources.function("/elsewhere.py", 1) is None
    assert list(sources.trees(FILE)) == []


def test_the_innermost_captured_function_is_taken():
    whole = SourceText(FILE, "<module>", 1, "import x\n\nif main:\n    def f(a):\n        if a:\n            g()\n")
    inner = SourceText(FILE, "f", 4, "    def f(a):\n        if a:\n            g()\n")
    tree = Sources((whole, inner)).function(FILE, 6)
    assert tree is not None
    assert [g.condition for g in guards(tree, 6)] == ["if a:"]
    assert Sources((inner,)).line(FILE, 6) == "g()"
    assert Sources((inner,)).line(FILE, 3) is None


def test_assignments():
    lines = ["def f(self):", "self.a = 1", "b, self.a = 2, 3", "c: int = 4", "c += 1", "(d := 5)"]
    text = "\n    ".join(lines)
    tree = Sources((SourceText(FILE, "f", 10, text),)).function(FILE, 11)
    assert tree is not None
    assert assignments(tree, "self.a") == [11, 12]
    assert assignments(tree, "c") == [13, 14]
    assert assignments(tree, "d") == [15]
    assert first_assigned_value(tree, 11) == "self.a = 1"
    assert first_assigned_value(tree, 16) == ""


def test_methods_called_for_their_effect():
    text = "def f(self, todo):\n    todo.clear()\n    n = todo.count(1)\n    self.todo.append(n)\n    clear(todo)"
    tree = Sources((SourceText(FILE, "f", 10, text),)).function(FILE, 11)
    assert tree is not None
    assert called_methods(tree, "todo") == [11]
    assert called_methods(tree, "self.todo") == [13]


LOOP = """
def train(loader, stop):
    for step in range(2, 10):
        for batch in loader:
            if batch is None:
                break
            if stop(batch):
                return
        if stop(step):
            break
"""


def test_the_ways_out_of_a_loop():
    tree = ast.parse(LOOP)
    assert ways_out(tree, 3) == [(7, "if stop(batch):"), (9, "if stop(step):")]
    assert ways_out(tree, 4) == [(5, "if batch is None:"), (7, "if stop(batch):")]
    assert ways_out(tree, 5) == []


@pytest.mark.parametrize(
    ("loop", "alike", "rounds"),
    [
        ("for i in range(8):", True, 8),
        ("for i in range(2, 8):", True, 6),
        ("for i in range(0, 8, 2):", True, 0),
        ("for i in range(n):", False, 0),
        ("for i in itertools.count():", True, 0),
        ("for i in loader:", False, 0),
        ("for p in model.parameters():", True, 0),
        ("for i, p in enumerate(model.parameters()):", True, 0),
        ("for group in optimizer.param_groups:", True, 0),
        ("for p in self.batches():", False, 0),
        ("while True:", True, 0),
        ("while i < 8:", False, 0),
    ],
)
def test_loops_that_go_on_equally_long_everywhere(loop, alike, rounds):
    tree = ast.parse(f"{loop}\n    pass")
    assert ends_alike(tree, 1) is alike
    assert fixed_rounds(tree, 1) == rounds


def test_what_an_optimizer_holds_is_alike_everywhere():
    held = ast.parse("for group in self.param_groups:\n    for p in group['params']:\n        pass")
    other = ast.parse("for group in self.shards():\n    for p in group['params']:\n        pass")
    assert ends_alike(held, 2) and not ends_alike(other, 2)


@pytest.mark.parametrize(
    ("loop", "bound"),
    [
        ("for i in range(self.first, epochs):", ("self.first", "epochs")),
        ("for i in range(len(batches)):", None),
        ("while step < self.steps:", ("self.steps",)),
        ("while loss > tolerance:", None),
        ("while not done:", None),
    ],
)
def test_loops_that_only_count_to_a_bound(loop, bound):
    assert counts_to_a_bound(ast.parse(f"{loop}\n    step += 1"), 1) == bound


@pytest.mark.parametrize(
    ("start", "loop", "grown", "bound"),
    [
        ("ids.shape[1]", "ids.shape[1] < start + limit", "ids = torch.cat([ids, token], dim=1)", ("limit",)),
        ("len(out)", "len(out) < self.most + start", "out.append(token)", ("self.most",)),
        ("len(out)", "len(out) < start + limit", "out.extend(accepted)", None),
        ("len(out)", "len(out) < start + limit", "if token: out.append(token)", None),
        ("len(out)", "len(out) < start + len(plan)", "out.append(token)", None),
        ("len(prompt)", "len(out) < start + limit", "out.append(token)", None),
        ("len(out)", "len(out) < start + limit", "start = len(out); out.append(token)", None),
    ],
)
def test_loops_that_grow_by_a_bound(start, loop, grown, bound):
    assert counts_to_a_bound(ast.parse(f"start = {start}\nwhile {loop}:\n    {grown}"), 2) == bound


def test_the_call_that_is_meant_has_its_own_guards():
    tree = ast.parse("def f(xs, g):\n    return gather([make(x) for x in xs], reduce(g) if g else None)\n")
    assert [g.condition for g in guards(tree, 2, frozenset({"make"}))] == ["for x in xs"]
    assert [g.condition for g in guards(tree, 2, frozenset({"reduce"}))] == ["if g"]
    assert guards(tree, 2, frozenset({"gather"})) == []


def test_a_comprehension_has_only_the_guards_of_its_statement():
    tree = ast.parse("def f(xs):\n    if xs:\n        return [reduce(x) for x in xs]\n")
    assert [g.condition for g in guards_in_expression(tree, 3, frozenset({"reduce"}))] == ["for x in xs"]


@pytest.mark.parametrize(
    ("text", "first", "second", "expected"),
    [
        ("outer(inner())", "inner", "outer", True),
        ("outer(inner())", "outer", "inner", False),
        ("x = agree(Range(model).run(stream))", "run", "agree", True),
        ("y = a() + b()", "a", "b", True),
        ("y = a() + b()", "b", "a", False),
        ("y = a(a()) + b()", "a", "b", False),  # which of the two it is, nobody knows
        ("y = outer([inner() for _ in x])", "inner", "outer", False),
        ("f(lambda: inner())", "inner", "f", False),
    ],
)
def test_order_within_a_line(text: str, first: str, second: str, expected: bool) -> None:
    assert evaluated_before(ast.parse(text), 1, first, second) is expected


def test_a_return_from_further_in_is_found_before_the_line_alone() -> None:
    text = """
def backward(self, labels):
    if self.last:
        valid = labels.ne(0)
        if not valid.any():
            return
    if not self.first:
        send()
    if self.done:
        if self.empty():
            return
"""
    tree = ast.parse(text.strip())
    assert [guard.condition for guard in jumps_further_in(tree, 7, None)] == ["if not valid.any():"]
    assert jumps_further_in(tree, 7, (5, 9)) == []


def test_a_return_in_an_else_suite_is_further_in_and_an_elif_is_not() -> None:
    text = """
def forward(self, part):
    if self.first:
        hidden = self.source(part)
    else:
        hidden = self.pull()
        if not self.healthy(hidden):
            return
    if self.cold:
        warm()
    elif self.done:
        return
    self.push(hidden)
"""
    found = jumps_further_in(ast.parse(text.strip()), 12, None)
    assert [guard.condition for guard in found] == ["if not self.healthy(hidden):"]


@pytest.mark.parametrize(
    ("arm", "found"),
    [('float("nan")', ["if seen"]), ("torch.zeros(1)", ["if seen"]), ("other.compute()", []), ("None", ["if seen"])],
)
def test_an_arm_that_only_makes_a_value_makes_no_call(arm, found):
    tree = ast.parse(f"def f():\n    return metric.compute().item() if seen else {arm}")
    assert [guard.condition for guard in guards(tree, 2)] == found


def test_what_a_loop_counts_after_the_line():
    tree = ast.parse("def f():\n    for x in xs:\n        sync(x)\n        count += 1")
    loop = guards(tree, 3)[0]
    assert set_after(tree, loop, 3) == {"count"} and set_after(tree, loop, 4) == set()


@pytest.mark.parametrize(
    ("handlers", "found"),
    [
        ("except OSError: pass", "except OSError:"),
        ("except OSError: pass\nexcept KeyError: pass", "except OSError, KeyError:"),
    ],
)
def test_the_else_of_a_try_is_left_out_after_an_exception(handlers, found):
    guard = guards(ast.parse(f"try:\n    load()\n{handlers}\nelse:\n    step()"), 4 + handlers.count("except"))[-1]
    assert (guard.condition, guard.taken) == (found, False)


def test_the_else_of_a_loop_runs_where_no_break_was_taken():
    source = """
        def cover(points):
            for point in points:
                if point.gap < limit:
                    break
            else:
                restart()  # here
    """
    assert under(source) == [("return", "if point.gap < limit:", False)]


@pytest.mark.parametrize(("asked", "taken"), [("any", False), ("all", True)])
def test_what_ends_any_and_all_before_their_last_item(asked: str, taken: bool):
    source = f"""
        def detected(parts):
            return {asked}(moved(p) for p in parts)
    """
    tree = Sources((SourceText(FILE, "detected", 1, textwrap.dedent(source).strip("\n")),)).function(FILE, 2)
    assert tree is not None
    found = guards_in_expression(tree, 2, frozenset({"moved"}))
    assert ("expression", f"{asked}(moved(p) for p in parts)", taken) in [(g.kind, g.condition, g.taken) for g in found]


def test_a_filter_explains_a_call_of_another_name_that_its_element_makes() -> None:
    """A library wraps the function that is called, so that its name tells nothing."""
    tree = ast.parse("def summary(ms):\n    return {k: m.compute().item() for k, m in ms.items() if m.seen}\n")
    assert [g.condition for g in guards(tree, 2, frozenset({"wrapped"}))] == ["if m.seen"]


def test_an_answer_ends_what_asks_each_item() -> None:
    tree = ast.parse("def f(self):\n    return any(m.tripped() for m in self.monitors)\n")
    found = guards(tree, 2, frozenset({"tripped"}))
    assert [(guard.kind, guard.condition) for guard in found] == [
        ("expression", "any(m.tripped() for m in self.monitors)")
    ]


def test_what_makes_a_tensor_is_not_the_call_of_an_arm() -> None:
    tree = ast.parse("def f(self, x, y):\n    return x.new_zeros(3) if y is None else self.tower(y)\n")
    found = guards(tree, 2, frozenset({"forward"}))
    assert [(guard.condition, guard.taken) for guard in found] == [("if y is None", False)]
