"""What set the values that a call at a line gives: whom a message names, which ranks a group is made of."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from hangdoc.diagnosis.condition.elsewhere.answers import Answer
from hangdoc.diagnosis.condition.elsewhere.set_before import set_by, within_limit
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import holds, walk
from hangdoc.model.process import Frame


def given_at(sources: Sources, frame: Frame | None, given: Callable[[ast.Call], Iterable[ast.expr]]) -> list[Answer]:
    """What set the values that the calls at the line give, of each call those that ``given`` takes; three tests in all.

    Example: `dist.recv(x, src=self.parent)`, of which the source is taken, and `self.parent = tree[rank]`, where the
    tree is read from another file `if cached.is_file():` → that `if`.
    """
    at = place_of(sources, frame.file, frame.line) if frame is not None else None
    if at is None or frame is None:
        return []
    calls = [node for node in walk(at.function) if isinstance(node, ast.Call) and holds(node, frame.line)]
    found = [answer for call in calls for value in given(call) for answer in set_by(sources, at, value, by_rank=False)]
    return within_limit(found)
