from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.sidecar.logs import lines
from hangdoc.sidecar.logs.lines import LONGEST_LINE, REFRESH_SECONDS, SILENCE_SECONDS, Reader, Splitter, shown


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"10%\r20%\r100%\n", ["100%"]),
        (b"\r10%\r20%\n", ["20%"]),
        (b"10%\r20%\r\n", ["20%"]),
        (b"\xff\xfe gr\xc3\xbc\xc3\n", ["\\xff\\xfe grü\\xc3"]),
        (b"no end", []),
    ],
)
def test_lines(data: bytes, found: list[str]) -> None:
    assert Splitter().feed(data, 0.0) == found


@given(st.text("ab\r\nü", max_size=80), st.lists(st.integers(1, 9), max_size=40))
def test_where_the_bytes_are_cut_changes_nothing(text: str, sizes: list[int]) -> None:
    data = text.encode()
    whole, parts = Splitter(), Splitter()
    expected = [*whole.feed(data, 0.0), whole.end()]
    found = []
    for size in [*sizes, len(data)]:
        found += parts.feed(data[:size], 0.0)
        data = data[size:]
    assert [*found, parts.end()] == expected


def test_an_unfinished_line_is_shown_once_it_stands_still() -> None:
    splitter = Splitter()
    splitter.feed(b"loading", 0.0)
    assert splitter.unfinished(SILENCE_SECONDS / 2) == ""
    assert splitter.unfinished(SILENCE_SECONDS) == "loading"
    assert splitter.unfinished(60.0) == "", "it still says the same"
    assert splitter.feed(b" done\n", 61.0) == ["loading done"]


def test_a_progress_bar_is_shown_now_and_then_and_at_its_end() -> None:
    splitter = Splitter()
    found = []
    for step in range(1000):
        found += splitter.feed(f"\r{step / 10}%".encode(), step / 50)
        found += [text] if (text := splitter.unfinished(step / 50)) else []
    found += splitter.feed(b"\n", 20.0)
    assert found[-1] == "99.9%"
    assert len(found) == 1 + 20 // REFRESH_SECONDS


def test_an_endless_line_takes_bounded_memory() -> None:
    splitter = Splitter()
    for _ in range(100):
        assert splitter.feed("ü".encode() * 10_000, 0.0) == []
        assert len(splitter._rest) <= LONGEST_LINE + 1
    (found,) = splitter.feed(b"x\n", 0.0)
    dropped = 100 * 20_000 + 1 - LONGEST_LINE
    assert found == f"{'ü' * (LONGEST_LINE // 2)} … {dropped} more bytes"
    assert splitter.feed(b"next\n", 0.0) == ["next"]


HOSTILE = "\x1b]0;title\x07 \x1b[2J\x1b[31mred\x1b[0m \x1b[A\x9b31m \u202e \x00 \x1b\x1b[0m[31m"


def test_nothing_that_a_terminal_obeys_is_left() -> None:
    assert shown(HOSTILE, color=False) == "\\x1b]0;title\\x07 red \\x9b31m \\u202e \\x00 \\x1b[31m"
    colored = shown(HOSTILE, color=True)
    assert colored.replace("\x1b[31m", "").replace("\x1b[0m", "").isprintable()
    assert colored.endswith("\x1b[0m"), "a color ends with its line"
    assert shown("a\tb", color=False) == "a       b"


@given(st.text("\x1b[]0;31mAHJ?h\x07\x9b\\ab", max_size=40), st.booleans())
def test_only_colors_pass(text: str, color: bool) -> None:
    found = shown(text, color=color)
    for sequence in lines._COLOR.findall(found) if color else ():
        found = found.replace(sequence, "", 1)
    assert found.isprintable()


def key(text: str, rank: int | None = 0) -> str:
    return Reader(rank, stderr=True, color=False).line(text, 0.0).key


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[2025-02-10 17:58:17,472] DEEPMD INFO    hello", "[2025-02-10 17:58:17,473] DEEPMD INFO    hello"),
        ("2025-02-10T17:58:17.472Z | INFO | hello", "2025-02-10T17:58:18.001Z | INFO | hello"),
        ("INFO 02-10 17:58:17 [engine.py:7] hello", "INFO 02-10 17:58:18 [engine.py:7] hello"),
        ("W0210 17:58:17.472000 run.py:7] hello", "W0210 17:58:17.480000 run.py:7] hello"),
        ("17:58:17.472 hello", "17:58:17.473 hello"),
        ("hello", "hello "),
    ],
)
def test_the_time_before_a_line_does_not_make_it_another(one: str, other: str) -> None:
    assert key(one) == key(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("00:00:12 elapsed", "00:00:13 elapsed"),
        ("took 2025-02-10 17:58:17,472", "took 2025-02-10 17:58:17,473"),
        ("[2025-02-10 17:58:17,472] loss 1", "[2025-02-10 17:58:17,472] loss 2"),
        ("epoch 1", "epoch 2"),
    ],
)
def test_any_other_difference_does(one: str, other: str) -> None:
    assert key(one) != key(other)


def test_torchs_own_rank_is_said_by_the_stream() -> None:
    reader = Reader(1, stderr=True, color=False)
    found = reader.line("[rank1]:[W1123 02:53:01.123456789 Pg.cpp:5] guessing", 0.0)
    assert found.text == "[W1123 02:53:01.123456789 Pg.cpp:5] guessing"
    assert found.key == key("[rank0]:[W1123 02:53:01.223456789 Pg.cpp:5] guessing")
    assert reader.line("[rank0]: of another", 0.0).text == "[rank0]: of another"


def test_streams_are_kept_apart() -> None:
    assert Reader(0, stderr=False, color=False).line("a", 0.0).key != key("a")


@pytest.mark.parametrize(
    "text",
    [
        "Traceback (most recent call last):",
        "[rank0]: torch.OutOfMemoryError: CUDA out of memory",
        "2025-02-10 17:58:17,472 ERROR no such file",
        "terminate called after throwing an instance of 'c10::Error'",
        "E0210 17:58:17.472000 pg.cpp:7] watchdog",
        "Segmentation fault (core dumped)",
    ],
)
def test_errors(text: str) -> None:
    assert Reader(0, stderr=False, color=False).line(text, 0.0).error


def test_what_follows_an_error_on_stderr_belongs_to_it() -> None:
    stderr, stdout = Reader(0, stderr=True, color=False), Reader(0, stderr=False, color=False)
    for reader, expected in ((stderr, True), (stdout, False)):
        assert reader.line("ValueError: bad", 0.0).error
        assert reader.line("  with a note", 0.1).error is expected
        assert not reader.line("epoch 2", 5.0).error
