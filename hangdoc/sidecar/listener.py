"""The interface through which the watcher reports what happens to the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from hangdoc.model.snapshot import JobSnapshot


@dataclass(frozen=True, slots=True)
class RankToEnd:
    """The process whose end makes the launcher start all ranks anew. ``started``: Unix time, by its own host's clock.

    ``mark``: equal for equal verdicts.
    """

    rank: int
    pid: int
    started: float
    host: str
    mark: str


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a diagnosis came to. ``path``: of its snapshot; '' where it was not kept. ``may_end``: as the listener's.

    ``end``: the rank to end for a restart; None where the verdict carries none. ``news``: what a later verdict must
    differ in to be told again (not in seconds, say); '' if every other sentence is news.
    """

    outcome: str
    sentence: str
    path: str = ""
    may_end: bool = False
    end: RankToEnd | None = None
    fix: str = ""
    news: str = ""


class Listener(Protocol):
    """The receiver of all news about the job. Called from the watcher's thread, except ``on_start``; may not raise."""

    def on_start(self, pid: int) -> None:
        """The command runs."""

    def on_nested(self, watcher: int) -> None:
        """Another hangdoc watches already; the command will be run without us."""

    def on_stall(self, snapshot: JobSnapshot, number: int) -> str:
        """Nothing moves; returns the outcome. Called again, same ``number``, while the stall lasts."""

    def may_end(self) -> bool:
        """True if the last verdict blames only ranks that were seen here: only then may the job be ended for it."""

    def doubt(self, snapshot: JobSnapshot) -> str:
        """What ``snapshot``, of this host's ranks alone, shows that does not fit another host's word that they hang;
        '' if all fits. Prints nothing."""

    def on_spared(self, why: str) -> None:
        """Another host's verdict ends nothing here, although the user asked for it: ``why``, see ``doubt``."""

    def conclusion(self) -> Conclusion | None:
        """What the last snapshot came to; None if it could not be diagnosed."""

    def after_report(self) -> None:
        """Everybody has been told of the last verdict: begin what is to be done after the report of a hang."""

    def wait_for_command(self) -> None:
        """Wait, in bounded time, until what ``after_report`` began has ended."""

    def on_verdict(self, conclusion: Conclusion, host: str, hosts: int) -> None:
        """The watch on ``host`` has come to this for all ``hosts``, ours among them."""

    def on_alone(self, why: str) -> None:
        """The watches on other hosts could not be met, so a report is of this host alone. Said once for each reason."""

    def on_progress(self, sockets: Mapping[int, Path], now: float) -> None:
        """The job moves; ``sockets`` are its ranks' probes. Called once a second: must not block."""

    def on_resume(self, seconds: float) -> None:
        """The job moves again after ``seconds`` without progress."""

    def on_change(self, seconds: float) -> None:
        """A rank or a port came or went in a stall, after ``seconds`` without progress: the time is counted anew."""

    def on_end(self, snapshot: JobSnapshot) -> None:
        """The job ended by itself with a dead or failed rank."""

    def on_abort(self, survivors: Sequence[int]) -> None:
        """The job was ended as asked; ``survivors`` could not be."""

    def on_given_up(self) -> None:
        """The job that was found hung has ended: by its user, or by another host's word."""

    def on_restart(self, end: RankToEnd, *, here: bool) -> None:
        """A rank is ended so that the launcher starts all anew; ``here``: by this watch."""

    def on_no_restart(self, why: str) -> None:
        """The job is not restarted, although the user asked for it."""

    def on_restarted(self) -> None:
        """The launcher has started new ranks."""

    def on_no_stream(self, why: str) -> None:
        """The stream of the ranks' logs has failed; they still write to their files."""

    def on_workers_restarted(self, snapshot: JobSnapshot | None, restart: int, most: int | None) -> None:
        """The launcher has started all ranks anew by itself, for the ``restart``-th time of ``most``.

        ``snapshot``: the ranks that ended; None where none that failed was seen here.
        """

    def on_blind(self, why: str) -> None:
        """The watch failed; the job runs on."""
