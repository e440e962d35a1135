"""What is hidden, and what is not, in any text that hangdoc shows."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from secret_corpus import (
    ARGUMENTS,
    FURTHER_LINES,
    HARMLESS_ARGUMENTS,
    HARMLESS_LINES,
    LINES,
    PEM,
    SOURCE,
    SOURCE_SECRETS,
    VARIABLES,
)

from hangdoc.capture.read.scrubbing import scrub
from hangdoc.model.masking import HIDDEN, Place, mask_lines, mask_named, mask_text, mask_words

FUNCTION = f"def f():\n{SOURCE}"


def test_the_corpus_is_large_enough() -> None:
    assert sum(map(len, (ARGUMENTS, LINES, FURTHER_LINES, VARIABLES, SOURCE_SECRETS))) >= 150
    assert len(HARMLESS_ARGUMENTS) + len(HARMLESS_LINES) >= 40


@pytest.mark.parametrize(("words", "secret"), ARGUMENTS)
def test_arguments(words: list[str], secret: str) -> None:
    shown = mask_words(["torchrun", "train.py", *words, "--lr", "3"])
    assert secret not in " ".join(shown)
    assert HIDDEN in " ".join(shown)
    assert shown[-2:] == ("--lr", "3")
    assert mask_words(shown) == shown


@pytest.mark.parametrize(("line", "secret"), [*LINES, *FURTHER_LINES])
def test_lines(line: str, secret: str) -> None:
    shown = mask_text(line)
    assert secret in line
    assert secret not in shown
    assert HIDDEN in shown
    assert mask_text(shown) == shown


@pytest.mark.parametrize(("name", "value"), VARIABLES)
def test_variables(name: str, value: str) -> None:
    assert "variable" not in mask_named(name, value, Place.VARIABLE)


@pytest.mark.parametrize("words", HARMLESS_ARGUMENTS)
def test_harmless_arguments(words: list[str]) -> None:
    assert mask_words(words) == tuple(words)


@pytest.mark.parametrize("line", HARMLESS_LINES)
def test_harmless_lines(line: str) -> None:
    assert mask_text(line) == line


def test_a_private_key_over_several_lines() -> None:
    lines = ["before", *PEM.split("\n"), "after: 3"]
    shown = mask_lines(lines)
    assert len(shown) == len(lines)
    assert (shown[0], shown[-1]) == ("before", "after: 3")
    assert "b3Blbn" not in str(shown)
    assert "QyNTUxOQ" not in str(shown)
    assert "b3Blbn" not in mask_text("key: " + PEM.replace("\n", "\\n"))
    # What is left of one whose beginning is not in the tail.
    assert "b3Blbn" not in str(mask_lines(lines[2:]))


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("password", "81726354", HIDDEN),
        ("token", "50256", "50256"),
        ("key", "3", "3"),
        ("use_token", "True", "True"),
        ("credentials", "<Credentials>", "<Credentials>"),
        ("step", "81726354", "81726354"),
        ("secrets", "['…', '…']", "['…', '…']"),
        ("token", "[50256, 3]", "[50256, 3]"),
        ("api_key", "12345678", HIDDEN),
    ],
)
def test_values_of_names(name: str, value: str, shown: str) -> None:
    assert mask_named(name, value) == shown


@pytest.mark.parametrize("keep_strings", [False, True])
def test_sources(keep_strings: bool) -> None:
    shown = scrub(FUNCTION, keep_strings=keep_strings)
    found = [secret for secret in SOURCE_SECRETS if secret in shown]
    # Texts and comments of which nothing says that they are secrets stay where texts are asked for.
    assert found == (["sourceword4", "sourceword6"] if keep_strings else [])
    assert 'if mode == "train" and rank == 3:' in shown
    assert '"123"' not in shown
    assert '= "0"' not in shown
    assert len(shown.split("\n")) == len(FUNCTION.split("\n"))
    compile(shown, "shown", "exec")


def test_texts_that_were_asked_for() -> None:
    text = "user, password = 'me', 'tupleword'\nlogin('me', key='shortword', api_key='keyword1', mode='train')\n"
    shown = scrub(text, keep_strings=True)
    assert "tupleword" not in shown
    assert "keyword1" not in shown
    assert "mode='train'" in shown


def test_a_comment_with_a_password() -> None:
    text = 'x = "kept"  # the password is comment7, mode: 3\n'
    assert scrub(text) == 'x = "…"  \n'
    assert scrub(text, keep_strings=True) == 'x = "kept"  # the password is …, mode: 3\n'


WORDS = st.one_of(
    st.text(max_size=30),
    st.sampled_from([word for words, _ in ARGUMENTS for word in words]),
    st.sampled_from([line for line, _ in LINES]),
    st.sampled_from(["password", "=", ":", " ", '"', "'", "\\", "--token", "-----BEGIN A-----", "://", "@", "…", "\n"]),
)


@given(st.lists(WORDS, max_size=12))
def test_any_text(parts: list[str]) -> None:
    text = "".join(parts)
    shown = mask_text(text)
    assert shown.count("\n") == text.count("\n") or '"""' in text or "'''" in text
    mask_text(shown)
    assert len(mask_words(parts)) == len(parts)
    assert len(mask_lines(parts)) == len(parts)


def assert_linear(unit: str) -> None:
    """Four times as long takes about four times the time; sixteen times would be quadratic."""
    times = []
    for size in (20_000, 80_000):
        text = (unit * (size // len(unit) + 1))[:size]
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            mask_text(text)
            best = min(best, time.process_time() - began)
        times.append(best)
    assert times[1] < 10 * times[0] + 0.02, (unit, times)


@settings(max_examples=25, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=4), st.booleans())
def test_the_time_is_linear_in_the_text(parts: list[str], newline: bool) -> None:
    assert_linear("".join(parts) + ("\n" if newline else "") or "x")


UNITS = [
    "a",
    "a.",
    "-",
    "a-",
    "://",
    "a://",
    "a://@",
    "a:",
    "--token ",
    '"',
    "eyJ",
    "eyJaaaaaaaa.",
    "sk-",
    "hf_",
    "A1/",
]
UNITS += ["password=", 'password="', "password='\\", "password=[", "password\\\\", "password is ", "passphrase:"]
UNITS += ["-----BEGIN A-----", "-----BEGIN ", "Bearer ", "key ", "\\", " ", "[", "-p", "<password>", "'password', "]


@pytest.mark.parametrize("unit", UNITS)
def test_no_text_takes_long(unit: str) -> None:
    assert_linear(unit)
