"""``--on-hang restart``: end one rank to blame, so that its launcher starts all ranks anew.

The verdict names the process by rank, pid and start time. The watch on the host of that process ends it, and every
watch of the job waits for the new ranks: what an end of our own making looks like is diagnosed nowhere.
"""

from __future__ import annotations

import hashlib
import signal
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from hangdoc.capture.read import procfs
from hangdoc.errors import UsageError
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.launch import number
from hangdoc.sidecar.abort import signal_process
from hangdoc.sidecar.listener import RankToEnd

if TYPE_CHECKING:
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot

PATIENCE_SECONDS = 120.0
"""For new ranks to come: torchrun gives the old ones 30 s to end, and waits as long for nodes. Judgement."""
_SAME_START = 1.0
"""Seconds by which two readings of one start time differ at most: the clock may have been set in between. Judgement."""
_OPTION = "--max-restarts"
_SHORTEST = len("--max-r")
_ELASTIC = ("torch.distributed.run", "torch.distributed.launch", "accelerate.commands.launch")
_NEVER = ("mpirun", "mpiexec", "orterun", "deepspeed")


def check_launcher(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Raises ``UsageError`` for a command that is known to start no rank anew.

    What a script or another wrapper runs is not known: there the ranks' own environment is asked before one is ended.
    """
    names = [word.rpartition("/")[2] for word in command]
    at = next((i for i, word in enumerate(names) if word in ("torchrun", "accelerate", *_ELASTIC)), None)
    if at is None:
        if names and _runs_ranks_once(names):
            raise UsageError(
                f"--on-hang restart: nothing starts the ranks of {names[0]} anew",
                "start them by `torchrun --max-restarts N`, or choose --on-hang abort",
            )
        return
    given = _max_restarts(command[at + 1 :]) or environment.get("PET_MAX_RESTARTS") or "0"
    if number(given) == 0:
        raise UsageError(
            "--on-hang restart: torchrun may start no rank anew (--max-restarts is 0, which is its default)",
            "add --max-restarts N to the command, or choose --on-hang abort",
        )


def _runs_ranks_once(names: Sequence[str]) -> bool:
    """True for a Python program, by itself or under srun, and for launchers that never start a rank twice."""
    first = names[0]
    if first == "srun":
        return any(name.startswith("python") for name in names)
    return first in _NEVER or first.startswith("python")


def _max_restarts(words: Sequence[str]) -> str:
    """The option's value, also as argparse lets one shorten it: '--max_restarts=3', '--max-rest 3'; '' for none."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        plain = name.replace("_", "-")
        if len(plain) >= _SHORTEST and _OPTION.startswith(plain):
            return value if equals else next(iter(words[place + 1 : place + 2]), "")
    return ""


def rank_to_end(diagnosis: Diagnosis, snapshot: JobSnapshot) -> RankToEnd | str:
    """The rank to end for this verdict, or why there is none."""
    if diagnosis.outcome != Outcome.HANG:
        return "the verdict is no hang"
    if diagnosis.confidence not in (Confidence.CERTAIN, Confidence.LIKELY):
        return "the verdict is only possible"
    if not diagnosis.culprits:
        return "the verdict names no rank"
    ranks = {rank.rank: rank for rank in snapshot.ranks}
    for rank in sorted(diagnosis.culprits):
        found = ranks.get(rank)
        if found is None or found.process is None or found.exit is not None:
            continue
        if found.process.looks and found.process.started:
            return RankToEnd(rank, found.process.pid, found.process.started, found.host, _mark(diagnosis))
    return "no rank to blame is alive"


def _mark(diagnosis: Diagnosis) -> str:
    """One word for the cause and the lines to blame; for the ranks, where no line is known.

    Not for the ranks in any case: after a restart the same fault may hit another rank.
    """
    lines = (activity.where for activity in diagnosis.ranks if activity.rank in diagnosis.culprits)
    places = {f"{line.file}:{line.line}" for line in lines if line is not None}
    words = [diagnosis.cause.code if diagnosis.cause else "", *sorted(places or map(str, diagnosis.culprits))]
    return hashlib.sha256("\n".join(words).encode("utf-8", "backslashreplace")).hexdigest()[:16]


def end_rank(order: RankToEnd, environment: Mapping[str, str]) -> str:
    """End the process, if its launcher will start it anew, as the rank's ``environment`` says. '', or why not."""
    most, done = (number(environment.get(f"TORCHELASTIC_{name}")) for name in ("MAX_RESTARTS", "RESTART_COUNT"))
    if not most:
        return f"the launcher of rank {order.rank} starts no rank anew"
    if (done or 0) >= most:
        return f"its launcher has used the {most} restarts of --max-restarts"
    found = procfs.stat(order.pid)
    if found is None or found.state in "ZX" or abs(procfs.start_time(found) - order.started) > _SAME_START:
        return f"process {order.pid} of rank {order.rank} has ended"
    # It is in a call that never returns: whatever a handler of its own would do, it would not come to it.
    signal_process(order.pid, found.started, signal.SIGKILL)
    return ""


class Restarts:
    """What a watch remembers of restarts: for which verdicts, and whether one is under way. Times are monotonic."""

    def __init__(self) -> None:
        self._marks: set[str] = set()
        self._since = 0.0
        self.before: frozenset[int] | None = None
        """The ranks' processes when the restart began; None: none is under way."""
        self._overdue = False
        self.given_up = False
        """Nobody has ended a rank for a restart that this watch waited for. It waits for no other of another host's:
        whoever speaks for a lead could keep it waiting for ever."""

    @property
    def under_way(self) -> bool:
        """True from the end of a rank until new ranks have come."""
        return self.before is not None

    def was_in_vain(self, order: RankToEnd) -> bool:
        """True if an equal verdict has led to a restart before."""
        return order.mark in self._marks

    def begin(self, order: RankToEnd, ranks: Iterable[int], now: float) -> None:
        """A rank is being ended. ``ranks``: the processes of this host's ranks."""
        self._marks.add(order.mark)
        self._since, self.before, self._overdue = now, frozenset(ranks), False

    def has_come(self, ranks: Iterable[int]) -> bool:
        """True, once, if there are new ranks: the restart is over."""
        if self.before is None or self.before.issuperset(ranks):
            return False
        self.before = None
        return True

    def is_overdue(self, now: float) -> bool:
        """True, once, if the ranks have not been started anew in time."""
        if self.before is None or self._overdue or now - self._since < PATIENCE_SECONDS:
            return False
        self._overdue = True
        return True

    def give_up(self) -> None:
        """The ranks are as they were: nobody has ended one."""
        self.before, self.given_up = None, True
