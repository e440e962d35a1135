"""Who can have held a lock that a forked child inherited: the thread that takes it, and under what it is started.

Example: `if missing: ⏎ Thread(target=self.warm).start()`, warm() has `with self.lock:`, and the child, which the main
thread forks meanwhile, waits at another `with self.lock:` → the `if`.
"""

from __future__ import annotations

from hangdoc.diagnosis.causes.wait_chain import Fault, follow
from hangdoc.diagnosis.context import Case
from hangdoc.model.process import Process


def is_forked_with_lock(case: Case, rank: int) -> bool:
    """True if what the rank waits for leads to a child that was forked while a thread held a lock."""
    return _child(case, rank) is not None


def _child(case: Case, rank: int) -> Process | None:
    return next((step.process for step in follow(case, rank) if step.fault is Fault.FORKED_LOCK), None)
