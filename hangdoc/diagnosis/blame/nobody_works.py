"""Whether nobody of a job is left who could end its waits: every rank waits for another, or for a key that one sets."""

from __future__ import annotations

from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.state.process import descendants, is_moving
from hangdoc.model.kinds import COMMUNICATING, GONE, ActivityKind
from hangdoc.model.process import Process

_WAITING = COMMUNICATING | GONE | {ActivityKind.REMOTE_CALL}


def nobody_works(case: Case) -> bool:
    """True if all ranks were seen and each waits for others, with no child, no thread of the program's own and no
    launcher that may do what they wait for, and no handler for the end of the wait.

    Example: all four ranks are in `store.wait(keys)`. Where one of them has a thread of its own, that may set the key.
    """
    if case.hidden or case.job.mode == "dump" or any(is_moving(launcher) for _, launcher in case.job.launchers):
        return False
    return all(
        activity.kind in _WAITING and not activity.moving and not _may_yet_do_it(case.ranks[rank].process)
        for rank, activity in case.activities.items()
    ) and not any(_handled(case, rank) for rank in case.activities)


def _may_yet_do_it(process: Process | None) -> bool:
    look = process.last if process is not None else None
    if process is None or look is None:
        return False
    main = look.main.tid if look.main is not None else 0
    return bool(descendants(process)) or any(user_stack(t.frames) for t in look.threads if t.tid != main)


def _handled(case: Case, rank: int) -> bool:
    """True if the rank waits in a `try`: the end of its patience may be what the program counts on."""
    frames = user_stack(case.activities[rank].stack)
    trees = ((frame, case.sources.function(frame.file, frame.line)) for frame in frames)
    return any(guard.is_tried for frame, tree in trees if tree is not None for guard in guards(tree, frame.line))
