"""The lines that matter are found in one pass, with their numbers, in bounded memory."""

from __future__ import annotations

import gzip
import io
import random
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.capture.logs import sift as sifting
from hangdoc.capture.logs.sift import Marker, sift, wrapped_at

MARKERS = (Marker(b"ALPHA"), Marker(b"BETA", before=1, after=2))


def _sifted(data: bytes, **options: int) -> sifting.Sifted:
    return sift(io.BytesIO(data), MARKERS, **options)


def _oracle(data: bytes) -> dict[int, bytes]:
    lines = data.split(b"\n")
    wanted: dict[int, bytes] = {}
    for i, line in enumerate(lines):
        if b"ALPHA" in line:
            wanted[i + 1] = line
        if b"BETA" in line:
            wanted |= {j + 1: lines[j] for j in range(max(0, i - 1), min(len(lines), i + 3))}
    return {n: line for n, line in wanted.items() if n < len(lines) or line}


@given(
    st.lists(st.sampled_from([b"", b"x" * 50, b"step 1", b"an ALPHA here", b"BETA", b"ALPHA and BETA"]), max_size=60)
)
def test_as_a_search_line_by_line(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    found = {n: line for n, line in _sifted(data).kept if line or n <= len(lines)}
    expected = _oracle(data)
    assert {n: line for n, line in found.items() if line} == {n: line for n, line in expected.items() if line}


@given(st.integers(0, 1_000_000), st.integers(64, 400))
def test_where_a_piece_ends_makes_no_difference(seed: int, piece: int) -> None:
    chance = random.Random(seed)
    lines = [chance.choice([b"step 1", b"an ALPHA here", b"BETA", b"y" * chance.randint(0, 50)]) for _ in range(60)]
    data = b"\n".join(lines) + b"\n"
    whole = _sifted(data)
    before = sifting._PIECE
    sifting._PIECE = piece
    try:
        cut = _sifted(data)
    finally:
        sifting._PIECE = before
    assert [k for k in cut.kept if k[1]] == [k for k in whole.kept if k[1]]
    assert (cut.lines, cut.size, cut.tail) == (whole.lines, whole.size, whole.tail)


def test_a_gzip_file_and_one_that_was_cut() -> None:
    data = b"one\nALPHA two\nthree\n" * 500
    packed = gzip.compress(data)
    assert _sifted(packed).kept == _sifted(data).kept
    several = b"".join(gzip.compress(data[i : i + 1000]) for i in range(0, len(data), 1000))
    assert _sifted(several).kept == _sifted(data).kept
    broken = packed[: len(packed) // 2] + b"garbage" + packed[len(packed) // 2 :]
    assert "broken" in _sifted(broken).cut or _sifted(broken).lines < 1500


def test_a_gzip_file_that_holds_far_more_than_it_weighs_is_bounded() -> None:
    packer = zlib.compressobj(9, wbits=31)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(64)) + packer.flush()
    assert len(packed) < 100_000
    tracemalloc.start()
    try:
        found = _sifted(packed, limit=16 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.cut
    assert found.size <= (16 << 20) + sifting._PIECE
    assert peak < 120 << 20


def test_one_line_without_an_end() -> None:
    data = b"x" * (9 << 20) + b" ALPHA " + b"y" * (9 << 20)
    found = _sifted(data)
    assert any(b"ALPHA" in line for _, line in found.kept)
    assert all(len(line) <= 2 * sifting._LONGEST for _, line in found.kept)
    assert found.lines == 1


def test_what_a_progress_bar_left_in_the_line_is_cut_off() -> None:
    ((number, line),) = _sifted(b"10 %\r20 %\r[rank0]: ALPHA").kept
    assert (number, line) == (1, b"[rank0]: ALPHA")


def test_of_a_flood_the_first_and_the_last_lines_are_kept() -> None:
    data = b"".join(b"ALPHA %d\n" % i for i in range(60_000)) + b"BETA\n"
    found = _sifted(data)
    numbers = [n for n, _ in found.kept]
    assert 1 in numbers
    assert 60_000 in numbers
    assert len(numbers) < 20_000
    assert found.cut
    assert any(line == b"BETA" for _, line in found.kept)


def test_utf_16_as_powershell_writes_it() -> None:
    found = _sifted("eins\nzwei ALPHA größer\n".encode("utf-16"))
    assert found.kept == [(2, "zwei ALPHA größer".encode())]


def _wrapped(lines: list[str], width: int) -> bytes:
    parts = [line[i : i + width] for line in lines for i in range(0, max(len(line), 1), width)]
    return "\n".join(parts).encode()


def test_lines_that_a_terminal_wrapped_are_joined() -> None:
    lines = [
        f"[rank{i}]:[E309 some record that is long enough to be wrapped twice {'z' * (i + 40)} AL" + "PHA end"
        for i in range(9)
    ]
    found = _sifted(_wrapped(lines, 80))
    assert [line.decode() for _, line in found.kept] == lines
    assert found.kept[1][0] == 3


@pytest.mark.parametrize(
    "lines",
    [
        [
            f"n1:40{r}:40{r} [{r}] NCCL INFO AllReduce: opCount {i:04x} sendbuff 0x7f0a02000000 count 1048576"
            for i in range(20)
            for r in range(8)
        ],
        [
            f"2026-03-09 09:00:{i:02d} INFO step {i:04d} loss 1.2345 grad 0.1234 and so on until it is a long line"
            for i in range(50)
        ],
        ["*" * 100 for _ in range(30)],
    ],
)
def test_lines_of_one_length_are_not_taken_for_wrapped_ones(lines: list[str]) -> None:
    assert wrapped_at("\n".join(lines).encode()) is None
