"""What to do about a queue between threads that nobody fills, or empties, any more: in the names of the code."""

from __future__ import annotations

from hangdoc.diagnosis.causes.phrases import line_of, place
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.calls_between import ending_requests, places_of_methods, receiver_of
from hangdoc.model.message import Message, joined
from hangdoc.model.process import Frame, Process

_TAKING = ("get", "get_nowait")
_PUTTING = ("put", "put_nowait")
_SETTING = ("set",)
_MARKING = ("task_done",)


def filled_by_requests(case: Case, rank: int) -> tuple[str, ...]:
    """The functions that other ranks call on this one, and that alone fill the queue from which it takes; () where it
    waits for room, where other code fills the queue, and where it waits on none whose name is known.

    Example: `self.items.get()`, `self.items.put(x)` in add(), which post() calls, and `rpc_sync("learner", post, …)` →
    ('post',).
    """
    _, method, name = _queue_of(case, rank)
    return ending_requests(name, _PUTTING, case.sources) if name and method in _TAKING else ()


def _queue_of(case: Case, rank: int) -> tuple[Frame | None, str, str]:
    """(where the rank waits on a queue of its threads, by which method, the queue's name); '' for what is not known."""
    where, below = case.activities[rank].where, below_user(case.activities[rank].stack)
    method = plain(below[-1].function) if below and below[-1].file.endswith(names("queue_file")) else ""
    return where, method, receiver_of(where, method, case.sources) if where is not None and method else ""


def queue_fix(case: Case, rank: int) -> Message:
    """How the rank's wait on a queue of its threads ends whatever happens; '' where it waits on none whose name is
    known.

    Example: 'let `self.records.put()` at log.py:16 give up when the queue is full (put_nowait), and keep the thread at
    log.py:30 run() alive, which takes from it: let no exception leave it'.
    """
    where, method, name = _queue_of(case, rank)
    if not name:
        return ""
    line: Message = [f"`{name}.{method}()` at ", line_of(where)]
    done = places_of_methods(name, _MARKING, case.sources) if method == "join" else []
    if len(done) == 1:
        return ["let no exception lead past ", place(done[0]), ": ", line, " waits until each item is marked as done"]
    other = places_of_methods(name, _TAKING if method == "put" else _PUTTING, case.sources)
    if not other and method == "put":  # a handler has its queue under another name than the thread that empties it
        other = places_of_methods("", _TAKING, case.sources)
    thread: Message = ["the thread at ", place(other[0])] if len(other) == 1 else "the other thread"
    if method == "put":
        return joined(
            ["let ", line, " give up when the queue is full (`put_nowait`, or a timeout)"],
            ["let no exception end ", thread, ", which takes from it"],
        )
    if asked := filled_by_requests(case, rank):
        marks = f"let every rank that calls {asked[0]}() send an end mark of its own when it is done"
        return joined(marks, ["count these marks where the items are taken, and give ", line, " a timeout"])
    return joined(
        ["give ", line, " a timeout"],
        ["let ", thread, ", which was to fill it, put an end mark or its exception there in `finally`"],
    )


def fix_for_child(case: Case, child: Process) -> tuple[Message, Message]:
    """(why a child of the rank waits on something that processes share, what to change) in the names of the code; ''
    twice where it waits on no queue and no event that the rank's own code could end the wait on.

    Example: a worker in `self.reports.put()`, and a thread of the rank that takes from it at stats.py:53 run().
    """
    main = child.last.main if child.last is not None else None
    below = below_user(main.frames) if main is not None else ()
    own = user_stack(main.frames) if main is not None else ()
    if not below or not own:
        return "", ""
    method = plain(below[-1].function)
    event = below[-1].file.endswith("/multiprocessing/synchronize.py") and method == "wait"
    queue = below[-1].file.endswith(names("process_queue_file")) and method in ("put", "get")
    name = receiver_of(own[0], method, case.sources) if event or queue else ""
    ending = _SETTING if event else _TAKING if method == "put" else _PUTTING
    other = [
        at for at in places_of_methods(name, ending, case.sources) if at.file != own[0].file or at.line != own[0].line
    ]
    if not name or len(other) != 1:
        return "", ""
    line: Message = [f"`{name}.{method}()` at ", line_of(own[0])]
    there = place(other[0])
    if event:
        waits: Message = [line, f" waits until `{name}` is set, as ", there, " does"]
        return waits, [f"see why `{name}` is not set at ", there, f" on every rank, and give `{name}.wait()` a timeout"]
    if method == "put":
        waits = [line, f" waits for room: `{name}` is full, and what takes from it, at ", there, ", does not"]
        return waits, ["let no exception end what takes from it at ", there, ", and give ", line, " a timeout"]
    waits = [line, " waits for an item, which ", there, " puts there"]
    fix: Message = [
        "let ",
        there,
        " put an end mark or its exception there in `finally`, and give ",
        line,
        " a timeout",
    ]
    return waits, fix
