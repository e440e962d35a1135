"""Rows with a label and pieces of text, laid out for a width: cells, wrapping, colors; no diagnosis."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hangdoc.model.wording import harmless, in_ascii
from hangdoc.report.links import link_to

if TYPE_CHECKING:
    from rich.text import Text

MAX_TEXT = 1200
"""Characters of one piece; the whole of it is in the JSON document."""

_INDENT = 2
_LABEL = 9
_GAP = "  "
# Only a command that stays on one line can be pasted into a shell.
_COMMAND = re.compile(r"`(?:sudo )?[^ `]*hangdoc [^`]+`")
_GLUE = "\ue000"
"""Stands for a space where no line may break: one cell wide, and no white space to those who wrap."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Text that is kept together where it fits. ``shorten``: cut it on the left before anything else.

    ``place``: (file, line) that the text names.
    """

    text: str
    style: str = ""
    shorten: bool = False
    place: tuple[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """``label`` and its pieces. Rows that are ``aligned`` share columns, if those fit."""

    label: str
    pieces: tuple[Piece, ...]
    label_style: str = "cyan"
    aligned: bool = False
    separator: str = _GAP


class Layout:
    """Collects lines. Every text is made harmless on its way in. ``host``: places link to files there; '': to none."""

    def __init__(self, *, width: int, color: bool, unicode: bool, host: str = "") -> None:
        from rich.console import Console

        self._host = host
        self._width = width
        self._color = color
        self._unicode = unicode
        self._lines: list[Text] = []
        self._console = Console(
            width=width,
            force_terminal=color,
            color_system="standard" if color else None,
            no_color=not color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
        )

    def header(self, title: Iterable[Piece], facts: Iterable[str]) -> None:
        """One line that names the outcome and the job; facts that do not fit go to the next line."""
        texts = [self._text(piece.text, piece.style) for piece in title]
        line = self._join(texts, " ")
        self._flow([line, *(self._text(fact) for fact in facts)], " · ", first=0, rest=_INDENT)

    def paragraph(self, text: str, style: str = "", place: tuple[str, int] | None = None) -> None:
        """A sentence, indented."""
        self._flow([self._linked(Piece(text, style, place=place))], "", first=_INDENT, rest=_INDENT)

    def gap(self) -> None:
        """An empty line, never two in a row."""
        if self._lines and self._lines[-1].plain:
            self._lines.append(self._text(""))

    def rows(self, rows: Iterable[Row]) -> None:
        """The rows under each other; their labels share one column."""
        laid = [(row, [self._linked(piece) for piece in row.pieces]) for row in rows]
        widest = max((len(harmless(row.label)) for row, _ in laid), default=0)
        column = min(max(_LABEL, widest), max(_LABEL, self._width // 4))
        start = _INDENT + column + len(_GAP)
        columns = self._columns([texts for row, texts in laid if row.aligned], self._width - start)
        for row, texts in laid:
            if not texts:
                self.gap()
                continue
            label = self._text(row.label, row.label_style)
            if label.cell_len > column:
                self._flow([label], "", first=_INDENT, rest=_INDENT)
                label = self._text("")
            shown = self._pad(texts, columns) if row.aligned and columns else self._fit(row, texts, start)
            before = len(self._lines)
            self._flow(shown, row.separator, first=start, rest=start)
            if label.plain:
                self._set_label(before, label)

    def code(self, gutter: str, code: str, note: str = "", style: str = "", *, arrow: bool = True) -> None:
        """One line of Python right of ``gutter``, cut where it is too long, and a note behind it, or below it where it
        does not fit. ``arrow``: the note points at the line."""
        # In an empty text, whose style is none: what is added to a styled text takes on its style.
        margin = self._text("") + self._text(" " * _INDENT + gutter, "dim")
        room = max(10, self._width - margin.cell_len)
        body = self._highlighted(code)
        if body.cell_len > room:
            mark = self._text("…")
            body.truncate(room - mark.cell_len, overflow="crop")
            body = body + mark
        tail = self._text(f"  ← {note}" if arrow else f" {note}", style) if note else self._text("")
        if body.cell_len + tail.cell_len <= room:
            self._lines.append(margin + body + tail)
            return
        self._lines.append(margin + body)
        below = len(self._lines)
        indent = margin.cell_len + min(len(code) - len(code.lstrip()), room // 2)
        self._flow([self._text(f"↑ {note}" if arrow else note, style)], "", first=indent, rest=indent)
        empty = self._text("") + self._text(" " * (margin.cell_len - 2) + gutter[-2:], "dim")
        for index in range(below, len(self._lines)):
            self._lines[index] = empty + self._lines[index][empty.cell_len :]

    def cells(self, text: str) -> int:
        """How many cells ``text`` takes, as it is shown."""
        return self._text(text).cell_len

    def _highlighted(self, code: str) -> Text:
        """``code`` in the terminal's own colors, where it has some."""
        plain = self._text(code)
        if not self._color:
            return plain
        from rich.syntax import Syntax

        found = Syntax(plain.plain, "python", theme="ansi_dark", background_color="default").highlight(plain.plain)
        found.rstrip()
        return found

    def finish(self) -> str:
        """All lines as one text."""
        if not self._color:
            return "".join(line.plain.rstrip() + "\n" for line in self._lines)
        with self._console.capture() as capture:
            for line in self._lines:
                line.rstrip()
                self._console.print(line, no_wrap=True, overflow="ignore", crop=False)
        return capture.get()

    def _text(self, text: str, style: str = "") -> Text:
        from rich.text import Text

        if len(text) > MAX_TEXT:
            text = text[:MAX_TEXT] + "…"
        text = harmless(text)
        if not self._unicode:
            text = in_ascii(text)
        styled = Text(text, style=style)
        styled.highlight_regex(r"`[^`]+`", "cyan")
        return styled

    def _linked(self, piece: Piece) -> Text:
        """The piece's text, which leads to its place where that can be had here."""
        text = self._text(piece.text, piece.style)
        url = link_to(*piece.place, self._host) if piece.place is not None and self._host else ""
        if url:
            from rich.style import Style

            text.stylize(Style(link=url))
        return text

    def _join(self, texts: Sequence[Text], separator: str) -> Text:
        return self._text(separator).join(texts)

    def _columns(self, rows: Sequence[Sequence[Text]], room: int) -> list[int]:
        """Cells of the columns that fit into ``room``, from the left; none if already the first does not.

        What a row ends with may reach into the next column, where that row has nothing.
        """
        count = max((len(texts) for texts in rows), default=0)
        widths: list[int] = []
        for index in range(count):
            behind = 1 if index else 0
            width = max((texts[index].cell_len for texts in rows if index + behind < len(texts)), default=0)
            room -= width + (len(_GAP) if width and index else 0)
            if room < 0:
                break
            widths.append(width)
        return widths

    def _pad(self, texts: Sequence[Text], widths: Sequence[int]) -> list[Text]:
        padded = []
        for index, text in enumerate(texts):
            width = widths[index] if index < len(widths) else text.cell_len
            if index < len(texts) - 1:
                text.pad_right(width - text.cell_len)
            if text.plain:
                padded.append(text)
        return padded

    def _fit(self, row: Row, texts: Sequence[Text], start: int) -> list[Text]:
        """The pieces with text, those that may be shortened cut on the left to one line."""
        fitted = []
        for piece, text in zip(row.pieces, texts, strict=True):
            if not text.plain:
                continue
            room = self._width - start
            fitted.append(self._cut_left(text, room) if piece.shorten and text.cell_len > room else text)
        return fitted

    def _cut_left(self, text: Text, room: int) -> Text:
        mark = self._text("…")
        while text.plain and text.cell_len + mark.cell_len > room:
            text = text[1:]
        return mark + text

    def _flow(self, texts: Sequence[Text], separator: str, *, first: int, rest: int) -> None:
        """Put the texts one after another and break lines between them; inside one only where it does not fit."""
        parts = self._text(separator)
        line: Text | None = None
        indent = first
        for text in texts:
            if line is not None and indent + line.cell_len + parts.cell_len + text.cell_len <= self._width:
                line = line + parts + text
                continue
            if line is not None:
                self._emit(line, indent)
                indent = rest
            line = text
        if line is not None:
            self._emit(line, indent, rest)

    def _emit(self, text: Text, indent: int, rest: int | None = None) -> None:
        margin = max(indent, rest or 0)
        room = max(10, self._width - margin)
        text.plain = _COMMAND.sub(
            lambda found: found[0].replace(" ", _GLUE) if len(found[0]) <= room else found[0], text.plain
        )
        for part in text.wrap(self._console, room, overflow="fold"):
            part.plain = part.plain.replace(_GLUE, " ")
            part.rstrip()
            self._lines.append(self._text(" " * indent) + part)
            indent = margin

    def _set_label(self, index: int, label: Text) -> None:
        """Write the label into the margin of the line that was put at ``index``."""
        line = self._lines[index]
        margin = self._text(" " * _INDENT) + label
        self._lines[index] = margin + line[margin.cell_len :]
