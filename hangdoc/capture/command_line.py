"""Command lines, and lines of logs, without what they should never have held: passwords, tokens, keys, programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangdoc.capture.text import clean

_HIDDEN = "…"
_LONGEST_WORD = 512
_SECRET_NAME = re.compile(
    r"token|secret|passw|passphrase|pwd$|credential|api[-_.]?key|(?:access|private|account|encryption)[-_.]?key|auth$|dsn",
    re.IGNORECASE,
)
# Names in which such a word is none: --num-tokens, --tokenizer, --max_tokens.
_HARMLESS_NAME = re.compile(r"tokeniz|tokens|token[-_.]?(?:id|count|len|size|type|dim|dropout|mixer)", re.IGNORECASE)
_ASSIGNMENT = re.compile(r"(?P<name>[-\w.+]+?)(?P<between>[=:])(?P<value>.+)", re.DOTALL)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{20,}|(?:sk-|gh[opsu]_|github_pat_|glpat-|xox[abpr]-|AKIA|ASIA|eyJ[\w-]+\.)[\w\-.]{12,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
)
_USER_IN_URL = re.compile(r"(?P<scheme>\b[a-z][\w+.-]*://)[^/@\s]+@", re.IGNORECASE)
_WORD = re.compile(r"\S+")
_MULTIPROCESSING = re.compile(r"from \w*\.?multiprocessing[\w.]* import ")


def without_secrets(words: Sequence[str]) -> tuple[str, ...]:
    """The words, each on one line and at most 512 characters long, with what may be a secret replaced by ``…``.

    Hidden are values of options and assignments whose name speaks of one, words that look like a well-known kind of
    token, user names and passwords in URLs, and the program text behind ``-c``.
    """
    shown: list[str] = []
    follows = ""
    for word in words:
        program = follows == "program" and not _MULTIPROCESSING.match(word)
        secret = follows == "secret" and not word.startswith("-")
        shown.append(_HIDDEN if program or secret else _without_secret(word))
        follows = "program" if word == "-c" else "secret" if word.startswith("-") and _is_secret(word) else ""
    return tuple(clean(word, _LONGEST_WORD) for word in shown)


def line_without_secrets(line: str) -> str:
    """A line that a program wrote, its words treated as those of a command line; its spaces stay."""
    return _WORD.sub(lambda match: _without_secret(match[0]), line)


def _without_secret(word: str) -> str:
    match = _ASSIGNMENT.fullmatch(word)
    if match is not None and _is_secret(match["name"]):
        return f"{match['name']}{match['between']}{_HIDDEN}"
    if _SECRET_VALUE.search(word):
        return _HIDDEN
    return _USER_IN_URL.sub(rf"\g<scheme>{_HIDDEN}@", word)


def _is_secret(name: str) -> bool:
    return _SECRET_NAME.search(name) is not None and _HARMLESS_NAME.search(name) is None
