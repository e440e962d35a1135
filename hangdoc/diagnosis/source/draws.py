"""Where a program draws at random, and from which generator.

Example: `random.shuffle(order)` draws from the module's own, 'random'; `self.rng.integers(n)` and
`torch.randperm(n, generator=g)` from an object.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.syntax import dotted, walk


def draws_at_random(test: ast.AST) -> bool:
    """True for a condition that draws a number. Example: `self.rng.random() < self.p`."""
    return any(_draws(node) for node in walk(test) if isinstance(node, ast.Call))


def _draws(call: ast.Call) -> bool:
    return pattern("draws_at_random").search(dotted(call.func)) is not None
