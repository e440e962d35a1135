"""What a loop's items are called, in the loop and in the functions that it hands them to.

Example: of `for i, batch in enumerate(loader): ⏎ x = batch.cuda() ⏎ self.step(x)` and `def step(self, images):` →
'batch' and 'x' in the loop, 'images' in step(); `i` counts the rounds and is no item.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.source.syntax import holds, walk


def items_of_ended_loops(function: ast.AST, line: int) -> set[str]:
    """What the `for` loops of the function assign that are not around the line: there it is of their last round.

    Example: of `for peer in peers: ⏎ … ⏎ for work in works: ⏎ work.wait()`, at the last line → 'peer'.
    """
    loops = [node for node in walk(function) if isinstance(node, ast.For | ast.AsyncFor)]
    around = {name for loop in loops if holds(loop, line) for name in _names(loop.target)}
    return {name for loop in loops for name in _names(loop.target)} - around


def _names(node: ast.AST) -> set[str]:
    """The names in an expression, without attributes."""
    return {each.id for each in walk(node) if isinstance(each, ast.Name)}
