"""What to do about a queue between threads that nobody fills, or empties, any more: in the names of the code."""

from __future__ import annotations

from hangdoc.diagnosis.causes.phrases import line_of, place
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.model.message import Message, joined

_TAKING = ("get", "get_nowait")
_PUTTING = ("put", "put_nowait")


def queue_fix(case: Case, rank: int) -> Message:
    """How the rank's wait on a queue of its threads ends whatever happens; '' where it waits on none whose name is
    known.

    Example: 'let `self.records.put()` at log.py:16 give up when the queue is full (put_nowait), and keep the thread at
    log.py:30 run() alive, which takes from it: let no exception leave it'.
    """
    where, below = case.activities[rank].where, below_user(case.activities[rank].stack)
    method = plain(below[-1].function) if below and below[-1].file.endswith(names("queue_file")) else ""
    name = receiver_of(where, method, case.sources) if where is not None and method else ""
    if not name:
        return ""
    line: Message = [f"`{name}.{method}()` at ", line_of(where)]
    other = places_of_methods(name, _TAKING if method == "put" else _PUTTING, case.sources)
    if not other and method == "put":  # a handler has its queue under another name than the thread that empties it
        other = places_of_methods("", _TAKING, case.sources)
    thread: Message = ["the thread at ", place(other[0])] if len(other) == 1 else "the other thread"
    if method == "put":
        return joined(
            ["let ", line, " give up when the queue is full (`put_nowait`, or a timeout)"],
            ["let no exception end ", thread, ", which takes from it"],
        )
    return joined(
        ["give ", line, " a timeout"],
        ["let ", thread, ", which was to fill it, put an end mark or its exception there in `finally`"],
    )
