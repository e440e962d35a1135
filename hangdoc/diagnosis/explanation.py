"""The explanations of a hang: one class for each, with the evidence by which it was found.

A cause is registered for the explanation that it names, and reads the evidence from it: nothing is found twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.calls.stack_calls import is_between_librarys_calls
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.model.diagnosis import CulpritProcess
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Raised


class Explanation:
    """Why the job does not move, or did not end well."""

    __slots__ = ()


@dataclass(frozen=True)
class Diverged(Explanation):
    """The ranks' calls differ: the smallest repair, and the guards that can explain it, the likeliest first.

    Example: rank 2 of [A, B] | [A, B] | [A, X, B] made an extra call X.
    """

    alignment: Alignment
    branch_points: tuple[BranchPoint, ...] = ()
    late: Gap | None = None
    """The others' call, where the culprits make it as well, but later: reported in place of the smallest repair."""

    @property
    def gap(self) -> Gap | None:
        """The divergence itself: the first repair of the chosen alignment."""
        return self.late or self.alignment.first

    @property
    def past(self) -> bool:
        """True if the ranks diverged some calls ago and went on."""
        return self.gap is not None and self.gap.past

    @property
    def came_before(self) -> bool:
        """True if every rank makes the calls that the stacks show, as a rule: the ranks diverged before them."""
        return (
            self.alignment.history.inferred
            and not self.branch_points
            and is_between_librarys_calls(self.alignment.first)
        )

    @property
    def is_recorded(self) -> bool:
        """True if recorded tests show at which guard the sides diverged."""
        return self.branch_point is not None and self.branch_point.recorded

    @property
    def branch_point(self) -> BranchPoint | None:
        """The guard at which the sides diverged, where one was found."""
        return self.branch_points[0] if self.branch_points else None


@dataclass(frozen=True, slots=True)
class Gone(Explanation):
    """The culprits have ended, never joined or are stopped; the others wait for them."""


@dataclass(frozen=True, slots=True)
class Refused(Gone):
    """gloo ended the culprit, which got more bytes than it expected; ``others`` gave ``call`` the same."""

    call: Token
    others: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EndedMeanwhile(Gone):
    """The culprit was at no call while its peers failed for want of it, and the launcher ended it then."""

    error: Raised | None
    """The exception that it was in the except or finally suite of, or what that one began with."""
    others: tuple[int, ...]
    timed_out: bool
    """The peers' wait timed out; else their connections to it were closed."""


@dataclass(frozen=True, slots=True)
class OutsideWait(Explanation):
    """The culprits work, or wait for something that is not a rank; the others wait for them."""


@dataclass(frozen=True, slots=True)
class AllArrived(Explanation):
    """Every rank is in the same call, and it does not complete."""


@dataclass(frozen=True, slots=True)
class CutOff(Explanation):
    """Every rank waits in a call, those that the others wait for in one that all its members have entered, and hosts
    cannot reach each other."""


@dataclass(frozen=True, slots=True)
class UnseenMessages(Explanation):
    """Every rank waits for a message, and no source shows which rank each message is for, or from."""


@dataclass(frozen=True, slots=True)
class Nothing(Explanation):
    """No rank waits for another."""


@dataclass(frozen=True, slots=True)
class Supposed(Explanation):
    """What was seen of the culprits speaks against them, and no story is told of it: its form says what happened."""

    alignment: Alignment | None = None
    """The repair of calls that lays it to them, where one does."""
    by: Seen | None = None
    """The test on the way to the message that the culprit left out once: recorded to have come out otherwise once."""


@dataclass(frozen=True, slots=True)
class Stuck(Explanation):
    """No future step sets these ranks free, and calls of groups do not tell who is to blame."""


@dataclass(frozen=True, slots=True)
class HeldUpUnseen(Explanation):
    """The ranks that the others wait for were not seen."""


@dataclass(frozen=True, slots=True)
class SeparateMeetings(Explanation):
    """Ranks wait for the others to join at different addresses."""

    places: dict[str, list[int]]
    """Address → the ranks that wait there."""


@dataclass(frozen=True, slots=True)
class SharedRank(Explanation):
    """Several processes join as one rank, and none as another."""

    twice: dict[int, tuple[int, ...]]
    """Each rank that several gave to init_process_group() → those that did, by the ranks that they were started as."""
    missing: tuple[int, ...]
    """The ranks as which no process joins."""
    odd: tuple[int, ...]
    """Those that gave another rank than their own, where whoever owns that one gave it as well; () where others did."""


E_co = TypeVar("E_co", bound=Explanation, covariant=True)


@dataclass(frozen=True)
class Blame(Generic[E_co]):
    """The verdict before it has a name: who must change, and by which explanation.

    ``proved``: no future step of the job can end the hang. ``sure``: why ``confidence`` is what it is.
    """

    found: E_co
    culprits: tuple[int, ...] = ()
    alternatives: tuple[tuple[int, ...], ...] = ()
    """Other sets of ranks that the same evidence fits."""
    proved: bool = False
    confidence: Confidence = Confidence.POSSIBLE
    sure: str = ""
    processes: tuple[CulpritProcess, ...] = ()
    """The processes to blame, where these are not ranks."""

    @property
    def diverged(self) -> Diverged | None:
        """The divergence; None for any other explanation."""
        if isinstance(self.found, Supposed) and self.found.alignment is not None:
            return Diverged(self.found.alignment)
        return self.found if isinstance(self.found, Diverged) else None
