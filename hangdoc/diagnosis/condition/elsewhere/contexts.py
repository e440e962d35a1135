"""What the user's code tells a library about communicating: the context around a call (no_sync), and flags.

Example: `dcp.save(state, no_dist=self.local_only)` communicates where the flag is False, whatever stands around it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.source.guards import Guard, quiet_guard
from hangdoc.diagnosis.source.queries import contexts_around
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name
from hangdoc.model.process import Frame, Stack


def contexts_chosen(sources: Sources, way: Stack, at: int) -> Iterator[tuple[Guard, str, Frame, int]]:
    """(condition, its file, the frame, its level) of each context around a frame of ``way``, outermost first, from its
    frame ``at`` on, where the user's code chooses the context, there or in the function that makes it.

    Example: `with self.context(model): loss.backward()`, and context() returns `nullcontext() if self.last else
    model.no_sync()` → 'if self.last'.
    """
    for level, frame in enumerate(way[at:], at):
        tree = sources.function(frame.file, frame.line) if not is_library(frame) else None
        for context in contexts_around(tree, frame.line) if tree is not None else ():
            name = last_name(context.func) if isinstance(context, ast.Call) else ""
            for file, made in sources.user_functions(name) if name else [(frame.file, context)]:
                guard = quiet_guard(made)
                if guard is not None:
                    yield guard, file, frame, level
