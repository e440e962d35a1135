"""What the counters of bytecode say, on bytes of these interpreters and on bytes of nobody's."""

from __future__ import annotations

import random
import struct

import pytest

from hangdoc.capture.read.counters import KNOWN, Counted, NotCodeError, read_counters

_LOAD_GLOBAL, _CALL, _RESUME, _JUMP_IF_FALSE, _RETURN = 91, 53, 149, 97, 36


def _made(*instructions: tuple[int, tuple[int, ...], int]) -> tuple[bytes, bytes]:
    """Bytecode and table of (opcode, caches, lines further)."""
    code, table = b"", b""
    for opcode, caches, further in instructions:
        code += bytes((opcode, 0)) + struct.pack(f"<{len(caches)}H", *caches)
        table += bytes((0x80 | 13 << 3 | len(caches), further << 1))
    return code, table


def test_a_counter_that_has_moved_tells_that_its_line_has_run() -> None:
    code, table = _made(
        (207, (), 0),
        (_LOAD_GLOBAL, (0x01, 0, 0, 0), 1),
        (_JUMP_IF_FALSE, (0x5555 << 3 & 0xFFFF | 0b110,), 0),
        (_LOAD_GLOBAL, (0x11, 0, 0, 0), 1),
        (204, (0x11, 0, 7, 0), 1),
        (_RETURN, (), 1),
    )
    found = read_counters(13, code, table, 10)
    assert (found.called, found.ran, found.idle) == (True, (11, 13), (12,))
    assert [(test.line, test.column, test.outcomes) for test in found.tests] == [(11, -1, "FFT")]


def test_a_line_with_both_kinds_of_counters_has_run() -> None:
    code, table = _made((207, (), 0), (_LOAD_GLOBAL, (0x01, 0, 0, 0), 1), (_CALL, (0x11, 0, 0), 0))
    assert read_counters(13, code, table, 10) == Counted(called=True, ran=(11,))


def test_all_lines_of_a_function_that_was_never_called_are_idle() -> None:
    code, table = _made((_RESUME, (), 0), (_LOAD_GLOBAL, (0x11, 0, 0, 0), 1), (_RETURN, (), 1))
    assert read_counters(13, code, table, 10) == Counted(called=False, idle=(11, 12))


def test_without_a_sign_of_its_own_a_call_is_unknown_where_the_counters_may_be_passed_by() -> None:
    jump, load, leave = (114, (), 1), (116, (0x11, 0, 0, 0), 1), (83, (), 0)
    assert read_counters(12, *_made((151, (), 0), jump, load, leave), 10) == Counted(called=None, idle=(12,))
    assert read_counters(12, *_made((151, (), 0), load, jump, leave), 10) == Counted(called=False, idle=(11, 12))


@pytest.mark.parametrize(
    ("warmup", "expected"),
    [
        (-8, Counted(called=False, idle=(11, 12))),
        (-3, Counted(called=True)),
        (0, Counted(called=True, ran=(11,), idle=(12,), since_warm=True)),
    ],
)
def test_3_11_counts_from_the_eighth_call_on(warmup: int, expected: Counted) -> None:
    code, table = _made((150, (), 0), (48, (0,) * 5, 1), (47, (0,) * 5, 1))
    assert read_counters(11, code, table, 10, warmup) == expected


@pytest.mark.parametrize("shown", ["", "T", "FT", "TTF", "TFTFTFF"])
def test_as_many_outcomes_are_told_as_are_certain(shown: str) -> None:
    history = 0x5555
    for outcome in shown:
        history = (history << 1 | (outcome == "F")) & 0xFFFF
    code, table = _made((207, (), 0), (_JUMP_IF_FALSE, (history,), 1))
    outcomes = [test.outcomes for test in read_counters(13, code, table, 10).tests]
    assert all(shown.endswith(each) and each for each in outcomes)


@pytest.mark.parametrize(
    ("code", "table"),
    [
        (bytes((_LOAD_GLOBAL, 0, 0x11, 0)), bytes((0x80 | 13 << 3 | 1, 0))),  # its caches are cut off
        (bytes((_RETURN, 0)), b""),
        (bytes((_RETURN, 0)), bytes((13 << 3, 0))),
        (bytes((_RETURN, 0)), bytes((0x80 | 13 << 3 | 7, 0))),  # for more instructions than there are
        (bytes((_RETURN, 0)), bytes((0x80 | 14 << 3, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF))),
        (bytes((0, 0)), bytes((0x80 | 13 << 3, 0))),
        (bytes((236, 0)), bytes((0x80 | 13 << 3, 0))),  # a debugger's
    ],
)
def test_what_is_no_code_is_told(code: bytes, table: bytes) -> None:
    with pytest.raises(NotCodeError):
        read_counters(13, code, table, 1)


@pytest.mark.parametrize("minor", sorted(KNOWN))
def test_no_bytes_make_it_fail_otherwise(minor: int) -> None:
    chance = random.Random(minor)
    read = 0
    for _ in range(3000):
        code = chance.randbytes(2 * chance.randrange(6))
        table = bytes(byte | 0x80 if n % 2 == 0 else byte for n, byte in enumerate(chance.randbytes(8)))
        try:
            read_counters(
                minor, code, table[: chance.randrange(9)], chance.randrange(-5, 100), chance.choice((0, -8, 3))
            )
            read += 1
        except NotCodeError:
            pass
    assert read
