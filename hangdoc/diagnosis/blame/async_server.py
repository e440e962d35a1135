"""A server in an event loop holds its answers back until a further request comes, and no thread shows which.

Example: rank 0 serves `asyncio.start_server(self.handle, …)`, whose handle() answers when all four ranks have sent
their update. Ranks 0, 1 and 2 wait for its answer at one line; rank 3 has left its rounds and is in a barrier → rank 3.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.missing_request import MissingRequest, without_its_call
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.source.syntax import last_name
from hangdoc.diagnosis.state.process import kind_mark, thread_files
from hangdoc.diagnosis.state.serving import other_end
from hangdoc.model.kinds import ActivityKind, Confidence
from hangdoc.model.process import Process
from hangdoc.model.wording import ranks_text

_ASKING = frozenset({ActivityKind.EVENT_LOOP, ActivityKind.IO})


def async_server(case: Case) -> Blame[MissingRequest] | None:
    """The blame of the few that are past the line at which all others wait for answers of one server, whose event loop
    has nothing to do; None where any rank works."""
    calls = [each.call for each in case.sources.user_calls(*names("starts_server")) if each.call.args]
    handlers = {last_name(call.args[0]) for call in calls}
    if len(handlers) != 1 or case.hidden:
        return None
    (called,) = handlers
    asking = {r: ends for r, a in sorted(case.activities.items()) if a.kind in _ASKING and (ends := _asked(case, r))}
    waiting = tuple(asking)
    absent = tuple(r for r in sorted(case.activities) if r not in asking)
    places = {(a.file, a.line) for r in waiting if (a := case.activities[r].where) is not None}
    if not absent or len(places) != 1 or len(waiting) < len(absent):
        return None
    if any(
        case.activities[r].kind != ActivityKind.IN_COLLECTIVE or case.graph.on(r).isdisjoint(waiting) for r in absent
    ):
        return None
    servers = [s.process for s in case.ranks.values() if s.process is not None]
    every = {end for ends in asking.values() for end in ends}
    if not any(_is_idle(process, every) for process in servers):
        return None
    found = without_its_call(case, absent, waiting, called)
    if found is None:
        return None
    sure = f"the server's event loop is idle, and {ranks_text(absent)} alone could send a further request"
    if len(absent) < len(waiting):
        return Blame(found, absent, proved=False, confidence=Confidence.LIKELY, sure=sure)
    return Blame(found, absent, (waiting,), sure=f"{sure}; or {ranks_text(waiting)} sent one too many")


def _asked(case: Case, rank: int) -> set[str]:
    """The other ends of the sockets, to a process of the job, from which the rank's main thread waits for data."""
    process = case.ranks[rank].process
    files = process.blocking_files if process is not None else ()
    return {other_end(file.target) for file in files if file.peers and file.target.startswith("socket:tcp ")}


def _is_idle(process: Process, ends: set[str]) -> bool:
    """True if a thread of the process waits, in its event loop, for data on all these ends."""
    for thread in process.last.threads if process.last is not None else ():
        mark = kind_mark(thread.frames)
        mine = {file.target.partition(" (")[0] for file in thread_files(process, thread)}
        if mark is not None and mark.kind == ActivityKind.EVENT_LOOP and ends <= mine:
            return True
    return False
