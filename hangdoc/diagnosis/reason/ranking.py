"""The order of the reasons: what is proved before what is not, of a chain what came first, then by distance."""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.program.items import Definition, Predicate
from hangdoc.diagnosis.program.program import Program
from hangdoc.diagnosis.reason.even import Even
from hangdoc.diagnosis.reason.judged import Reason
from hangdoc.diagnosis.reason.known import Known, Strength, is_rank_name
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.reason.relays import LOOPS, handed_on
from hangdoc.diagnosis.reason.starts import Sides

MOST = 15
"""Reasons of which it is asked where their values come from: the first. It takes a slice each."""
LOOP, VALUE = 5.0, 8.0
"""What is added to a loop, as most loops go alike on all ranks, and to a definition, which tells no way."""
GAIN = {"recorder": 3.0, "counters": 3.0, "stacks": 2.0}
"""What a proof takes off, by its source. The rank and the values of now prove that an outcome differs, and most such
tests are there by design: they take nothing off.

All of these are judgement, rounded, by those of the reviewed cases whose half is "tuned" (see
tests/accuracy/reasons.py)."""


def ranked(known: Known, program: Program, sides: Sides, listed: Iterable[Reason]) -> list[Reason]:
    """The likeliest first; none where there is nobody to compare with, or the first is a value of which nothing is
    seen to differ."""
    if sides.culprits and not sides.others:
        return []
    even = Even(program)
    found = _without_even(even, _by_proof(known, sides, listed))
    root = _root(known, even, found)
    if root is not None:
        found = [root, *(each for each in found if each is not root)]
    unseen = bool(found) and isinstance(found[0].item, Definition) and found[0].strength == Strength.UNKNOWN
    return [] if unseen else found


def _by_proof(known: Known, sides: Sides, listed: Iterable[Reason]) -> list[Reason]:
    """What is proved before what is not; of a chain of these the one that came first, in the place of the chain."""
    every = sorted(listed, key=_order)
    proved = {each.item: each for each in every if _is_proved(each)}
    both_asked = [e for e in proved.values() if not any(known.table.never_asked(_test(e), each) for each in sides)]
    heads = {e.item: [proved[at] for at in e.path if at in proved and handed_on(at, e)] for e in both_asked}
    led_to = {each.item for chain in heads.values() for each in chain}

    def key(each: Reason) -> tuple[bool, tuple[bool, float], bool]:
        chain = [each, *heads.get(each.item, ())]
        return each.item not in proved, min(map(_order, chain)), each.item in led_to

    return sorted(every, key=key)


def _without_even(even: Even, found: list[Reason]) -> list[Reason]:
    """Those that come out alike on all ranks by their nature come last. What always goes one way in a process is left
    out where the culprits have come to the start before."""
    first = [each for each in found[:MOST] if isinstance(each.item, Predicate)]
    alike = [each for each in first if even.is_even(each.item)]
    settled = [each for each in first if each.again and even.is_settled(_test(each))]
    rest = [each for each in found if each not in alike]
    return [each for each in (*rest, *alike) if each not in settled]


def _root(known: Known, even: Even, found: list[Reason]) -> Reason | None:
    """What has decided the first by a value that differs. Example: of `if wants_save(used):`, the `if used > limit:` in
    it."""
    first = found[0].item if found else None
    behind = [each for each in found if first in each.path and first is not None and handed_on(first, each)]
    tests = [each for each in behind if isinstance(each.item, Predicate)]
    return next((each for each in tests[:MOST] if _reads_what_differs(known, even, each)), None)


def _reads_what_differs(known: Known, even: Even, reason: Reason) -> bool:
    """True if a value that goes into the predicate differs; of counters of loops it does wherever one is further on."""
    if reason.item.kind in LOOPS or even.is_even(reason.item):
        return False
    read = [each for each in even.read_by(reason.item) if each.kind != "loop" and not is_rank_name(each.name)]
    return any(known.values_differ(each) and not even.is_even(each) for each in read)


def _is_proved(reason: Reason) -> bool:
    return reason.strength == Strength.PROVED and reason.source in GAIN and _decides(reason) and not reason.designed


def _test(reason: Reason) -> Predicate:
    assert isinstance(reason.item, Predicate)
    return reason.item


def _decides(reason: Reason) -> bool:
    """True if it decides whether the start is come to, by itself or by a flag; else it bears on a value there."""
    first = next(iter(reason.path), reason.item)
    return isinstance(first, Predicate) and (first is reason.item or handed_on(first, reason))


def _order(reason: Reason) -> tuple[bool, float]:
    """The user's own first, then by distance; with what else is known put in steps of control dependence."""
    cost = reason.distance
    if isinstance(reason.item, Definition):
        cost += VALUE
    elif reason.item.kind in LOOPS:
        cost += LOOP
    if reason.strength == Strength.PROVED and not reason.designed:
        cost -= GAIN.get(reason.source, 0.0)
    return is_library_file(reason.item.file), cost
