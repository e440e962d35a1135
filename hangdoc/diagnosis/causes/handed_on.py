"""Under which conditions a function that the program hands on, as a callback, comes to be called at all.

Example: `complete.set()` stands in arrived(), which `self.uploader.upload(body, arrived)` hands on, and of

    def upload(self, body, arrived):
        if digest_of(body) in self.known:
            return
        self.pool.submit(self.send, body).add_done_callback(arrived)

→ `if digest_of(body) in self.known:`.
"""

from __future__ import annotations

import ast

from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import walk
from hangdoc.model.process import Frame


def is_called_back(sources: Sources, at: Frame) -> bool:
    """True if the program calls the function around the line only from lambdas: a loop around these makes them, and its
    end says nothing of when they run."""
    calls = sources.user_calls(at.function) if at.function else []
    lambdas = [n for each in calls for n in walk(each.tree) if isinstance(n, ast.Lambda)]
    return bool(calls) and all(any(each.call in walk(n) for n in lambdas) for each in calls)
