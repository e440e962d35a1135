"""HD306 and HD509: a process that the rank itself started joined the job, or has ended while the rank waits for it."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.wait_chain import dead_child, title_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, OutsideWait
from hangdoc.diagnosis.frames.landmarks import below_user, is_distributed, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.calls_between import receiver_of
from hangdoc.diagnosis.state.activity import python_op
from hangdoc.diagnosis.state.process import descendants
from hangdoc.model.message import Message, joined, sentence
from hangdoc.model.process import Frame, Process, Stack

_OF_THE_JOB = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""The variables by which torch's env:// finds its job, as every child inherits them."""


@cause("HD306", explains=OutsideWait, order=85)
def child_joined(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD306: a child has the rank's variables, calls init_process_group and meets the job's own rendezvous.

    Example: rank 0 runs `python eval.py`, which evaluates on 'all ranks' and waits for them in an all_reduce.
    """
    rank = next((r for r in blame.culprits if _joined_child(case, r) is not None), None)
    helper = _joined_child(case, rank) if rank is not None else None
    if rank is None or helper is None:
        return None
    stack = _stack(helper)
    here, started = user_stack(stack)[0], case.activities[rank].where
    joining = "its init_process_group"
    return Finding(
        "HD306",
        sentence(
            [
                [f"{title_of(helper)}, which rank {rank} started and waits for at ", place(started)],
                f", has joined the job as another rank {rank}",
                [f": it is in {python_op(stack) or 'a collective'} at ", place(here)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        [
            [f"it inherited {_listed(_OF_THE_JOB)} from rank {rank}, so that ", joining],
            " joined the rendezvous of this job, and its calls wait for ranks that never make them",
        ],
        [_start_it(case, rank), joining],
    )


def _start_it(case: Case, rank: int) -> Message:
    """What to change where the child is started, up to what it may leave out instead."""
    started = case.activities[rank].where
    if any(frame.file.endswith(names("subprocess_file")) for frame in below_user(case.activities[rank].stack)):
        return ["start it at ", line_of(started), f" with an `env=` without {_listed(_OF_THE_JOB)}, or leave out "]
    return "give it a rendezvous of its own (`rank=0, world_size=1` and a free port), or leave out "


def _listed(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _joined_child(case: Case, rank: int) -> Process | None:
    """The one process below the rank that communicates through torch.distributed, and has the rank's variables."""
    process, known = case.ranks[rank].process, dict(case.ranks[rank].environment)
    found = [each for each in descendants(process) if _communicates(each)] if process is not None else []
    if len(found) != 1 or not user_stack(_stack(found[0])):
        return None
    inherited = dict(found[0].environment)
    return found[0] if all(name in known and inherited.get(name) == known[name] for name in _OF_THE_JOB) else None


def _communicates(process: Process) -> bool:
    return any(map(is_distributed, below_user(_stack(process))))


def _stack(process: Process) -> Stack:
    return main.frames if process.last is not None and (main := process.last.main) is not None else ()


@cause("HD509", explains=OutsideWait, order=388)
def dead_worker(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """HD509: a rank waits for a message of a process that it started, and that has ended.

    Example: an environment of a pool crashed, and the rank waits for its answer in `remote.recv()`.
    """
    rank = next(iter(blame.culprits), None)
    process = case.ranks[rank].process if rank is not None else None
    child = dead_child(process) if process is not None else None
    if rank is None or process is None or child is None:
        return None
    where = case.activities[rank].where
    below = below_user(_stack(process))
    method = plain(below[-1].function) if below else ""
    siblings = len([each for each in process.children if each is not child and each.role == child.role])
    kept = "the processes that were forked after it still hold its end of the pipe, so no error is raised"
    return Finding(
        "HD509",
        sentence(
            [
                [f"rank {rank} waits in {method or 'a message'}() at ", place(where), " for a process that has ended"],
                f": {title_of(child)}",
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            "a process that crashed, was killed or left its loop answers nothing and empties no queue",
            kept if siblings and method != "put" else "",
        ),
        joined(
            [f"find out why process {child.pid} ended (its log, `dmesg`)"],
            _ask_first(case, where, method),
        ),
    )


def _ask_first(case: Case, where: Frame | None, method: str) -> Message:
    """'let `remote.poll(60)` come before `remote.recv()` at pool.py:44, and raise an error where it gives False'."""
    name = receiver_of(where, method, case.sources) if where is not None else ""
    call = f"{name}.{method}" if name else method
    at: Message = [" at ", line_of(where)] if where is not None else ""
    if method in ("get", "put"):
        return [f"give `{call}(…)`", at, " a timeout, and raise an error if that process is not alive then"]
    poll = f"{name or 'connection'}.poll(60)"
    return [f"let `{poll}` come before `{call}()`", at, ", and raise an error where it gives False"]
