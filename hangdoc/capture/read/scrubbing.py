"""Python source without what may be secret: string literals and comments are taken out, lines stay where they are."""

from __future__ import annotations

import ast
import itertools
import keyword
import re
import tokenize
from collections.abc import Sequence

from hangdoc.capture.read import procfs
from hangdoc.model.marks import HIDDEN_BYTES, Marks
from hangdoc.model.masking import mask_text
from hangdoc.model.secret_names import Kind, kind_of_name
from hangdoc.model.token_forms import HIDDEN

# Common names of this field, which are no secrets: `os.environ["RANK"] == "0"` is useless without them.
_HARMLESS = procfs.ENVIRONMENT_NAMES | {
    "__main__",
    "gloo",
    "nccl",
    "mpi",
    "cpu",
    "cuda",
    "train",
    "eval",
    "val",
}
_SHORT_NUMBER = re.compile(r"\d{1,3}")
_WORDS = re.compile(r"(?:[a-z]{1,12}|[A-Z]{1,12}|[A-Z][a-z]{1,11})(?:[_-](?:[a-z]{1,12}|[A-Z]{1,12}|[0-9]{1,2})){0,5}")
"""Words as in ``mode == "warmup"``, ``os.environ["SLURM_RESTART_COUNT"]``: letters of one case and short, unlike a key.
Where something is compared or looked up they are names, and no condition can be read without them. Judgement."""
_COMPARES = ("==", "!=", "in", "case")
_LOOKS_UP = ("get", "getenv")
_LONGEST_COUNT = 6
"""Characters of a number that is shown beside a name of secrets: a longer one may be a key. Judgement."""
_OPENING, _CLOSING = ("(", "[", "{"), (")", "]", "}")
_LONGEST_FIELD = 80
"""Characters of an expression in an f-string that is shown: what fits on a line of the report."""
_PLAIN_NUMBER = 1000
"""Numbers in such an expression are shorter: a count or an index. Judgement."""


class Marking:
    """The marks of one file: what is hidden in it gets one, and what is shown of it has its own in ``words``."""

    def __init__(self, marks: Marks) -> None:
        self.marks = marks
        self.words: dict[str, str] = {}

    def of(self, text: str) -> str:
        """The mark of a text that is hidden."""
        return self.marks.of(text)

    def show(self, text: str) -> None:
        """Note the mark of a text that is shown."""
        if text not in self.words and (mark := self.marks.of(text)):
            self.words[text] = mark


def scrub(text: str, *, keep_strings: bool = False, marking: Marking | None = None) -> str:
    """``text`` with the content of every string literal replaced by ``…`` and without comments, lines kept.

    Of an f-string the code in its fields stays: ``f"done/{self.rank}"`` becomes ``f"…{self.rank}"``. Names that every
    job uses (RANK, __main__), words that something is compared with or looked up by (``mode == "warmup"``) and short
    numbers stay, but not beside a name that speaks of a secret. ``keep_strings``: only literals and comments that may
    hold a secret are changed. ``marking``: what is hidden gets marks, unless it stands beside such a name. Raises
    tokenize.TokenError or SyntaxError for a text that is no Python.
    """
    # One branch for each kind of token; nested strings of an f-string share the state.
    lines = [f"{line}\n" for line in text.split("\n")]
    replacements: list[tuple[tuple[int, int], tuple[int, int], str]] = []
    names = _Names()
    depth, opened = 0, None
    for token in tokenize.generate_tokens(iter([*lines, ""]).__next__):
        kind = tokenize.tok_name[token.type]
        if kind in ("FSTRING_START", "TSTRING_START"):
            opened = token if depth == 0 else opened
            depth += 1
        elif kind in ("FSTRING_END", "TSTRING_END"):
            depth -= 1
            if depth == 0 and opened is not None:
                whole = _between(lines, opened.start, token.end)
                if not keep_strings or names.speak_of_a_secret or mask_text(whole) != whole:
                    hidden = _hidden_template(whole, always=names.speak_of_a_secret, marking=marking)
                    replacements.append((opened.start, token.end, hidden))
        elif depth:
            continue
        elif kind == "STRING":
            if names.speak_of_a_secret:
                replacements.append((token.start, token.end, _hidden(token.string, always=True)))
            elif not keep_strings or mask_text(token.string) != token.string:
                if "f" in _prefix_of(token.string).lower():
                    hidden = _hidden_template(token.string, marking=marking)
                else:
                    hidden = _hidden(token.string, word=names.want_a_word, marking=marking)
                replacements.append((token.start, token.end, hidden))
            names.add_text(token.string)
        elif kind == "COMMENT":
            replacements.append((token.start, token.end, mask_text(token.string) if keep_strings else ""))
        elif kind == "NUMBER":
            if names.speak_of_a_secret and len(token.string) > _LONGEST_COUNT:
                replacements.append((token.start, token.end, "..."))
        else:
            names.add(kind, token.string)
    return _replace(lines, replacements)


class _Names:
    """What is being given a value, while the tokens of a program go by."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._given = False
        self._depth = 0
        self._last = ("", "", "")
        self._opened_by_in: list[bool] = []

    @property
    def speak_of_a_secret(self) -> bool:
        """True if a password or another secret is set to, or compared with, the next literal."""
        return self._given and any(kind_of_name(name) in (Kind.SURE, Kind.OWNED, Kind.LONE) for name in self._names)

    @property
    def want_a_word(self) -> bool:
        """True if the next literal is what something is compared with, or looked up by."""
        _, before, last = self._last
        named = before.isidentifier() and not keyword.iskeyword(before)
        subscript = last == "[" and (named or before in _CLOSING)
        call = last == "(" and before in _LOOKS_UP
        one_of = self._opened_by_in[-1:] == [True] and last in (*_OPENING, ",")
        return last in _COMPARES or subscript or call or one_of

    def add(self, kind: str, text: str) -> None:
        """A token that is no literal."""
        if text in _OPENING:
            self._opened_by_in.append(self._last[-1] == "in")
        elif text in _CLOSING:
            del self._opened_by_in[-1:]
        if text.strip():
            self._last = (*self._last[1:], text)
        if text in _OPENING or text in _CLOSING:
            self._depth = max(0, self._depth + (1 if text in _OPENING else -1))
        # `user, password = "me", "x"` gives all of them something.
        if kind == "NEWLINE" or text in ("(", "{", ";") or (text == "," and self._depth) or keyword.iskeyword(text):
            self._names, self._given = [], False
        elif kind == "NAME":
            self._names.append(text)
        elif text in ("=", ":", "==", "!=", ":="):
            self._given = True

    def add_text(self, literal: str) -> None:
        """A literal, which may be a key: ``{"password": …}``."""
        self._names.append(literal)
        self._last = (*self._last[1:], literal)


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]]
    return "".join([lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1], lines[end[0] - 1][: end[1]]])


def _hidden(literal: str, *, always: bool = False, word: bool = False, marking: Marking | None = None) -> str:
    """The literal with its content gone and its prefix, quotes and number of lines kept. ``word``: a word stays."""
    prefix = _prefix_of(literal)
    body = literal[len(prefix) :]
    quotes = _quotes_of(body)
    content = body[len(quotes) : len(body) - len(quotes)]
    if not content or (not always and (_is_harmless(content) or (word and _is_word(content)))):
        if marking is not None:
            marking.show(content)
        return literal
    mark = marking.of(content) if marking is not None and not always else ""
    newlines = content.count("\n")
    if newlines and len(quotes) == 1:
        quotes *= 3  # a literal that was continued with backslashes
    return f"{prefix}{quotes}{HIDDEN_BYTES if 'b' in prefix.lower() else HIDDEN}{mark}" + "\n" * newlines + quotes


def _hidden_template(literal: str, *, always: bool = False, marking: Marking | None = None) -> str:
    """An f-string with the text between its fields gone, and of these the code kept; all of it gone where ``always``.

    Example: ``f"{stage}/done-{self.rank:03d}"`` → ``f"{stage}…{self.rank}"``.
    """
    prefix = _prefix_of(literal)
    quotes = _quotes_of(literal[len(prefix) :])
    try:
        tree = ast.parse(literal.strip(), mode="eval").body
        fields = [getattr(each, "value", None) for each in getattr(tree, "values", ())]
        parts = [_field(each, quotes) if isinstance(each, ast.expr) else HIDDEN for each in fields]
    except (SyntaxError, ValueError, RecursionError):  # fields that this interpreter does not know, or too deep ones
        return _hidden(literal, always=always)
    if always or all(part == HIDDEN for part in parts):
        return _hidden(literal, always=always)
    shown = "".join(
        _run_of_parts(list(run), marking) for _, run in itertools.groupby(zip(parts, fields, strict=True), _is_hidden)
    )
    newlines = literal.count("\n")
    if newlines and len(quotes) == 1:
        quotes *= 3
    return f"{prefix}{quotes}{shown}" + "\n" * newlines + quotes


def _is_hidden(part: tuple[str, object]) -> bool:
    return part[0] == HIDDEN


def _run_of_parts(run: Sequence[tuple[str, object]], marking: Marking | None) -> str:
    """Parts of an f-string that follow each other: (what is shown of it, its text or code), all shown or all hidden."""
    if not _is_hidden(run[0]):
        return "".join(shown for shown, _ in run)
    text = run[0][1]
    return HIDDEN + (marking.of(text) if marking is not None and len(run) == 1 and isinstance(text, str) else "")


def _field(code: ast.expr, quotes: str) -> str:
    """'{self.rank}', or ``…`` for what holds a text or a long number, or would not be read again between the quotes."""
    if any(isinstance(node, ast.Constant) and not _is_plain(node.value) for node in ast.walk(code)):
        return HIDDEN
    if any(isinstance(node, ast.Lambda | ast.Dict | ast.Set) for node in ast.walk(code)):
        return HIDDEN
    text = ast.unparse(code)
    plain = len(text) <= _LONGEST_FIELD and not any(mark in text for mark in ("\n", "\\", "{", "}", quotes[0]))
    return f"{{{text}}}" if plain and mask_text(text) == text else HIDDEN


def _is_plain(value: object) -> bool:
    return value is None or (isinstance(value, int | float) and abs(value) < _PLAIN_NUMBER)


def _prefix_of(literal: str) -> str:
    return literal[: len(literal) - len(literal.lstrip("rRbBuUfFtT"))]


def _quotes_of(body: str) -> str:
    return body[:3] if body.startswith(('"""', "'''")) else body[:1]


def _is_harmless(content: str) -> bool:
    return content in _HARMLESS or _SHORT_NUMBER.fullmatch(content) is not None


def _is_word(content: str) -> bool:
    return _WORDS.fullmatch(content) is not None and mask_text(content) == content


def _replace(lines: list[str], replacements: list[tuple[tuple[int, int], tuple[int, int], str]]) -> str:
    parts: list[str] = []
    row, column = 1, 0
    for (start_row, start), (end_row, end), new in replacements:
        while row < start_row:
            parts.append(lines[row - 1][column:])
            row, column = row + 1, 0
        parts.append(lines[row - 1][column:start])
        parts.append(new)
        row, column = end_row, end
    parts.append(lines[row - 1][column:])
    parts.extend(lines[row:])
    return "".join(parts)[:-1]
