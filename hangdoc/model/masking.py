"""What may be a secret is replaced by ``…``: in command lines, variables, lines of logs, values, sources and messages.

One mechanism for all of them. A name says that what follows is a secret (``--wandb-key X``, ``"api_key": "X"``), or the
text has the form of one (``hf_…``, a private key, a password in an address). Every pattern is linear in its text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import lru_cache

from hangdoc.model.secret_names import Kind, is_flag, kind_of_name, word_set, words_of
from hangdoc.model.token_forms import HIDDEN, PASSWORD_FLAGS, without_forms


class Place(Enum):
    """Where a name occurs: a bare ``key`` is a secret's as an option, and mostly none in a sentence."""

    OPTION = "option"
    VARIABLE = "variable"
    TEXT = "text"


# --- values ------------------------------------------------------------------------------------------------------

_CONSTANT = re.compile(
    r"(?:true|false|none|null|yes|no|on|off|undefined|redacted|\[?redacted\]?|<[^<>]{0,80}>|\*+|[xX]{3,}|\.{3}"
    r"|\$\w{1,80}|\$\{\w{1,80}\}|%\w|%\(\w{1,40}\)s|\{\w{0,40}\})?",
    re.IGNORECASE,
)
_FEW_DIGITS = re.compile(r"[-+]?\d{1,6}(?:\.\d{1,6})?(?:e[-+]?\d{1,3})?")
_ONLY_NUMBERS = re.compile(r"[\[({][\s\d.,+\-e\[\](){}]{0,400}")
_MANY_DIGITS = re.compile(r"\d{7}")
# Code in a traceback: it names a secret and holds none.
_CODE = re.compile(
    r"(?:self|cls|args|opts|options|config|cfg|os|sys|json|getpass|torch|tokenizer|str|int|bytes|kwargs|params)[.\[(]"
)
_PROSE = word_set(
    """
    required incorrect invalid wrong missing expired must should is was not for cannot can failed
    authentication prompt ok denied mismatch error check from and or the a in of to
    """
)
_LETTERS_OF_ALL_KINDS = re.compile(r"(?=\D{0,40}\d)(?=[^A-Z]{0,40}[A-Z])(?=[^a-z]{0,40}[a-z])[A-Za-z0-9_\-]{10,200}")
_RANDOM = re.compile(r"(?=[0-9]{0,64}[A-Za-z])(?=[A-Za-z]{0,64}[0-9])[A-Za-z0-9]{16}")


def _is_secret(kind: Kind, value: str, place: Place, *, assigned: bool = True) -> bool:
    """True if a value of a name of this kind is a secret. ``assigned``: by ``=``, and not by ``:``.

    Examples: ``--token 12`` and ``password=None`` are none; ``TOKEN=abc`` is one, and ``the token: expired`` is not.
    """
    bare = value.strip("\"'`\\")
    if _holds_nothing(kind, bare):
        return False
    return place is not Place.TEXT or _is_secret_in_text(kind, value, bare, assigned)


def _holds_nothing(kind: Kind, bare: str) -> bool:
    """True for what is no secret wherever it is: a constant, code, what is hidden already, a number, a path."""
    if HIDDEN in bare and not bare.strip("…[](){}'\", "):
        return True
    if _CONSTANT.fullmatch(bare) or _CODE.match(bare):
        return True
    if kind is Kind.BRIEF and bare.startswith("/"):
        return True
    return kind is not Kind.SURE and _is_few_numbers(bare)


def _is_few_numbers(bare: str) -> bool:
    """A number such as a size or a rate, or a list of such."""
    if _FEW_DIGITS.fullmatch(bare):
        return True
    return _ONLY_NUMBERS.fullmatch(bare) is not None and not _MANY_DIGITS.search(bare)


def _is_secret_in_text(kind: Kind, value: str, bare: str, assigned: bool) -> bool:
    """The same of a sentence or a line of code, where many words after such a name are plain words."""
    if kind is Kind.BARE:
        return _RANDOM.search(bare) is not None
    if kind is Kind.BRIEF:
        return assigned or _is_opaque(bare)
    if assigned or value[:1] in "\"'\\":
        return True
    if kind is Kind.LONE:
        return _is_opaque(bare) or len(bare) >= 12
    return bare.rstrip(".,;:!").lower() not in _PROSE


def _is_opaque(value: str) -> bool:
    """Not a plain word: it has a digit, or capitals in its middle."""
    return any(character.isdigit() for character in value) or not (value.islower() or value[1:].islower())


def mask_named(name: str, value: str, place: Place = Place.TEXT) -> str:
    """The value of the variable ``name`` as it may be shown."""
    kind = kind_of_name(name)
    if kind is None:
        return mask_text(value)
    # A short name and a number say nothing in a program's own variables; as an option they are what was typed.
    if kind in (Kind.BARE, Kind.BRIEF) and place is Place.VARIABLE and not _is_loud(name):
        place = Place.TEXT
    return HIDDEN if _is_secret(kind, value, place) else mask_text(value)


def _is_loud(name: str) -> bool:
    """SOME_KEY: named as environment variables are."""
    return name.isupper() and "_" in name


# --- text --------------------------------------------------------------------------------------------------------

# A name, and what may come between it and its value. Where a name may end is tried at each of its characters once.
_NAMED = re.compile(
    r"""
    (?<![\w.\-])(?P<name>[\w.\-]+)
    (?: (?P<assigned>\\{0,3}(?:["'\]]|%2[27]|u0022|&quot;){0,2}[ \t]{0,4}
                     (?:[=\-]>|:=|==|=|:(?!:)|%3[AaDd]|\\{1,3}(?:u00|x)3[AaDd]|&\#61;)[ \t]{0,4})
      | (?P<listed>\\{0,3}["'],[ \t]{0,2}(?:default[ \t]?=[ \t]?)?(?=\\{0,3}["']))
      | (?P<tagged>>)
      | (?P<spaced>[ \t]{1,4}(?:(?:is|was)[ \t]{1,4})?(?=[^\s=:])) )
    """,
    re.VERBOSE,
)
_OPENING = re.compile(r"[rRbBuUfF]{0,2}(?P<mark>(?:\\{1,3})?(?:\"\"\"|'''|[\"'`]))")
_BARE_VALUE = re.compile(r"\S+")
_CLOSERS = {"[": "]", "(": ")", "{": "}"}
_WHOLE_LINES = ("authorization", "cookie", "cookies", "passphrase")
_STEMS = ("pass", "pw", "secret", "cred", "auth", "cookie", "dsn", "jwt", "token", "bearer", "key", "sig", "sess")
_ATTACHED = re.compile(r"(?<!\S)(?P<option>-p)(?P<value>[^\s=\-]\S*)")
_TAKES_PASSWORD = re.compile(rf"(?<![\w\-])(?:{'|'.join(sorted(PASSWORD_FLAGS))})(?![\w\-])")
_ASK_PASSWORDS = re.compile(r"(?<![\w\-])(?:mysql\w*|mariadb[\w\-]*|sshpass)(?![\w\-])")


def mask_text(text: str) -> str:
    """Any text that a program wrote, without secrets; its lines stay as many."""
    return _mask_short(text) if len(text) <= 400 else _mask(text)


@lru_cache(16384)
def _mask_short(text: str) -> str:
    return _mask(text)


def _mask(text: str) -> str:
    shown = without_forms(text)
    small = shown.lower()
    if any(map(small.__contains__, _STEMS)):
        shown = "".join(_without_named(shown))
    if "-" in shown and _TAKES_PASSWORD.search(shown):
        shown = "\n".join(map(_without_flagged, shown.split("\n")))
    if "-p" in shown:
        shown = "\n".join(map(_without_attached, shown.split("\n")))
    return shown


def mask_lines(lines: Sequence[str]) -> tuple[str, ...]:
    """Lines that belong together, as a private key may go over several."""
    joined = "\n".join(line.replace("\n", " ") for line in lines)
    return tuple(mask_text(joined).split("\n")) if lines else ()


def _without_named(text: str) -> Iterator[str]:
    """The parts of the text, the values of secret names replaced."""
    # One loop, because what is hidden decides where the search for the next name goes on.
    written = at = 0
    while (match := _NAMED.search(text, at)) is not None:
        at = match.end()
        name = match["name"]
        kind = kind_of_name(name)
        if kind is None:
            # What looked like its value may be a name itself.
            at = max(match.start() + len(name), match.start() + 1)
            continue
        if kind is Kind.BARE and text[max(0, match.start() - 8) : match.start()].lower().endswith(
            ("api ", "secret ", "access ")
        ):
            kind = Kind.OWNED
        option = name.startswith("-")
        if match["spaced"] is not None and (not option or is_flag(name)):
            hidden = _value_in_prose(kind, text, at)
        elif match["tagged"] is not None:
            hidden = _up_to(text, at, "<") if text[match.start() - 1 : match.start()] == "<" else None
        elif match["listed"] is not None and not (option or kind is Kind.SURE or _is_loud(name)):
            hidden = None
        else:
            hidden = _value(text, at, whole=words_of(name)[-1] in _WHOLE_LINES)
        if hidden is None:
            continue
        start, end = hidden
        value = text[start:end]
        if match["spaced"] is not None and _is_an_option(value):
            continue
        place = Place.OPTION if option else Place.VARIABLE if _is_loud(name) else Place.TEXT
        sign = match["assigned"] or ""
        opened = text[max(at, start - 1) : start] in ('"', "'", "`") and start > at
        if _is_secret(kind, value, place, assigned="=" in sign or opened or match["assigned"] is None):
            yield text[written:start]
            yield HIDDEN
            written = at = end
    yield text[written:]


def _value(text: str, at: int, *, whole: bool) -> tuple[int, int] | None:
    """(begin, end) of the value at ``at``: the text between quotes or brackets, or one word."""
    opening = _OPENING.match(text, at)
    if opening is not None:
        return _quoted(text, opening.end(), opening["mark"])
    line_end = _line_end(text, at)
    closer = _CLOSERS.get(text[at : at + 1])
    if closer is not None:
        found = text.find(closer, at, line_end)
        return at, found + 1 if found >= 0 else line_end
    if whole:
        ends = [end for end in (text.find(quote, at, line_end) for quote in "\"'") if end >= 0]
        return at, min(ends, default=line_end)
    word = _BARE_VALUE.match(text, at)
    if word is None:
        return None
    end = at + len(word[0].rstrip(")]},;\"'"))
    return (at, end) if end > at else None


def _quoted(text: str, start: int, mark: str) -> tuple[int, int]:
    """Up to the same mark, or to the line's end where there is none (three quotes: the text's)."""
    limit = len(text) if len(mark) == 3 and mark[0] in "\"'" else _line_end(text, start)
    at = start
    while (end := text.find(mark, at, limit)) >= 0:
        before = end
        while before > start and text[before - 1] == "\\":
            before -= 1
        if mark[0] == "\\" or (end - before) % 2 == 0:
            return start, end
        at = end + 1
    return start, limit


def _value_in_prose(kind: Kind, text: str, at: int) -> tuple[int, int] | None:
    """``password 'x'``, ``password is x9``: quoted, or no plain word. Of a token or key: one that looks random."""
    if kind is Kind.BRIEF:
        return None
    opening = _OPENING.match(text, at) if kind is Kind.SURE else None
    if opening is not None:
        return _quoted(text, opening.end(), opening["mark"])
    word = _BARE_VALUE.match(text, at)
    bare = word[0].rstrip(".,;:)!]}\"'") if word is not None else ""
    if kind is not Kind.SURE and not _LETTERS_OF_ALL_KINDS.fullmatch(bare):
        return None
    return (at, at + len(bare)) if any(map(str.isdigit, bare)) and any(map(str.isalpha, bare)) else None


def _up_to(text: str, at: int, mark: str) -> tuple[int, int]:
    end = text.find(mark, at)
    return at, end if end >= 0 else _line_end(text, at)


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return end if end >= 0 else len(text)


def _without_attached(line: str) -> str:
    """``-pX`` hides X: always of programs that are known to take their password so."""
    asks = _ASK_PASSWORDS.search(line) is not None
    return _ATTACHED.sub(
        lambda match: match["option"] + HIDDEN if asks or _is_password(match["value"]) else match[0], line
    )


def _without_flagged(line: str) -> str:
    """``ldapsearch -w X`` hides X: programs that take the word after a short option as a password."""
    for program in _TAKES_PASSWORD.finditer(line):
        flags = PASSWORD_FLAGS[program[0]]
        line = line[: program.end()] + _flagged(flags).sub(rf"\g<before>{HIDDEN}", line[program.end() :])
        break  # the options of one command
    return line


@lru_cache(64)
def _flagged(flags: tuple[str, ...]) -> re.Pattern[str]:
    some = "|".join(map(re.escape, flags))
    return re.compile(
        rf"(?P<before>(?<![\w\-])(?:{some})[\"']?,?(?:[ \t]{{1,4}}|=|(?<=-[Pw])(?=\w))[\"']?)"
        r"(?![\d\-]+(?!\S))[^\s\"'\-][^\s\"']*"
    )


def _is_password(value: str) -> bool:
    """Letters and digits mixed: no port, no word, no ``name=value``."""
    return (
        len(value) >= 6
        and "=" not in value
        and ":" not in value
        and any(map(str.isdigit, value))
        and any(map(str.isalpha, value))
        and not _VERSION.fullmatch(value)
    )


_VERSION = re.compile(r"[a-z]{1,12}\d{1,3}(?:\.\d{1,3}){1,3}")


# --- command lines -----------------------------------------------------------------------------------------------

_OPTION = re.compile(r"(?P<name>-{1,2}[\w.\-]+)(?P<between>[=:])(?P<value>.*)", re.DOTALL)
_ASSIGNMENT = re.compile(r"(?P<name>[+~]{0,2}[\w.\-/@]+?)(?P<between>[=:])(?P<value>.+)", re.DOTALL)
_MULTIPROCESSING = re.compile(r"from \w*\.?multiprocessing[\w.]* import ")
_USER_FLAGS = ("-u", "--user", "--proxy-user", "--userpass")


def mask_words(words: Iterable[str]) -> tuple[str, ...]:
    """A command line's words, with what may be a secret replaced by ``…``, and the program text after ``-c``."""
    shown: list[str] = []
    follows: Callable[[str], str] | None = None
    flags: tuple[str, ...] = ()
    asks = curl = False
    for word in words:
        if curl and follows is None and re.match(r"-u\w", word):
            masked = f"-u{_user_and_password(word[2:])}"
        else:
            masked = follows(word) if follows is not None else _word(word, asks)
        shown.append(masked)
        program = word.rpartition("/")[2]
        flags += PASSWORD_FLAGS.get(program, ())
        asks = asks or _ASK_PASSWORDS.fullmatch(program) is not None
        curl = curl or program == "curl"
        follows = _what_follows(word, flags)
    return tuple(shown)


def _what_follows(word: str, flags: Sequence[str]) -> Callable[[str], str] | None:
    """How the word after ``word`` is shown; None: on its own merits."""
    if word == "-c":
        return lambda program: program if _MULTIPROCESSING.match(program) else HIDDEN
    if word in _USER_FLAGS:
        return _user_and_password
    if word in flags:
        return lambda value: value if value.startswith("-") or value.isdigit() else HIDDEN
    if word.startswith("-") and not is_flag(word) and (kind := kind_of_name(word)) is not None:
        sure = kind
        return lambda value: (
            HIDDEN if not _is_an_option(value) and _is_secret(sure, value, Place.OPTION) else _word(value, asks=False)
        )
    return None


def _is_an_option(word: str) -> bool:
    return re.match(r"--?[A-Za-z]", word) is not None


def _user_and_password(word: str) -> str:
    user, colon, password = word.partition(":")
    if colon and "/" not in user and not password.isdigit():
        return f"{user}:{HIDDEN}"
    return mask_text(word)


def _word(word: str, asks: bool) -> str:
    """One word of a command line that no other announced."""
    if asks and word.startswith("-p") and not word.startswith("--") and len(word) > 2:
        return f"-p{HIDDEN}"
    match = _OPTION.fullmatch(word) or _ASSIGNMENT.fullmatch(word)
    if match is not None:
        name = match["name"]
        if name in _USER_FLAGS:
            return f"{name}{match['between']}{_user_and_password(match['value'])}"
        kind = kind_of_name(name)
        place = Place.OPTION if name.startswith("-") else Place.VARIABLE if _is_loud(name) else Place.TEXT
        if kind is not None and _is_secret(kind, match["value"], place, assigned=match["between"] == "="):
            return f"{name}{match['between']}{HIDDEN}"
    return mask_text(word)
