"""What a probe's recorder of branches tells: which lines have run, and how the tests came out.

Code that is watched has no counters of the interpreter's any more. What ran before the probe came is in the counters
from then, which the probe has kept.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from hangdoc.capture.read.counters import KNOWN, Counted, NotCodeError, read_counters
from hangdoc.capture.safe.text import clean
from hangdoc.model.branches import (
    LAST,
    MOST_BRANCHES,
    MOST_CAUGHT,
    MOST_TAKEN,
    VALUES,
    WORDS,
    BranchCounts,
    Caught,
    Taken,
)
from hangdoc.model.frames import is_library_file
from hangdoc.model.ran import RanCode

# Of an answer; twice what the probe says, where it says so much.
_MOST_CODES = 8000
_MOST_LINES = 20_000
_MOST_TESTS = 20_000
_MOST_BYTECODE = 1 << 17
_MOST_EVENTS = 2000
_LONGEST_FILE = 4096
_LONGEST_NAME = 300

_OWN_BRANCHES = MOST_BRANCHES * 3 // 4
"""Of those that are kept, how many are first for the program's own; judgement."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """As of ``Process``; ``why``: the reason why nothing is recorded."""

    code: tuple[RanCode, ...] = ()
    branches: tuple[BranchCounts, ...] = ()
    taken: tuple[Taken, ...] = ()
    caught: tuple[Caught, ...] = ()
    why: str = ""

    def without_tests(self) -> Recorded:
        """What may be told where nothing of the source is wanted: which lines have run, as of any process."""
        return replace(self, branches=(), taken=(), caught=())


NOTHING_RECORDED = Recorded()


def recorded(answer: Any, python: str) -> Recorded:
    """What the part of an answer says; what does not fit is left out. ``python``: '3.12.1'."""
    if not isinstance(answer, dict):
        return NOTHING_RECORDED
    minor = int(second) if (second := python.split(".")[1:2] and python.split(".")[1]) and second.isdigit() else 0
    codes = [_code(row, minor) for row in _rows(answer.get("codes"), 8, _MOST_CODES)]
    tests = [_branch(row, codes) for row in _rows(answer.get("tests"), 11, _MOST_TESTS)]
    every = [each for each in _events(answer, len(tests)) if tests[each.branch] is not None]
    events, lost = every[-MOST_TAKEN:], {each.branch: each.at_ns + 1 for each in every[:-MOST_TAKEN]}
    caught = [each for each in _caught(answer, codes, len(tests)) if tests[each.branch] is not None][-MOST_CAUGHT:]
    kept = _kept(tests, [*(each.branch for each in events), *(each.branch for each in caught)])
    places = {number: place for place, number in enumerate(kept)}
    why = answer.get("why")
    return Recorded(
        tuple(code for code, _ in filter(None, codes) if not is_library_file(code.file)),
        tuple(
            replace(branch, since_ns=max(branch.since_ns, lost.get(number, 0)))
            for number in kept
            if (branch := tests[number]) is not None
        ),
        tuple(replace(each, branch=places[each.branch]) for each in events if each.branch in places),
        tuple(replace(each, branch=places[each.branch]) for each in caught if each.branch in places),
        clean(why, _LONGEST_NAME) if isinstance(why, str) else "",
    )


def _kept(tests: Sequence[BranchCounts | None], decided: Iterable[int]) -> list[int]:
    """The tests that are kept: those decided last, and those that came out in both ways, before others.

    Most of the room is first for those of the program itself, also where they came out in one way alone: another rank
    may tell of the other way, and a library's loop decides more in a step than the program does.
    """
    both = [number for number, test in enumerate(tests) if test is not None and all(test.counts)]
    every = [number for number, test in enumerate(tests) if test is not None]
    order = list(dict.fromkeys((*reversed(list(decided)), *both, *every)))
    own = [number for number in order if (test := tests[number]) is not None and not is_library_file(test.file)]
    return sorted(list(dict.fromkeys((*own[:_OWN_BRANCHES], *order)))[:MOST_BRANCHES])


def _code(row: list[Any], minor: int) -> tuple[RanCode, bool] | None:
    """(what has run of a function, whether all of that is known)."""
    file, function, first, lines, ran, new, bytecode, table = row
    if not (isinstance(file, str) and isinstance(function, str) and _is_line(first)):
        return None
    counted = Counted(called=False) if new is True else _counted(bytecode, table, first, minor)
    every, now = (set(filter(_is_line, _list(each)[:_MOST_LINES])) for each in (lines, ran))
    before = set(counted.ran) if counted is not None else set()
    idle: set[int] = set()
    if counted is not None:
        idle = (set(counted.idle) if counted.called is not False else every) - now - before
    name = clean(function, _LONGEST_NAME)
    called = True if ran is not None else counted.called if counted is not None else None
    code = RanCode(clean(file[:_LONGEST_FILE]), name, first, called, tuple(sorted(now | before)), tuple(sorted(idle)))
    return code, counted is not None and counted.called is False


def _counted(bytecode: Any, table: Any, first: int, minor: int) -> Counted | None:
    """What the counters said when the probe saw the code first; None where they do not tell."""
    if minor not in KNOWN or not (isinstance(bytecode, str) and isinstance(table, str) and bytecode):
        return None
    if len(bytecode) > _MOST_BYTECODE or len(table) > _MOST_BYTECODE:
        return None
    try:
        return read_counters(minor, b64decode(bytecode, validate=True), b64decode(table, validate=True), first)
    except (binascii.Error, NotCodeError, struct.error, IndexError):
        return None


def _branch(row: list[Any], codes: Sequence[tuple[RanCode, bool] | None]) -> BranchCounts | None:
    number, line, column, end_line, end_column, values, first, second, last, told, since = row
    code = codes[number] if type(number) is int and 0 <= number < len(codes) else None
    if code is None or not _is_line(line) or values not in VALUES or not isinstance(last, str):
        return None
    return BranchCounts(
        code[0].file,
        code[0].function,
        line,
        _number(column),
        _number(end_line),
        _number(end_column),
        values,
        (max(0, _number(first)), max(0, _number(second))),
        last="".join(each for each in last[-LAST:] if each in values),
        whole=code[1] and told is True,
        cut=told is not True,
        since_ns=max(0, _number(since)),
    )


def _events(answer: dict[str, Any], count: int) -> list[Taken]:
    """The last values in the main thread, by the number of the test among the answer's ``count``."""
    found = []
    for thread, parts in _rows(answer.get("threads"), 2, _MOST_CODES):
        flat = _list(parts)[-3 * _MOST_EVENTS :] if thread == answer.get("main") else []
        for number, value, at in zip(flat[::3], flat[1::3], flat[2::3], strict=False):
            if (
                type(number) is int
                and 0 <= number < count
                and isinstance(value, str)
                and value in WORDS
                and type(at) is int
            ):
                found.append(Taken(number, value, at))
    return found


def _caught(answer: dict[str, Any], codes: Sequence[tuple[RanCode, bool] | None], count: int) -> list[Caught]:
    """What was caught in the main thread, by the number of the test."""
    found = []
    for number, at, exception, raised_by, line in _rows(answer.get("caught"), 5, _MOST_EVENTS):
        if type(number) is int and 0 <= number < count and type(at) is int and isinstance(exception, str):
            code = codes[raised_by] if type(raised_by) is int and 0 <= raised_by < len(codes) else None
            where = (code[0].file, line, code[0].function) if code is not None and _is_line(line) else ("", 0, "")
            found.append(Caught(number, at, clean(exception, _LONGEST_NAME), *where))
    return sorted(found, key=lambda each: each.at_ns)


def _number(value: Any) -> int:
    return value if type(value) is int and 0 <= value < 1 << 62 else -1


def _is_line(value: Any) -> bool:
    return type(value) is int and 0 < value < 1 << 31


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _rows(value: Any, width: int, most: int) -> list[list[Any]]:
    return [row for row in _list(value)[:most] if isinstance(row, list) and len(row) == width]
