"""What a name is chosen by: the form of the hypothesis, the reasons, and how the ways of the two sides parted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.hypotheses.formed import formed
from hangdoc.diagnosis.hypotheses.forms import Form, FormKind
from hangdoc.diagnosis.hypotheses.suspects import Ranks
from hangdoc.diagnosis.naming.parting import (
    Parted,
    Ways,
    caught,
    deciding,
    is_end_of_items,
    parted_by,
    skips_theirs,
    ways_of,
)
from hangdoc.diagnosis.program.items import Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.judged import Reason
from hangdoc.diagnosis.reason.reasons import reasons
from hangdoc.diagnosis.reason.starts import Sides, parted_at
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack


@dataclass(frozen=True)
class Facts:
    """Of one hypothesis about one job. All is derived, and computed when it is asked for."""

    case: Case
    culprits: Ranks

    @cached_property
    def form(self) -> Form:
        """What has happened to the culprits, or what they did."""
        return formed(self.case, self.culprits)

    @cached_property
    def others(self) -> Ranks:
        """The ranks that are not to blame, as far as they were seen."""
        return tuple(sorted(set(self.case.activities) - set(self.culprits) - self.case.hidden))

    @cached_property
    def waiting(self) -> Ranks:
        """The ranks that have the need which the culprits owe."""
        need = self.form.need
        return tuple(each.waiter.rank for each in self.form.explained if need is not None and each.kind == need.kind)

    @property
    def sides(self) -> Sides:
        """Both."""
        return Sides(self.culprits, self.others)

    @property
    def gap(self) -> Gap | None:
        """Where the calls of the sides part, in one group."""
        return self.form.gap

    @cached_property
    def reasons(self) -> tuple[Reason, ...]:
        """What parted the sides, the likeliest first."""
        if not self.culprits or not self.others:
            return ()
        return reasons(self.case, self.sides, parted_at(self.gap, self.sides)).reasons

    @property
    def reason(self) -> Reason | None:
        """The likeliest."""
        return next(iter(self.reasons), None)

    @cached_property
    def program(self) -> Program:
        """The captured sources."""
        return Program.of(self.case.job)

    @property
    def own(self) -> Activity | None:
        """What the first culprit does that is in no call of all ranks; else what the first one does."""
        each = [self.case.activities[rank] for rank in self.culprits if rank in self.case.activities]
        return next((a for a in each if a.kind != ActivityKind.IN_COLLECTIVE), next(iter(each), None))

    @property
    def owed(self) -> Activity | None:
        """What the rank does whose need the culprits owe."""
        return self.case.activities.get(self.form.need.waiter.rank) if self.form.need is not None else None

    @property
    def mine(self) -> Token | None:
        """The culprits' call where the calls part."""
        return self.gap.mine if self.gap is not None else None

    @property
    def theirs(self) -> Token | None:
        """The others' call there."""
        return self.gap.theirs if self.gap is not None else None

    @property
    def stacks(self) -> tuple[Stack, Stack]:
        """Where the culprits and the others are, or were when their calls parted."""
        mine, theirs = self.mine, self.theirs
        return (
            mine.stack if mine is not None else self.own.stack if self.own is not None else (),
            theirs.stack if theirs is not None else self.owed.stack if self.owed is not None else (),
        )

    @cached_property
    def ways(self) -> Ways:
        """How each side came to where it is, from where their stacks part."""
        return ways_of(self.program, self.stacks)

    @cached_property
    def decides(self) -> Predicate | None:
        """The test on one of these ways that is the likeliest reason."""
        return deciding(self.reasons, self.ways)

    @property
    def shows_parting(self) -> bool:
        """What parted the sides can be seen, or the form says it by itself. Without sources, as in dumps, calls that do
        not fit may have come apart by a loop, a test or an exception."""
        return self.form.kind != FormKind.MISALIGNED or bool(self.program.files)

    @property
    def ran_out(self) -> bool:
        """A handler of the end of items may have parted the sides."""
        return any(map(is_end_of_items, caught(self.reasons)))

    @cached_property
    def parted(self) -> Parted:
        """What parted the ways of the two sides."""
        return parted_by(self)

    @cached_property
    def skips(self) -> bool:
        """It is the others' call that is left out, and none of the culprits' own that is too many."""
        return skips_theirs(self)

    @property
    def odd(self) -> Token | None:
        """The call that is left out, or one too many."""
        return self.theirs if self.skips else self.mine

    @property
    def unmet(self) -> Activity | None:
        """The wait that does not end: of the others, where the culprits have gone on, else their own."""
        return self.owed if self.form.kind == FormKind.MISSED else self.own

    @property
    def is_implicit(self) -> bool:
        """The call that is one too many, or left out, is one that a library makes on its own."""
        mine, theirs = self.stacks
        return is_implicit(theirs if self.skips else mine)

    @cached_property
    def handler(self) -> Frame | None:
        """The function by which the culprits came to their call, where nobody called it at the line from which it was
        entered: a handler of signals, or a finalizer."""
        stack = self.stacks[0]
        for inner, outer in pairwise(stack):
            name = plain(inner.function)
            if name == "__del__":
                return inner
            if not is_library(inner) and not is_library(outer) and self._is_handler(name, outer):
                return inner
        return None

    def _is_handler(self, function: str, at: Frame) -> bool:
        """True if a statement gives the function away to be called later, and the line does not name it."""
        places = self.program.places
        naming = places.naming(function)
        if (at.file, at.line) in naming or self.program.function(at.file, at.line) is None:
            return False
        registering = {name.rsplit(".", 1)[-1] for name in names("registers_handler")}
        return any(registering & {*places.calls_at(file, line)} for file, line in naming)

    @property
    def is_end(self) -> bool:
        """The culprits' program had ended where the others made their call."""
        return self.gap is not None and any(
            token is not None and token.op == END for token in (self.gap.mine, self.gap.token)
        )

    def made(self, token: Token | None, ranks: Ranks) -> bool | None:
        """Whether any of the ranks has made a call from that line before; None where the past is not known."""
        if token is None or not self.case.programs:
            return None
        return any(
            token.site in program.sites for rank in ranks if (program := self.case.programs.get(rank)) is not None
        )
