"""What a name is chosen by: the form of the hypothesis, the reasons, and how the ways of the two sides parted."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import is_implicit, plain
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.hypotheses.formed import formed
from hangdoc.diagnosis.hypotheses.forms import Form, FormKind
from hangdoc.diagnosis.hypotheses.suspects import Ranks
from hangdoc.diagnosis.naming.kept import Kept, blocks_its_loop, lock_kept
from hangdoc.diagnosis.naming.owing import Owed, owed_by
from hangdoc.diagnosis.naming.parting import (
    Parted,
    Ways,
    asks_rank,
    deciding,
    parted_by,
    skips_theirs,
    ways_of,
)
from hangdoc.diagnosis.needs.identity import Apart, named_apart
from hangdoc.diagnosis.needs.need import NeedKind
from hangdoc.diagnosis.needs.needs import Needs
from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.judged import Reason, caught, is_end_of_items
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.reasons import reasons
from hangdoc.diagnosis.reason.starts import Sides, parted_at
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import GONE, MESSAGES, ActivityKind
from hangdoc.model.process import Frame, Stack

_CHOICES = ("if", "while", "match", "except", "with", "assert")
"""Kinds of tests of which one alone, where nothing shows that it differs, is worth a look."""

_POLLS = ("while", "except")


@dataclass(frozen=True)
class Facts:
    """Of one hypothesis about one job. All is derived, and computed when it is asked for."""

    case: Case
    culprits: Ranks

    @cached_property
    def form(self) -> Form:
        """What has happened to the culprits, or what they did."""
        return formed(self.case, self.culprits, self.needs)

    @cached_property
    def others(self) -> Ranks:
        """The ranks that are not to blame, as far as they were seen."""
        return tuple(sorted(set(self.case.activities) - set(self.culprits) - self.case.hidden))

    @cached_property
    def needs(self) -> Needs:
        """What each rank waits for."""
        return Needs(self.case)

    @cached_property
    def missed(self) -> Owed | None:
        """The thing that the others wait for and the culprits have not given, or that these wait for themselves; None
        of calls."""
        own, need = self.form.own, self.form.need
        need = own or need if self.form.kind == FormKind.BUSY else need or own
        return owed_by(self.case, self.needs, self.culprits, need) if need is not None else None

    @property
    def is_misnamed(self) -> bool:
        """What is missed is a key, and the culprits have set such a one, or wait like all others: its name was another,
        or its store, or it was deleted."""
        missed = self.missed
        return missed is not None and missed.kind == NeedKind.KEY and (missed.came is True or self.at_one_line)

    @cached_property
    def kept(self) -> Kept | None:
        """The lock that a culprit holds over its wait."""
        return lock_kept(self)

    @cached_property
    def task(self) -> Frame | None:
        """What blocks the event loop that runs it, on each of the culprits."""
        return blocks_its_loop(self)

    @cached_property
    def named_by(self) -> Apart | None:
        """The value that goes into the name of what is missed and is another one on the culprits; None where none is
        seen to."""
        missed = self.missed
        if missed is None or missed.where is None:
            return None
        lines = ((missed.where.file, missed.where.line), *missed.sites)
        ranks = tuple(sorted((*self.culprits, *missed.waiting)))
        found = named_apart(self.case, self.needs.program, lines, missed.where, ranks)
        return next((each for each in found if each.parts(self.culprits)), None)

    @property
    def at_one_line(self) -> bool:
        """All ranks are at one line: what led there led them all."""
        frames = (activity.where for activity in self.case.activities.values())
        return len({frame and (frame.file, frame.line) for frame in frames}) == 1

    @property
    def owes(self) -> Owed | None:
        """The same, where it is what others wait for and the culprits have gone on."""
        missed, own = self.missed, self.own
        if missed is None or not missed.waiting or own is None or own.kind in GONE:
            return None
        sends = self.form.kind == FormKind.MISALIGNED and missed.is_message and own.kind not in MESSAGES
        return missed if sends or self.form.kind == FormKind.MISSED else None

    def leads_to_it(self, test: Predicate) -> bool:
        """True if the test decides whether one of the lines runs that give what is missed."""
        sites = self.missed.sites if self.missed is not None else ()
        led = (self.program.led_to(*site).get(test) for site in sites)
        return any(outcome not in (None, "ended") for outcome in led)

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

    @cached_property
    def reason(self) -> Reason | None:
        """One that decides whether the others get what they wait for, else the likeliest; none that is a rank's part by
        design, and no test that keeps the others where they wait."""
        several = [each for each in self.reasons if not asks_rank(each.item) and not self._keeps(each.item)]
        tests = [each for each in several if isinstance(each.item, Predicate) and each.item.kind in _CHOICES]
        leading = (each for each in tests if isinstance(each.item, Predicate) and self.leads_to_it(each.item))
        first = next(leading, None) or next(iter(several), None)
        if first is None or first.strength > Strength.UNKNOWN or first in tests:
            return first
        return next((each for each in tests if self.is_misnamed or each.direct), None)

    @cached_property
    def is_of_messages(self) -> bool:
        """The culprits, or those who wait for them, pass messages: its two ends do not do the same."""
        needs = (self.form.own, self.form.need)
        return any(need is not None and need.kind in (NeedKind.SEND, NeedKind.RECEIVE) for need in needs)

    def chooses_by_part(self, item: Predicate | Definition) -> bool:
        """True of a conditional expression, and of any test beside messages, that did not come out as never before: it
        gives each rank what its part is."""
        test = item.file, item.line, item.text
        by_part = isinstance(item, Predicate) and (item.kind == "ifexp" or self.is_of_messages)
        return by_part and not self.case.execution.is_new(test, self.culprits, self.others)

    def _keeps(self, item: Predicate | Definition) -> bool:
        """True of a test by which others poll: it asks for what they wait for."""
        return isinstance(item, Predicate) and item in self._polled

    @cached_property
    def _polled(self) -> frozenset[Predicate]:
        frames = (self.case.activities[rank].where for rank in self.others)
        lines = {(frame.file, frame.line): frame for frame in frames if frame is not None}
        return frozenset(test for frame in lines.values() for test in self.polled_at(frame))

    def polled_at(self, frame: Frame) -> list[Predicate]:
        """The tests that bring whoever waits at the line there again."""
        function = self.program.function(frame.file, frame.line)
        around = function.controls(frame.line) if function is not None else ()
        return [test for test, _ in around if test.kind in _POLLS]

    @cached_property
    def kept_away(self) -> tuple[Predicate, str] | None:
        """The test that has kept the culprits from each line that gives what is missed, and the outcome that it would
        have had to have; None where no counters or records show one."""
        missed = self.missed
        for file, line in missed.sites if missed is not None and missed.by_name and missed.came is False else ():
            function = self.program.function(file, line)
            for test, outcome in function.controls(line) if function is not None else ():
                asked = not self.case.table.never_asked(test, self.culprits)
                had = {self.case.table.had(test, outcome, rank)[0] for rank in self.culprits}
                if asked and had == {False} and not asks_rank(test):
                    return test, outcome
        return None

    @cached_property
    def program(self) -> Program:
        """The captured sources."""
        return self.case.program

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

    def made(self, token: Token | None, ranks: Ranks) -> bool | None:
        """Whether any of the ranks has made a call from that line before; None where the past is not known."""
        if token is None or not self.case.programs:
            return None
        return any(
            token.site in program.sites for rank in ranks if (program := self.case.programs.get(rank)) is not None
        )
