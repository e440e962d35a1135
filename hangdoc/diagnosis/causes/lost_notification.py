"""A wait on a condition that was notified before it began: nobody keeps a notification, and nothing is tested.

Example: rank 1 waits at `self.loaded.wait()`, which no `while` tests, and the thread that runs

    name = self.orders.get()
    if name not in self.cache:
        self.cache[name] = self.read(name)
    with self.loaded:
        self.loaded.notify_all()

waits for its next order: for a name that was there already it had notified at once → `if name not in self.cache:`.
"""

from __future__ import annotations

from hangdoc.diagnosis.causes.idle_helper import between_lines, loop_around
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.model.message import Joined, Message, joined
from hangdoc.model.process import Frame

_NOTIFIES = ("notify", "notify_all")
_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


def notified_before(case: Case, rank: int) -> Message:
    """Which line notified the condition that the rank's main thread waits on, and what it did so early by; '' where a
    loop tests something around the wait, or no living thread is past that line in a loop."""
    process, stack = case.ranks[rank].process, case.activities[rank].stack
    own, below = user_stack(stack), below_user(stack)
    if process is None or process.last is None or not own or not below or _tests(case, own[0]):
        return ""
    waits = below[-1].file.endswith(names("threading_file")) and below[-1].function == "Condition.wait"
    name = receiver_of(own[0], "wait", case.sources) if waits and plain(below[-1].function) == "wait" else ""
    others = [user_stack(thread.frames) for thread in process.last.threads if thread.frames != stack]
    for at in places_of_methods(name, _NOTIFIES, case.sources) if name else ():
        thread = next((s for s in others if any(_came_round(case, frame, at) for frame in s)), None)
        if thread is not None:
            taking = next(frame for frame in thread if _came_round(case, frame, at))
            deciding = between_lines(case, taking, at)[:_MOST_CONDITIONS]
            came: Message = [
                f"`{name}` was notified at ",
                line_of(at),
                " before that wait, and nobody keeps that",
            ]
            return joined(came, [Joined(deciding, " and "), " decides how soon it comes to that"] if deciding else "")
    return ""


def _tests(case: Case, where: Frame) -> bool:
    """True if a loop or a condition of the function leads to the wait: it is left out where there is nothing to wait
    for."""
    tree = case.sources.function(where.file, where.line)
    return tree is None or any(guard.kind in (*CONDITIONS, "loop", "return") for guard in guards(tree, where.line))


def _came_round(case: Case, frame: Frame, at: Frame) -> bool:
    """True if the frame waits before the line in one loop with it: it has come from there."""
    return frame.line < at.line and loop_around(case, frame, at) is not None
