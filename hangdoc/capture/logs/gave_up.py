"""Ranks that gave up a wait say in what they waited: by the traceback of the time-out that ended it.

gloo and the store print no watchdog's line. But a rank whose exception is a time-out had waited until then, and the
stack of the exception is that of the wait: the call is the outermost function of torch's on it.

Example: 'Timed out waiting 8000ms for recv operation to complete' under all_reduce, called at train.py:18 → the rank
had been overdue in all_reduce, issued at train.py:18, for 8 s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace

from hangdoc.model.frames import is_library_file
from hangdoc.model.logged import WAIT, LogStack, Overdue, Raised
from hangdoc.model.process import Stack

_TIMED_OUT = re.compile(
    r"Timed out waiting (?P<gloo>\d{1,12})ms for (?:send|recv) operation"
    r"|wait timeout after (?P<store>\d{1,12})ms, keys: (?P<key>[^\s,]{1,300})"
    r"|Timed out after (?P<clients>\d{1,9}) seconds waiting for clients"
)
_CLOSED = re.compile(r"Connection closed by peer|Connection reset by peer|Read error|Broken pipe")
_OF_A_GROUP = "ncclUniqueId"
"""An error that names the member for whom the rank waited (``reports.set_ups``)."""
_INTERRUPTED = "KeyboardInterrupt"
_OF_TORCH = re.compile(r"torch/(?:distributed|nn/parallel|autograd)/|torch/_tensor\.py$")
_WRAPPERS = ("wrapper", "_wrapped_call_impl", "_call_impl")


def waits_of(raised: Iterable[Raised]) -> Iterator[Overdue]:
    """The waits that ended so, as overdue calls without a number; without a time-out where a peer's end ended them."""
    for each in raised:
        found = _TIMED_OUT.search(each.error)
        closed = each.follows and _CLOSED.search(each.error) is not None
        if (found is None and not closed) or each.rank is None or _OF_A_GROUP in each.error:
            continue
        told = found.groupdict() if found is not None else {}
        waited = int(told.get("gloo") or told.get("store") or 1000 * int(told.get("clients") or 0))
        op, group = _call(each.stack), ""
        if told.get("key") and not op:
            op, group = "store.get", f"store/{_own_name(told['key'])}"
        if not op:
            continue
        yield Overdue(
            each.place,
            each.rank,
            group,
            -1,
            op,
            timeout_ms=0 if closed else max(waited, 1),
            ran_ms=waited,
            at=each.at,
            stack=each.stack,
        )


def stacks_of(overdue: Iterable[Overdue], raised: Iterable[Raised]) -> Iterator[LogStack]:
    """The stacks of ranks' main threads while they waited, or when somebody interrupted them: the first of each
    rank."""
    told: set[int] = set()
    interrupted = (each for each in raised if each.error.startswith(_INTERRUPTED))
    facts: tuple[Overdue | Raised, ...] = (*overdue, *interrupted)
    for fact in facts:
        if fact.rank is not None and fact.stack and fact.rank not in told:
            told.add(fact.rank)
            place = replace(fact.place, kind=WAIT)
            yield LogStack(place, fact.rank, 0, "MainThread", fact.stack, main=True, idle=True)


def _call(stack: Stack) -> str:
    """The function of torch's that the program had called."""
    called = ""
    for frame in stack:
        if not is_library_file(frame.file):
            break
        if _OF_TORCH.search(frame.file) and frame.function not in _WRAPPERS:
            called = frame.function
    return called


def _own_name(key: str) -> str:
    """The key as the program knows it: torch puts its groups' prefix before it."""
    return re.sub(r"^/?(?:default_pg/\d+//?)?", "", key)
