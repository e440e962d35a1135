"""Secrets that are announced in rarer words, and harmless text like it."""

from __future__ import annotations

import pytest

from hangdoc.model.masking import HIDDEN, mask_named, mask_text, mask_words

SECRET = "Zq7vK3mX9pL2w"


@pytest.mark.parametrize(
    "line",
    [
        f"ValueError: bad token {SECRET}",
        f"API-Key {SECRET} was refused",
        f"using api key: {SECRET}",
        f"password -> {SECRET}",
        f"os.putenv('HF_TOKEN', '{SECRET}')",
        f"parser.add_argument('--token', default='{SECRET}')",
        f"cred='{SECRET}'",
    ],
)
def test_lines(line: str) -> None:
    shown = mask_text(line)
    assert SECRET not in shown
    assert HIDDEN in shown
    assert mask_text(shown) == shown


@pytest.mark.parametrize(
    "line",
    [
        "unexpected token layer12norm in the config",
        "KeyError: missing key encoder.layers.11.weight",
        "api key: missing",
        "def check(password) -> bool: ...",
        "parser.add_argument('--tokens', default='all')",
        "ranks = ['SOME_RANK', 'OTHER_RANK']",
        "next token <eos> at 17",
        "the token is required",
    ],
)
def test_harmless(line: str) -> None:
    assert mask_text(line) == line


def test_a_login_takes_its_password_so_and_a_run_its_port() -> None:
    assert mask_words(["docker", "login", "-p", SECRET])[-1] == HIDDEN
    assert mask_words(["docker", "run", "-p", "80:80"])[-1] == "80:80"


def test_a_value_of_that_name() -> None:
    assert mask_named("db_cred", SECRET) == HIDDEN
