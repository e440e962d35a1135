"""Threads that every other rank has, and a rank that keeps the others waiting has not: it may have lost them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.process import Frame, Process, Thread
from hangdoc.model.snapshot import RankSnapshot


@dataclass(frozen=True, slots=True)
class MissingThread:
    """``rank`` has no thread ``name``, which is at ``where`` on the first of the ``others``."""

    rank: int
    name: str
    others: tuple[int, ...]
    where: Frame


def missing_threads(ranks: Mapping[int, RankSnapshot], rank: int) -> list[MissingThread]:
    """The threads with code of the program's that all other ranks have, and this one has not.

    A thread is known by the function that it began with. Example: ranks 0 and 2 have a thread in `Stats.run()`, and
    rank 1 has none → that thread.
    """
    own = _service_threads(ranks[rank].process)
    theirs = {r: found for r, s in ranks.items() if r != rank and (found := _service_threads(s.process)) is not None}
    if own is None or not theirs or len(theirs) + 1 < len(ranks):
        return []
    first = min(theirs)
    kept = [key for key in theirs[first] if key not in own and all(key in each for each in theirs.values())]
    threads = [theirs[first][key] for key in kept]
    return [MissingThread(rank, t.name, tuple(sorted(theirs)), user_stack(t.frames)[0]) for t in threads]


def _service_threads(process: Process | None) -> dict[tuple[str, str], Thread] | None:
    """(file, function) that a thread began with → the thread; None where Python's stacks could not be read."""
    look = process.last if process is not None else None
    if look is None or look.main is None or not look.main.frames:
        return None
    found: dict[tuple[str, str], Thread] = {}
    for thread in look.threads[1:]:
        own = user_stack(thread.frames)
        if own:
            found.setdefault((own[-1].file, plain(own[-1].function)), thread)
    return found
