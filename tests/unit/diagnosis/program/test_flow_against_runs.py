"""Random functions, run: each way that a run takes is a way through the control flow graph.

A call raises only where a `try` of the function catches it: other exceptions of calls are left out of the graph.
"""

import ast
import contextlib
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from hangdoc.diagnosis.program.accesses import evaluated
from hangdoc.diagnosis.program.bodies import Body
from hangdoc.diagnosis.program.graph import ENTRY, EXIT
from hangdoc.diagnosis.program.outline import Outline
from hangdoc.diagnosis.program.pieces import parsed, span_of, walk

MOST_EVENTS = 40


class StopRunError(BaseException):
    """The run has lasted long enough."""


class Writer:
    """Draws a function whose tests and statements are numbered calls."""

    def __init__(self, draw):
        self.draw, self.lines, self.number, self.guards = draw, ["def f():"], 0, 0

    def call(self, name):
        self.number += 1
        return f"{name}({self.number})"

    def choose(self, *choices):
        return self.draw(st.sampled_from(choices))

    def line(self, depth, text):
        self.lines.append("    " * depth + text)

    def block(self, depth, loop):
        for _ in range(self.draw(st.integers(1, 3))):
            self.statement(depth, loop)

    def guarded_block(self, depth, loop, guarded):
        self.guards += guarded
        self.block(depth, loop)
        self.guards -= guarded

    def test(self):
        return self.choose(
            lambda: self.call("p"),
            lambda: f"{self.call('p')} and {self.call('p')}",
            lambda: f"not ({self.call('p')} or {self.call('p')} and {self.call('p')})",
            lambda: f"({self.call('p')} if {self.call('p')} else {self.call('p')})",
            lambda: f"any([{self.call('p')} for _ in it({self.count()}) if {self.call('p')}])",
        )()

    def count(self):
        self.number += 1
        return self.number

    def statement(self, depth, loop):
        simple = depth > 3
        kind = self.choose(
            "s", "s", "jump", *(() if simple else ("if", "while", "for", "try", "finally", "with", "match"))
        )
        if kind == "s":
            self.line(depth, self.call("s" if self.guards else "q"))
        elif kind == "jump":
            choices = ["return", "raise KeyError", "assert " + self.call("p"), *(["break", "continue"] if loop else [])]
            self.line(depth, self.choose(*choices))
        elif kind == "if":
            self.line(depth, f"if {self.test()}:")
            self.block(depth + 1, loop)
            if self.choose(True, False):
                self.line(depth, f"elif {self.test()}:")
                self.block(depth + 1, loop)
            if self.choose(True, False):
                self.line(depth, "else:")
                self.block(depth + 1, loop)
        elif kind in ("while", "for"):
            endless = kind == "while" and self.choose(True, False)
            head = f"for _ in it({self.count()}):" if kind == "for" else f"while {'True' if endless else self.test()}:"
            self.line(depth, head)
            if endless:
                self.line(depth + 1, self.call("q"))  # so that each round is seen, and a run comes to an end
            self.block(depth + 1, True)
            if self.choose(True, False) and not endless:
                self.line(depth, "else:")
                self.block(depth + 1, loop)
        elif kind == "with":
            swallows = self.choose(True, False)
            self.line(depth, "with suppress(KeyError):" if swallows else "with nullcontext():")
            self.guarded_block(depth + 1, loop, swallows)
        elif kind == "match":
            self.line(depth, f"match {self.call('p')}:")
            self.line(depth + 1, "case True:")
            self.block(depth + 2, loop)
            self.line(depth + 1, self.choose("case _:", f"case x if {self.call('p')}:"))
            self.block(depth + 2, loop)
        else:
            self.line(depth, "try:")
            handled = kind == "try" or self.choose(True, False)
            self.guarded_block(depth + 1, loop, handled)
            if handled:
                self.line(depth, "except ValueError:")
                self.block(depth + 1, loop)
                self.line(depth, "except KeyError:")
                self.block(depth + 1, loop)
                if self.choose(True, False):
                    self.line(depth, "else:")
                    self.block(depth + 1, loop)
            if kind == "finally":
                self.line(depth, "finally:")
                self.block(depth + 1, False)


@st.composite
def functions(draw):
    writer = Writer(draw)
    writer.block(1, False)
    writer.line(1, writer.call("q"))
    return "\n".join(writer.lines)


def body_of(code) -> Body:
    return Outline(parsed("f.py", 1, code)).bodies[1]


def numbers(body):
    """Number of a call → the nodes that make it: of those that hold it, the smallest."""
    found = {}
    for node, syntax in enumerate(body.graph.syntax):
        for part in evaluated(syntax):
            span = span_of(part)
            size = (span.end_line - span.line, span.end_column - span.column)
            for call in walk(part):
                if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Constant):
                    found.setdefault(call.args[0].value, []).append((size, node))
    return {number: {node for size, node in some if size == min(some)[0]} for number, some in found.items()}


def run(code, seed):
    """(numbers of the calls in their order, whether the run came to an end that the function itself makes)."""
    chance = random.Random(seed)
    events, stopped = [], []

    def event(number):
        if stopped:
            raise StopRunError
        events.append(number)
        if len(events) >= MOST_EVENTS:
            stopped.append(True)
            raise StopRunError

    def p(number):
        event(number)
        return chance.random() < 0.5

    def s(number):
        event(number)
        if chance.random() < 0.15:
            raise KeyError

    def it(number):
        while True:
            event(number)
            if chance.random() < 0.5:
                return
            yield None

    names = {
        "p": p,
        "q": event,
        "s": s,
        "it": it,
        "suppress": contextlib.suppress,
        "nullcontext": contextlib.nullcontext,
    }
    exec(compile(code, "f.py", "exec"), names)
    raised = False
    try:
        names["f"]()
    except (StopRunError, KeyError, AssertionError):
        raised = True
    return events, not raised and not stopped


@settings(max_examples=250, deadline=None)
@given(functions(), st.integers(0, 1000))
def test_each_run_is_a_way_through_the_graph(code, seed):
    body = body_of(code)
    graph, nodes_of = body.graph, numbers(body)
    calling = set().union(*nodes_of.values())
    events, returned = run(code, seed)

    def following(nodes):
        """The calls, and the exit, that come next after some nodes."""
        found, waiting = set(), [each for node in nodes for each in graph.successors[node]]
        seen = set()
        while waiting:
            node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            if node in calling or node == EXIT:
                found.add(node)
            else:
                waiting += graph.successors[node]
        return found

    at = {ENTRY}
    for place, number in enumerate(events):
        after = following(at) & nodes_of[number]
        assert after, f"{code}\nafter {events[:place]} the graph has no way to {number}"
        at = after
    if returned:
        assert EXIT in following(at), f"{code}\nthe graph has no way out after {events}"


@settings(max_examples=150, deadline=None)
@given(functions())
def test_predicates_have_two_outcomes_and_all_ends_at_the_exit(code):
    body = body_of(code)
    graph = body.graph
    for node, following in enumerate(graph.successors):
        assert len(following) == len(graph.labels[node])
        assert following or node == EXIT, f"{code}\nnode {node} leads nowhere"
        labels = set(graph.labels[node]) - {"raises"}
        if node in graph.tests and labels != {""}:
            assert len(labels) <= 2 and "" not in labels
        for each in following:
            assert node in graph.predecessors[each]
    assert not graph.successors[EXIT]


@settings(max_examples=150, deadline=None)
@given(functions())
def test_an_outcome_has_been_passed_if_without_it_no_way_leads_to_the_node(code):
    body = body_of(code)
    graph = body.graph

    def reached(without=None):
        found, waiting = {ENTRY}, [ENTRY]
        while waiting:
            node = waiting.pop()
            ways = zip(graph.successors[node], graph.labels[node], strict=True)
            news = {each for each, label in ways if (node, label) != without} - found
            found |= news
            waiting += news
        return found

    every = reached()
    outcomes = {(node, label) for node in graph.tests for label in graph.labels[node]}
    needed = {outcome: every - reached(outcome) for outcome in outcomes if outcome[1] != "raises"}
    for node in every:
        assert set(body.passed(node)) == {each for each, nodes in needed.items() if node in nodes}, f"{code}\n{node}"
