"""The conditions that choose whether the context around a call keeps a library from communicating (no_sync)."""

from __future__ import annotations

from collections.abc import Iterator

from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.source.guards import Guard, quiet_guard
from hangdoc.diagnosis.source.queries import contexts_around
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame, Stack


def contexts_chosen(sources: Sources, way: Stack, at: int) -> Iterator[tuple[Guard, str, Frame, int]]:
    """(condition, its file, the frame, its level) of each context around a frame of ``way``, outermost first, from its
    frame ``at`` on, where a function of the user's makes the context.

    Example: `with self.context(model): loss.backward()`, and context() returns `nullcontext() if self.last else
    model.no_sync()` → 'if self.last'.
    """
    for level, frame in enumerate(way[at:], at):
        tree = sources.function(frame.file, frame.line) if not is_library(frame) else None
        for name in contexts_around(tree, frame.line) if tree is not None else ():
            for file, made in sources.user_functions(name):
                guard = quiet_guard(made)
                if guard is not None:
                    yield guard, file, frame, level
