"""What the counters in a code object's bytecode say: which lines have run, and how its tests came out.

CPython 3.11 and later keep cache entries of 16 bits behind each instruction that they may specialise. Example, 3.12:

    LOAD_GLOBAL  0011 0000 0000 0000     its counter is as it was made: it has not run
    LOAD_GLOBAL  0001 0000 0000 0000     it has run once
    LOAD_GLOBAL_MODULE …                 it has run more than once

All is as in CPython's Lib/opcode.py, Python/specialize.c and Objects/locations.md of these versions.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.model.ran import Tested

_Families = dict[str, tuple[int, int, tuple[int, ...]]]
"""Instruction → cache entries, its opcode before it is specialised (3.11: once it is warm), its other opcodes."""


@dataclass(frozen=True, slots=True)
class _Version:
    families: _Families
    prologue: frozenset[int]
    """What every call runs first, on the line of the `def`."""
    leaving: frozenset[int]
    """What jumps, returns or raises without a counter."""
    odd: tuple[frozenset[int], int]
    """Opcodes of traced and of compiled code, whose counters say less: these, and all from that one on."""
    fresh: int
    """The counter of an instruction that has not run."""
    started: tuple[int, int] | None = None
    """RESUME, and what it becomes when it has run."""


_NO_COUNTER = frozenset({"JUMP_BACKWARD"})
"""Its cache belongs to the compiler."""
_JUMPS = {"POP_JUMP_IF_FALSE": "TF", "POP_JUMP_IF_TRUE": "FT", "POP_JUMP_IF_NONE": "VN", "POP_JUMP_IF_NOT_NONE": "NV"}
"""Jump with a history → the outcome where it did not jump, and where it did."""
_UNUSED_HISTORY = 0x5555

# fmt: off
_VERSIONS = {
    11: _Version(
        {
            "BINARY_OP": (1, 3, (4, 5, 6, 7, 8, 13, 14, 16, 122)),
            "BINARY_SUBSCR": (4, 17, (18, 19, 20, 21, 25)),
            "CALL": (4, 22, (23, 24, 171)),
            "COMPARE_OP": (2, 26, (27, 28, 29, 107)),
            "LOAD_ATTR": (4, 39, (40, 41, 42, 43, 106)),
            "LOAD_GLOBAL": (5, 47, (48, 55, 116)),
            "LOAD_METHOD": (10, 56, (57, 58, 59, 62, 63, 160)),
            "PRECALL": (1, 64, (65, 66, 67, 72, 73, 76, 77, 78, 79, 80, 81, 113, 121, 127, 141, 143, 166)),
            "STORE_ATTR": (4, 153, (95, 154, 158, 159)),
            "STORE_SUBSCR": (1, 168, (60, 169, 170)),
            "UNPACK_SEQUENCE": (1, 177, (92, 178, 179, 180)),
        },
        # POP_TOP, RETURN_GENERATOR, MAKE_CELL, COPY_FREE_VARS, RESUME_QUICK, RESUME.
        prologue=frozenset({1, 75, 135, 149, 150, 151}),
        leaving=frozenset(),
        odd=(frozenset({0}), 255),
        fresh=0,
    ),
    12: _Version(
        {
            "BINARY_OP": (1, 122, (6, 7, 8, 10, 13, 14, 16, 18)),
            "BINARY_SUBSCR": (1, 25, (19, 20, 21, 22)),
            "CALL": (3, 171, (23, 24, 28, 29, 34, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 56)),
            "COMPARE_OP": (1, 107, (57, 58, 59)),
            "FOR_ITER": (1, 93, (62, 63, 64, 65)),
            "LOAD_ATTR": (9, 106, (70, 72, 73, 76, 77, 78, 79, 80, 81, 82)),
            "LOAD_GLOBAL": (4, 116, (111, 112)),
            "LOAD_SUPER_ATTR": (1, 141, (66, 67)),
            "SEND": (1, 123, (168,)),
            "STORE_ATTR": (4, 95, (113, 148, 153)),
            "STORE_SUBSCR": (1, 60, (159, 160)),
            "UNPACK_SEQUENCE": (1, 92, (161, 166, 167)),
        },
        prologue=frozenset({1, 75, 135, 149, 151}),
        # RETURN_VALUE, JUMP_FORWARD, POP_JUMP_IF_*, RERAISE, RETURN_CONST, RAISE_VARARGS, JUMP_BACKWARD*, YIELD_VALUE.
        leaving=frozenset({83, 110, 114, 115, 119, 121, 128, 129, 130, 134, 140, 150}),
        odd=(frozenset({0}), 230),
        fresh=0x11,
    ),
    13: _Version(
        {
            "BINARY_OP": (1, 45, (3, 150, 151, 152, 153, 154, 155, 156)),
            "BINARY_SUBSCR": (1, 5, (157, 158, 159, 160, 161)),
            "CALL": (3, 53, tuple(range(162, 182))),
            "COMPARE_OP": (1, 58, (182, 183, 184)),
            "CONTAINS_OP": (1, 59, (185, 186)),
            "FOR_ITER": (1, 72, (187, 188, 189, 190)),
            "JUMP_BACKWARD": (1, 77, ()),
            "LOAD_ATTR": (9, 82, tuple(range(191, 203))),
            "LOAD_GLOBAL": (4, 91, (203, 204)),
            "LOAD_SUPER_ATTR": (1, 93, (205, 206)),
            "POP_JUMP_IF_FALSE": (1, 97, ()),
            "POP_JUMP_IF_NONE": (1, 98, ()),
            "POP_JUMP_IF_NOT_NONE": (1, 99, ()),
            "POP_JUMP_IF_TRUE": (1, 100, ()),
            "SEND": (1, 104, (208,)),
            "STORE_ATTR": (4, 108, (209, 210, 211)),
            "STORE_SUBSCR": (1, 39, (212, 213)),
            "TO_BOOL": (3, 40, tuple(range(214, 220))),
            "UNPACK_SEQUENCE": (1, 117, (220, 221, 222)),
        },
        # POP_TOP, RETURN_GENERATOR, COPY_FREE_VARS, MAKE_CELL, RESUME, RESUME_CHECK.
        prologue=frozenset({32, 35, 62, 94, 149, 207}),
        leaving=frozenset(),
        odd=(frozenset({0, 70}), 223),
        fresh=0x11,
        started=(149, 207),
    ),
    14: _Version(
        {
            "BINARY_OP": (5, 44, (3, *range(129, 143))),
            "CALL": (3, 52, (*range(143, 151), *range(154, 166))),
            "CALL_KW": (3, 55, (151, 152, 153)),
            "COMPARE_OP": (1, 56, (166, 167, 168)),
            "CONTAINS_OP": (1, 57, (169, 170)),
            "FOR_ITER": (1, 70, (171, 172, 173, 174)),
            "JUMP_BACKWARD": (1, 75, (175, 176)),
            "LOAD_ATTR": (9, 80, tuple(range(177, 190))),
            "LOAD_GLOBAL": (4, 92, (192, 193)),
            "LOAD_SUPER_ATTR": (1, 96, (194, 195)),
            "POP_JUMP_IF_FALSE": (1, 100, ()),
            "POP_JUMP_IF_NONE": (1, 101, ()),
            "POP_JUMP_IF_NOT_NONE": (1, 102, ()),
            "POP_JUMP_IF_TRUE": (1, 103, ()),
            "SEND": (1, 106, (197,)),
            "STORE_ATTR": (4, 110, (198, 199, 200)),
            "STORE_SUBSCR": (1, 38, (201, 202)),
            "TO_BOOL": (3, 39, tuple(range(203, 209))),
            "UNPACK_SEQUENCE": (1, 119, (209, 210, 211)),
        },
        # POP_TOP, RETURN_GENERATOR, COPY_FREE_VARS, MAKE_CELL, RESUME, RESUME_CHECK.
        prologue=frozenset({31, 34, 60, 97, 128, 196}),
        leaving=frozenset(),
        odd=(frozenset({0}), 234),
        fresh=0x11,
        started=(128, 196),
    ),
}
# fmt: on
_BY_OPCODE = {
    minor: {
        opcode: (name, entries, unspecialised)
        for name, (entries, unspecialised, others) in version.families.items()
        for opcode in (unspecialised, *others)
    }
    for minor, version in _VERSIONS.items()
}
KNOWN = frozenset(_VERSIONS)
"""Minor versions of Python whose counters are known."""

CALLED = -2
"""``co_warmup`` of 3.11 where no more is known than that the function has been called."""
_COLD, _LAST = -8, -1
"""``co_warmup`` of a function of 3.11 that has not been called, and of one that the next call warms (so has the probe
set it); 0: it is warm and its counters count."""


class NotCodeError(ValueError):
    """That is no bytecode of this version, or traced code, whose counters were made anew."""


@dataclass(frozen=True, slots=True)
class Counted:
    """As in ``ran.RanCode``."""

    called: bool | None
    ran: tuple[int, ...] = ()
    idle: tuple[int, ...] = ()
    since_warm: bool = False
    tests: tuple[Tested, ...] = ()


Place = tuple[int, int, int, int]
"""Line, column, last line, end column; 0 or -1 where there is none."""


def read_counters(
    minor: int, code: bytes, table: bytes, first_line: int, warmup: int = 0, *, early: bool = False
) -> Counted:
    """What the bytecode (``co_code_adaptive``) says; ``table``: ``co_linetable``, ``warmup``: ``co_warmup`` of 3.11.

    ``early``: the probe has 3.11 count from a function's first call on. Raises ``NotCodeError``.
    """
    version = _VERSIONS[minor]
    places = list(_places(table, first_line, len(code) // 2))
    instructions = list(_instructions(minor, code))
    if len(places) != len(code) // 2:
        raise NotCodeError
    if minor == 11 and _COLD <= warmup < 0:
        uncalled = (_COLD, _LAST) if early else (_COLD,)
        return _uncalled(version, instructions, places) if warmup in uncalled else Counted(called=True)
    if minor == 11 and warmup:
        raise NotCodeError
    ran: set[int] = set()
    idle: set[int] = set()
    tests: list[Tested] = []
    for at, opcode in instructions:
        known = _BY_OPCODE[minor].get(opcode)
        place = places[at]
        if known is None or known[0] in _NO_COUNTER or place[0] <= 0:
            continue
        name, entries, unspecialised = known
        caches = struct.unpack_from(f"<{entries}H", code, 2 * at + 2)
        if name in _JUMPS:
            outcomes = _outcomes(caches[0], _JUMPS[name])
            if outcomes:
                ran.add(place[0])
                tests.append(Tested(*place, outcomes))
            continue
        fresh = opcode == unspecialised and caches[0] == version.fresh and not any(caches[1:])
        (idle if fresh else ran).add(place[0])
    called = _is_called(minor, instructions, bool(ran))
    if called is False:
        return _uncalled(version, instructions, places)
    return Counted(called, tuple(sorted(ran)), tuple(sorted(idle - ran)), minor == 11 and not early, tuple(tests))


def _is_called(minor: int, instructions: list[tuple[int, int]], has_run: bool) -> bool | None:
    """None where every counter may be passed by."""
    version = _VERSIONS[minor]
    if has_run or minor == 11:
        return True
    if version.started is not None:
        first = next((opcode for _, opcode in instructions if opcode in version.started), None)
        return None if first is None else first == version.started[1]
    for _, opcode in instructions:
        if opcode in _BY_OPCODE[minor]:
            return False
        if opcode in version.leaving:
            return None
    return None


def _uncalled(version: _Version, instructions: list[tuple[int, int]], places: list[Place]) -> Counted:
    begun = False
    idle = set()
    for at, opcode in instructions:
        begun = begun or opcode not in version.prologue
        if begun and places[at][0] > 0:
            idle.add(places[at][0])
    return Counted(called=False, idle=tuple(sorted(idle)))


def _instructions(minor: int, code: bytes) -> Iterator[tuple[int, int]]:
    """(index in units of two bytes, opcode), the cache entries left out."""
    odd, limit = _VERSIONS[minor].odd
    known = _BY_OPCODE[minor]
    at = 0
    while 2 * at < len(code):
        opcode = code[2 * at]
        if opcode in odd or opcode >= limit:
            raise NotCodeError
        yield at, opcode
        at += 1 + (known[opcode][1] if opcode in known else 0)
    if 2 * at != len(code):
        raise NotCodeError


def _outcomes(history: int, letters: str) -> str:
    """The outcomes that are certainly in the shift register of a jump, the newest last; '' for none.

    It starts as 0101…01, and each outcome is shifted in from the right. Example: 1010101010101011 is one outcome, 1, or
    three of which the last is 1: one is certain.
    """
    for count in range(17):
        if history >> count == (_UNUSED_HISTORY << count & 0xFFFF) >> count:
            return "".join(letters[history >> bit & 1] for bit in reversed(range(count)))
    return ""


def _places(table: bytes, line: int, most: int) -> Iterator[Place]:
    """The place of each unit of two bytes, as Objects/locations.md tells."""
    data = iter(table)
    left = most
    try:
        for head in data:
            kind, count = head >> 3 & 15, (head & 7) + 1
            left -= count
            if not head & 0x80 or left < 0:
                raise NotCodeError
            if kind == 15:
                place: Place = (0, -1, 0, -1)
            elif kind == 14:
                line += _signed(data)
                last, column, end = line + _varint(data), _varint(data) - 1, _varint(data) - 1
                place = (line, column, last, end)
            elif kind == 13:
                line += _signed(data)
                place = (line, -1, line, -1)
            elif kind >= 10:
                line += kind - 10
                column, end = next(data), next(data)
                place = (line, column, line, end)
            else:
                low = next(data)
                column = kind << 3 | low >> 4
                place = (line, column, line, column + (low & 15))
            for _ in range(count):
                yield place
    except StopIteration:
        raise NotCodeError from None


def _varint(data: Iterator[int]) -> int:
    value, shift = 0, 0
    while shift < 30:
        byte = next(data)
        value |= (byte & 63) << shift
        if not byte & 64:
            return value
        shift += 6
    raise NotCodeError


def _signed(data: Iterator[int]) -> int:
    value = _varint(data)
    return -(value >> 1) if value & 1 else value >> 1
