"""The control flow graph of one function, and how one is put together."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from hangdoc.diagnosis.program.items import Span

ENTRY, EXIT = 0, 1
"""Nodes that every graph has. All ways out of the function lead to EXIT: `return`, the end, and what is raised."""
RAISES = "raises"
"""The label of the way that an exception takes out of a statement."""

Loose = list[tuple[int, str]]
"""Edges whose end is not known yet: (node, label). What follows a statement is joined to all of its loose edges."""


@dataclass(slots=True)
class Test:
    """What makes a node a predicate: its kind, and where what it tests stands."""

    kind: str
    span: Span
    expression: ast.AST | None = None
    """What is tested; None where that is no expression of its own."""
    is_loop: bool = False
    """Its outcomes are 'round' and 'ended'."""


@dataclass(slots=True)
class Graph:
    """Nodes are numbers. ``labels[n][i]`` is the outcome of node n on which ``successors[n][i]`` follows; '' of a node
    that has one outcome. Example: `if a: b()` → ENTRY → test, test True → b(), test False → EXIT, b() → EXIT."""

    successors: list[list[int]] = field(default_factory=lambda: [[], []])
    predecessors: list[list[int]] = field(default_factory=lambda: [[], []])
    labels: list[list[str]] = field(default_factory=lambda: [[], []])
    syntax: list[ast.AST | None] = field(default_factory=lambda: [None, None])
    """The statement, or the part of one, that the node runs."""
    tests: dict[int, Test] = field(default_factory=dict)
    bound: dict[int, Mapping[str, str]] = field(default_factory=dict)
    """Node → the names bound around it by comprehensions and lambdas, where there are any, and their keys."""
    loops: list[int] = field(default_factory=list)
    """The nodes at which a loop begins each of its rounds."""

    def add(self, syntax: ast.AST | None, incoming: Loose, test: Test | None = None) -> int:
        """A new node behind the loose edges."""
        node = len(self.successors)
        self.successors.append([])
        self.predecessors.append([])
        self.labels.append([])
        self.syntax.append(syntax)
        if test is not None:
            self.tests[node] = test
        self.join(incoming, node)
        return node

    def join(self, incoming: Loose, node: int) -> None:
        """Let the loose edges end at the node."""
        predecessors = self.predecessors[node]
        for source, label in incoming:
            self.successors[source].append(node)
            self.labels[source].append(label)
            predecessors.append(source)
