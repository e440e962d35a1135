"""Messages that are prepared at one line and issued by another: what decides lies at the first.

Example: `batch_isend_irecv(ops)` issues whatever the list holds, and whether it holds a send is decided here:

    for peer, rows in buckets:
        if not rows:
            continue
        ops.append(dist.P2POp(dist.isend, rows, peer))
"""

from __future__ import annotations

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.sources import Sources, UserCall
from hangdoc.diagnosis.source.syntax import function_name, last_name, walk
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame, Stack

_MOST = 2
"""Lines that prepare messages of one direction; of more, nothing tells which it was. Chosen by hand."""


def prepared_at(sources: Sources, stack: Stack) -> list[Frame]:
    """The lines that prepare messages like the one that the stack issues; [] where it is not issued from a list, or
    several lines may have prepared it.

    Example: the stack of the isend in `batch_isend_irecv(ops)` → the line of `P2POp(dist.isend, …)`.
    """
    below = [plain(frame.function) for frame in stack if is_library(frame)]
    issued = next((at for at, name in enumerate(below) if name in names("issues_prepared")), 0)
    way = message_way(below[issued - 1]) if issued else ""
    if not way:
        return []
    made = [each for each in sources.user_calls(*names("prepares_message")) if _is_of(each, way)]
    if len(made) > _MOST:
        return []
    lines = [Frame(each.file, each.call.lineno, function_name(each.tree, each.call.lineno)) for each in made]
    return list(dict.fromkeys(lines))


def _is_of(made: UserCall, way: str) -> bool:
    """True if the operation that is prepared may be one of that direction."""
    given = [k.value for k in made.call.keywords if k.arg == "op"] or made.call.args[:1]
    named = {last_name(node) for each in given for node in walk(each)}
    ways = {found for name in named if (found := message_way(name))}
    return not ways or way in ways
