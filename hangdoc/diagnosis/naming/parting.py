"""What parted the ways of the two sides: a loop that one of them has left, an exception, or another branch.

By the control dependence of the lines at which they left each other (Ferrante, Ottenstein and Warren 1987): a loop is
left by its own test, or by any other on which its next round depends.

Example: ranks 0 and 1 call all_reduce in `for batch in loader:`, rank 2 the barrier after it → LEFT_LOOP.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import is_rank_name, names, pattern
from hangdoc.diagnosis.frames.stacks import every_frame, fork
from hangdoc.diagnosis.program.items import IN_ROUND, LOOPS, Definition, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.judged import Reason, caught, is_end_of_items
from hangdoc.diagnosis.reason.known import Strength
from hangdoc.diagnosis.reason.starts import Kind
from hangdoc.diagnosis.source.evaluate import names_in
from hangdoc.model.process import Frame, Stack

if TYPE_CHECKING:
    from hangdoc.diagnosis.naming.facts import Facts


class Parting(Enum):
    """What did."""

    LEFT_LOOP = auto()
    """The culprits are past a loop in which the others still are, or have left out a round of it."""
    STAYED_IN_LOOP = auto()
    """The culprits are in a loop that the others have left."""
    EXCEPTION = auto()
    """An exception led the culprits away."""
    ARMS = auto()
    """Both made a call of their own there, in one line or in two arms of a test that go on alike."""
    BRANCH = auto()
    """Another test, or nothing that was seen."""


@dataclass(frozen=True, slots=True)
class Parted:
    """What parted the sides. ``loop``: the test of the loop that one of them has left; None where it is a library's, or
    no loop."""

    how: Parting
    loop: Predicate | None = None


Led = dict[Predicate, str]
"""Predicate → the outcome by which it led to a line."""


@dataclass(frozen=True, slots=True)
class Way:
    """Of one side, from the frame on at which the stacks part: each frame with all predicates that led to its line."""

    frames: Stack
    led: tuple[Led, ...]

    @property
    def every(self) -> Led:
        """Those of all frames."""
        return {predicate: outcome for led in self.led for predicate, outcome in led.items()}


@dataclass(frozen=True, slots=True)
class Ways:
    """Of both sides. ``in_one_loop``: both begin in one."""

    own: Way
    other: Way
    in_one_loop: bool = False


def parted_by(facts: Facts) -> Parted:
    """What parted the sides, by their stacks, their calls and the likeliest reasons."""
    own, other = facts.ways.own, facts.ways.other
    if _in_arms(facts):
        return Parted(Parting.ARMS)
    if _by_exception(facts, own, other):
        return Parted(Parting.EXCEPTION)
    if facts.ran_out:
        return Parted(Parting.LEFT_LOOP)
    left, stayed = _loop_of(facts.program, other, own), _loop_of(facts.program, own, other)
    decides = facts.decides
    if decides is not None and decides.kind not in LOOPS:
        loops = (loop for side in (own, other) for loop in _loops(facts.program, side))
        left = next((loop for loop in loops if _goes_round_by(facts.program, decides, loop)), None)
        loop = left or _loop_of_skipped_round(facts.program, decides, other)
        return Parted(Parting.LEFT_LOOP, loop) if loop is not None else Parted(Parting.BRANCH)
    if decides is not None and decides in (left, stayed):
        return Parted(Parting.LEFT_LOOP if decides == left else Parting.STAYED_IN_LOOP, decides)
    if left is not None and facts.made(facts.theirs, facts.culprits) is not False and _is_past(facts, own, left):
        return Parted(Parting.LEFT_LOOP, left)
    if stayed is not None and facts.gap is not None and facts.made(facts.mine, facts.others) is not False:
        skips = facts.ways.in_one_loop and facts.gap.kind == "insert"
        return Parted(Parting.BRANCH) if skips else Parted(Parting.STAYED_IN_LOOP, stayed)
    if _left_a_library(facts, other):
        return Parted(Parting.LEFT_LOOP)
    is_data = decides is not None and any(_goes_over_data(facts.program, decides, way) for way in (own, other))
    return Parted(Parting.LEFT_LOOP, decides) if is_data else Parted(Parting.BRANCH)


def _in_arms(facts: Facts) -> bool:
    """True if both sides are in one line, each in a call of another group, or in two arms of one test."""
    ways = fork(*facts.stacks)
    if not (ways.mine and ways.theirs):
        return False
    if ways.within_function is None:
        return ways.frames is None and len(ways.mine) == len(ways.theirs) and facts.gap is None
    own, other = (facts.program.led_to(frame.file, frame.line) for frame in ways.within_function)
    differ = (p for p, outcome in own.items() if p.kind not in LOOPS and other.get(p, outcome) != outcome)
    tests = [test for test in differ if not asks_rank(test)]
    in_place = len(facts.ways.own.frames) == len(facts.ways.other.frames) == 1
    return bool(tests) and (facts.gap is None or in_place or not _goes_to_the_end(facts.program, tests[0]))


def _goes_to_the_end(program: Program, test: Predicate) -> bool:
    """True if one way on from the test leaves the function."""
    function = program.function(test.file, test.line)
    return function is None or test in function.led_to(function.end_line)


def ways_of(program: Program, stacks: tuple[Stack, Stack]) -> Ways:
    """Those of the culprits' stack and the others'."""
    ways = fork(*stacks)
    own, other = (_way(program, way[ways.common :]) for way in (ways.mine, ways.theirs))
    if ways.within_function is None:
        return Ways(own, other)
    shared = {p for p in own.led[0].keys() & other.led[0].keys() if own.led[0][p] == other.led[0][p]}
    own, other = (
        Way(way.frames, ({p: o for p, o in way.led[0].items() if p not in shared}, *way.led[1:]))
        for way in (own, other)
    )
    return Ways(own, other, any(p.kind in LOOPS for p in shared))


def _way(program: Program, frames: Stack) -> Way:
    return Way(frames, tuple(program.led_to(frame.file, frame.line) for frame in frames))


def skips_theirs(facts: Facts) -> bool:
    """True if it is the others' call that the culprits have left out, and not one of their own that is too many."""
    if facts.decides is not None:
        return facts.decides in facts.ways.other.every
    if facts.gap is None or facts.gap.kind == "insert":
        return True
    return facts.made(facts.theirs, facts.culprits) is not False and facts.made(facts.mine, facts.others) is not True


def deciding(reasons: Sequence[Reason], ways: Ways) -> Predicate | None:
    """The first of the likeliest reasons that lies on the way of one side, and asks for more than the rank."""
    on_the_way = {**ways.own.every, **ways.other.every}
    for reason in reasons[:LISTED]:
        item = reason.item
        if not isinstance(item, Predicate) or item not in on_the_way or not reason.direct:
            continue
        if reason.strength > (Strength.MAY if asks_rank(item) else Strength.UNKNOWN):
            return item
    return None


def asks_rank(test: Predicate | Definition) -> bool:
    """True if it asks for nothing but the rank, and how many there are."""
    asked = names_in(test.subject) if isinstance(test, Predicate) else ()
    others = [name for name in asked if not is_rank_name(name)]
    return len(others) < len(asked) and all(pattern("count_of_ranks").search(name) for name in others)


def _loops(program: Program, way: Way) -> Iterator[Predicate]:
    """The tests of the loops that the side is in; of `while True:` what ends it."""
    for frame, led in zip(way.frames, way.led, strict=True):
        for predicate, outcome in led.items():
            inside = predicate.kind in LOOPS and outcome in IN_ROUND and not _goes_over_parts(program, predicate, frame)
            if inside or predicate.line > frame.line:
                yield predicate


def _goes_over_parts(program: Program, loop: Predicate, frame: Frame) -> bool:
    """True of a loop over parts of a program, which all ranks have: `for block in blocks: x = block(x)`."""
    places = program.places
    called = (*places.calls_at(frame.file, frame.line), *places.called_objects_at(frame.file, frame.line))
    return _goes_over_model(loop) or not {*loop.targets}.isdisjoint(called)


def _goes_over_data(program: Program, loop: Predicate, way: Way) -> bool:
    """True if the side is at a line of the loop that works on its items."""
    lines = (frame for frame, led in zip(way.frames, way.led, strict=True) if loop in led)
    return any(not _goes_over_parts(program, loop, frame) for frame in lines)


def _goes_over_model(loop: Predicate) -> bool:
    """True of `for p in model.parameters():`, which has as many rounds on every rank."""
    return loop.subject.removesuffix("()").rpartition(".")[2] in names("model_part")


def _loop_of(program: Program, side: Way, other: Way) -> Predicate | None:
    """The outermost loop that one side is in and the other is not."""
    inside = {*_loops(program, other)}
    return next((loop for loop in _loops(program, side) if loop not in inside), None)


def _is_past(facts: Facts, own: Way, loop: Predicate) -> bool:
    """True if the side is behind the loop; of one that is before it, if it is there in a later round of a loop around
    both."""
    here = own.frames[0] if own.frames else None
    if here is None or here.file != loop.file or here.line > loop.line:
        return True
    function = facts.program.function(loop.file, loop.line)
    if function is None or not function.line <= here.line <= function.end_line:
        return True
    return facts.made(facts.mine, facts.others) is not False


def _goes_round_by(program: Program, test: Predicate, loop: Predicate) -> bool:
    function = program.function(loop.file, loop.line)
    return test == loop or (function is not None and function.goes_round_by(test, loop))


def _loop_of_skipped_round(program: Program, test: Predicate, way: Way) -> Predicate | None:
    """The loop whose rest of a round the test leaves out, the innermost."""
    for frame, led in zip(way.frames, way.led, strict=True):
        function = program.function(frame.file, frame.line)
        loops = sorted((each for each in led if each.kind in LOOPS), key=lambda each: -each.line)
        for loop in loops if function is not None else ():
            skips = function is not None and function.leaves_out_rest(test, loop, frame.line)
            if skips and not _goes_over_parts(program, loop, frame):
                return loop
    return None


def _left_a_library(facts: Facts, other: Way) -> bool:
    """True if a library calls the user's function in which the others are, and the culprits, which have been there,
    have come out of that call."""
    ways = fork(*facts.stacks, frames_of=every_frame)
    if ways.frames is not None and is_library(ways.frames[0]):
        return False  # they are in it as well
    below = ways.theirs[ways.common :]
    first = next((at for at, frame in enumerate(below) if is_library(frame)), len(below))
    runs_code = any(not is_library(frame) for frame in below[first:])
    return runs_code and bool(other.frames) and bool(facts.made(facts.theirs, facts.culprits))


def _by_exception(facts: Facts, own: Way, other: Way) -> bool:
    """True if the culprits are in a handler, or the likeliest reason is what raised or caught."""
    theirs = {predicate for predicate, outcome in other.every.items() if outcome == "raised"}
    if any(p.kind == "except" and outcome == "raised" and p not in theirs for p, outcome in own.every.items()):
        return True
    first = facts.reason
    if first is not None and first.start == Kind.RAISED:
        return True
    return any(not is_end_of_items(item) for item in caught(facts.reasons))
