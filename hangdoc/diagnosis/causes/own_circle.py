"""A thread for which the main thread waits, and which waits for what the main thread does only after that."""

from __future__ import annotations

from hangdoc.diagnosis.causes.call_conditions import started_under
from hangdoc.diagnosis.causes.phrases import line_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.stacks import same_function, user_stack
from hangdoc.diagnosis.source.calls_between import places_of_methods, receiver_of
from hangdoc.diagnosis.state.threads import End
from hangdoc.model.message import Joined, Message
from hangdoc.model.process import Frame

_ENDING = {"wait": ("set", "notify", "notify_all"), "wait_for": ("notify", "notify_all"), "get": ("put", "put_nowait")}
"""Method that waits → those of the same object that end the wait (Python 3.11's queue and threading)."""


def ended_after_its_own_wait(case: Case, rank: int) -> Message:
    """'`self.finished.set()` at up.py:46 would end that wait, and follows up.py:41, where the rank waits for it; the
    thread is started under `if rank == 0:`'; '' where the rank's threads wait for each other in another way.

    Example: `with ThreadPoolExecutor() as pool: ⏎ pool.submit(self.watch)`, whose watch() waits for `self.finished`,
    and `self.finished.set()` behind the `with`, which waits for all its tasks.
    """
    chain = case.chains.get(rank)
    if chain is None or chain.end is not End.CIRCLE or len(chain.circle) != 2 or chain.lock is not None:
        return ""
    main, other = (hop.node for hop in chain.circle)
    if not main.is_main or main.where is None or other.where is None or other.rank != rank:
        return ""
    below = below_user(other.thread.frames)
    method = plain(below[-1].function) if below else ""
    name = receiver_of(other.where, method, case.sources) if method in _ENDING else ""
    ends = [(at, each) for each in _ENDING.get(method, ()) for at in places_of_methods(name, (each,), case.sources)]
    later = [(at, each) for at, each in ends if same_function(at, main.where) and at.line > main.where.line]
    if not name or len(later) != 1:
        return ""
    (at, ending), runs = later[0], user_stack(other.thread.frames)[-1]
    started = started_under(case.sources, Frame(runs.file, runs.line, plain(runs.function)), ())
    call: Message = [f"`{name}.{ending}()` at ", line_of(at), " would end the wait of thread ", other.thread.name]
    follows: Message = [", and comes only after ", line_of(main.where), ", which waits for that thread"]
    return [call, follows, ["; it is started under ", Joined(started, " and ")] if started else ""]
