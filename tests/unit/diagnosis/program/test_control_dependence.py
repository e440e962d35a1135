"""Which predicates decide that a line runs: for each kind of statement, and against its definition on any graph."""

import textwrap

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.diagnosis.program import Program
from hangdoc.diagnosis.program.dominance import control_dependence, immediate_dominators
from hangdoc.model.snapshot import Module


def program_of(code):
    return Program((), [Module("a.py", "sha256:0", textwrap.dedent(code).lstrip("\n"))])


def controls(code, marked="here"):
    """(text, outcome) of what the line that holds ``marked`` depends on."""
    program = program_of(code)
    text = textwrap.dedent(code).lstrip("\n").split("\n")
    line = next(number for number, each in enumerate(text, 1) if marked in each)
    return {(each.text, outcome) for each, outcome in program.function("a.py", line).controls(line)}


CASES = {
    "an if": ("if a:\n    here()", {("a", "True")}),
    "its else": ("if a:\n    pass\nelse:\n    here()", {("a", "False")}),
    "an elif": ("if a:\n    pass\nelif b:\n    here()", {("b", "True")}),
    "the test of an elif": ("if a:\n    pass\nelif here:\n    pass", {("a", "False")}),
    "after an if": ("if a:\n    pass\nhere()", set()),
    "a round of a loop": ("for x in xs:\n    here()", {("x in xs", "round")}),
    "else of a loop": ("for x in xs:\n    if a:\n        break\nelse:\n    here()", {("x in xs", "ended")}),
    "after a continue": ("for x in xs:\n    if a:\n        continue\n    here()", {("a", "False")}),
    "a while": ("while a:\n    here()", {("a", "True")}),
    "after an early return": ("def f():\n    if a:\n        return\n    here()", {("a", "False")}),
    "after a raise": ("if a:\n    raise ValueError\nhere()", {("a", "False")}),
    "after an exit": ("if a:\n    sys.exit(1)\nhere()", {("a", "False")}),
    "after an assert": ("assert a, b\nhere()", {("a", "True")}),
    "a handler": ("try:\n    f()\nexcept KeyError:\n    here()", {("KeyError", "raised")}),
    "a bare handler": ("try:\n    f()\nexcept:\n    here()", {("except", "raised")}),
    "else of a try": ("try:\n    f()\nexcept KeyError:\n    pass\nelse:\n    here()", {("KeyError", "ended")}),
    "what may not be come to in a try": (
        "try:\n    f()\n    here()\nexcept KeyError:\n    pass",
        {("KeyError", "ended")},
    ),
    "what can not raise": ("try:\n    x = 1\n    here = x\nexcept KeyError:\n    pass", set()),
    "after a try": ("try:\n    f()\nexcept KeyError:\n    pass\nhere()", set()),
    "after a handler that leaves": (
        "def f():\n    try:\n        g()\n    except KeyError:\n        return\n    here()",
        {("KeyError", "ended")},
    ),
    "a finally": (
        "def f():\n    try:\n        if a:\n            return\n    finally:\n        here()",
        set(),
    ),
    "after a finally": (
        "def f():\n    try:\n        if a:\n            return\n    finally:\n        g()\n    here()",
        {("a", "False")},
    ),
    "a context that swallows": ("with suppress(KeyError):\n    f()\n    here()", {("suppress(KeyError)", "ended")}),
    "a context that does not": ("with lock:\n    f()\n    here()", set()),
    "a case": ("match x:\n    case 1:\n        pass\n    case 2:\n        here()", {("2", "True")}),
    "the last case": ("match x:\n    case 1:\n        pass\n    case _:\n        here()", {("1", "False")}),
    "a guard": ("match x:\n    case y if y > 1:\n        here()", {("y > 1", "True")}),
}


@pytest.mark.parametrize("name", CASES)
def test_statement(name):
    code, expected = CASES[name]
    assert controls(code) == expected


@st.composite
def graphs(draw):
    """Random graphs: 0 is the entry, 1 the exit, which every node reaches."""
    size = draw(st.integers(2, 9))
    successors = [draw(st.lists(st.integers(1, size - 1), min_size=1, max_size=3, unique=True)) for _ in range(size)]
    successors[1] = []
    for node in range(size):
        if 1 not in reachable(successors, node):
            successors[node].append(1)
    return successors


def reachable(successors, start, without=None):
    found, waiting = set(), [] if start == without else [start]
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += [each for each in successors[node] if each != without]
    return found


def reversed_graph(successors):
    found = [[] for _ in successors]
    for node, following in enumerate(successors):
        for each in following:
            found[each].append(node)
    return found


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_control_dependence_by_its_definition(successors):
    """Y depends on X if Y is on all ways from one successor of X to the exit, and not on all ways from X itself."""
    nodes = range(len(successors))

    def on_all_ways(node, start):
        return 1 not in reachable(successors, start, without=node)

    expected = {
        (node, branch, place)
        for node in nodes
        for branch in nodes
        if len(successors[branch]) > 1
        for place, first in enumerate(successors[branch])
        if node != 1 and on_all_ways(node, first) and (node == branch or not on_all_ways(node, branch))
    }
    found = control_dependence(successors, reversed_graph(successors), 1)
    assert {(node, *each) for node in nodes for each in found[node]} == expected


@settings(max_examples=300, deadline=None)
@given(graphs())
def test_dominators_by_their_definition(successors):
    found = immediate_dominators(successors, reversed_graph(successors), 0)
    reached = reachable(successors, 0)
    for node in reached - {0}:
        dominators = {each for each in reached if node not in reachable(successors, 0, without=each)} - {node}
        chain, at = [], node
        while at != 0:
            at = found[at]
            chain.append(at)
        assert set(chain) == dominators
    assert all(found[node] == -1 for node in range(len(successors)) if node not in reached)
