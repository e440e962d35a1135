"""From the bytes of a log to lines that can be shown and compared.

A progress bar rewrites its line after each carriage return; only how it stands now and then, and in the end, is a line.
"""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass

from hangdoc.model.wording import harmless

LONGEST_LINE = 16 << 10
"""Bytes of a line that are shown; the file has the rest. Judgement: a terminal's width is a hundredth of it."""
SILENCE_SECONDS = 0.3
"""So long a line without its end stays as it is before it is shown: less would cut lines that are being written."""
REFRESH_SECONDS = 5.0
"""How often a progress bar or an unfinished line is shown anew. Judgement."""
_AFTERMATH_SECONDS = 1.0
"""Lines on stderr so long after one that tells of an error belong to it: messages and notes of several lines."""

_RESET = "\x1b[0m"
_SEQUENCE = re.compile(r"\x1b\[[0-9:;<=>?]{0,64}[ -/]{0,4}[@-~]")
"""Everything that begins with CSI: colors, movements of the cursor, erasures (ECMA-48, 5.4)."""
_COLOR = re.compile(r"\x1b\[[0-9:;]{0,64}m")
_CLOCK = r"\d\d:\d\d:\d\d"
_TIME = re.compile(
    r"[\[(]?(?:(?:DEBUG|INFO|NOTICE|WARN(?:ING)?|[DIW])[ :]{0,4})?[\[(]?"
    rf"(?P<time>\d{{4}}[-/]\d\d[-/]\d\d[T ]{_CLOCK}(?:[.,]\d{{1,9}})?(?:Z|[+-]\d\d:?\d\d)?"
    rf"|\d\d[-/]\d\d(?:[-/]\d\d)? {_CLOCK}(?:[.,]\d{{1,9}})?|\d{{4}} {_CLOCK}\.\d{{1,9}}|{_CLOCK}[.,]\d{{1,9}})"
)
"""A time at the beginning of a line, as logging, loguru, absl and PyTorch's own messages write it. A bare 12:34:56 may
be a duration, which is not to be overlooked."""
_RANK = re.compile(r"\[rank(\d{1,6})\]:? ?")
"""What PyTorch writes before its messages and tracebacks once a process group exists (torch 2.13)."""
_ERROR = re.compile(
    r"Traceback \(most recent call last\)|\b(?:ERROR|CRITICAL|FATAL|Fatal)\b|\b\w*(?:Error|Exception)\b"
    r"|Segmentation fault|\bAborted\b|core dumped|terminate called|\bwhat\(\):|\bSIG[A-Z]{3,5}\b|\bAssertion\b"
    rf"|^\[?[EF]\d{{4}} {_CLOCK}"
)


@dataclass(frozen=True, slots=True)
class Line:
    """A line as it is shown. ``key``: equal for lines that say the same. ``error``: it is shown for each rank."""

    text: str
    key: str
    error: bool = False


class Splitter:
    """Cuts the bytes of one stream into lines; keeps at most one line of them."""

    def __init__(self) -> None:
        self._rest = b""
        self._cut = 0
        """Bytes of the unfinished line that were dropped, as it is too long."""
        self._rewritten = False
        """A carriage return has begun the unfinished line anew."""
        self._changed_at = 0.0
        self._shown = ""
        self._next_show = 0.0

    def feed(self, data: bytes, now: float) -> list[str]:
        """The lines that ``data`` finishes. Example: b'10%\\r20%\\r100%\\nnext' → ['100%']."""
        if not data:
            return []
        self._changed_at = now
        *finished, rest = data.split(b"\n")
        lines = []
        for piece in finished:
            self._append(piece)
            lines.append(self._visible())
            self._begin()
        self._append(rest)
        return lines

    def unfinished(self, now: float) -> str:
        """How the last line stands, if it is time to show it; else ''."""
        if not self._rest or now < self._next_show:
            return ""
        if not self._rewritten and now - self._changed_at < SILENCE_SECONDS:
            return ""
        text = self._visible()
        if not text.strip() or text == self._shown:
            return ""
        self._shown, self._next_show = text, now + REFRESH_SECONDS
        return text

    def end(self) -> str:
        """What is left without the end of a line, unless it was shown; ''."""
        text, shown = self._visible(), self._shown
        self._begin()
        return text if text != shown else ""

    def _begin(self) -> None:
        self._rest, self._cut, self._rewritten, self._shown, self._next_show = b"", 0, False, "", 0.0

    def _append(self, piece: bytes) -> None:
        """Add to the unfinished line; of what carriage returns have overwritten, only the last version stays."""
        if b"\r" in piece or (piece and self._rest.endswith(b"\r")):
            versions = [each for each in (self._rest + piece).split(b"\r") if each]
            self._rewritten |= len(versions) > 1
            self._rest = b"".join(versions[-1:]) + (b"\r" if piece.endswith(b"\r") else b"")
            self._cut = 0
        elif self._cut:
            self._cut += len(piece)
        else:
            self._rest += piece
        if len(self._rest) > LONGEST_LINE + 1:
            self._cut += len(self._rest) - LONGEST_LINE
            self._rest = self._rest[:LONGEST_LINE]

    def _visible(self) -> str:
        data = self._rest.rstrip(b"\r")
        # Not the beginning of a character whose end was cut off, or is not there yet.
        text = codecs.utf_8_decode(data, "backslashreplace", not self._cut)[0]
        return f"{text} … {self._cut} more bytes" if self._cut else text


def shown(text: str, *, color: bool) -> str:
    """``text`` without anything that a terminal obeys; colors stay where there are any, up to the end of the line."""
    if text.isprintable():
        return text
    text = text.expandtabs()
    parts = []
    at = 0
    colored = False
    for found in _SEQUENCE.finditer(text):
        parts.append(harmless(text[at : found.start()]))
        at = found.end()
        if color and _COLOR.fullmatch(found[0]):
            parts.append(found[0])
            colored = True
    parts.append(harmless(text[at:]))
    return "".join(parts) + (_RESET if colored else "")


class Reader:
    """Makes lines of one rank's stream comparable; knows which of them tell of an error."""

    def __init__(self, rank: int | None, *, stderr: bool, color: bool) -> None:
        self._rank = rank
        self._stderr = stderr
        self._color = color
        self._aftermath_until = 0.0

    def line(self, text: str, now: float) -> Line:
        """The line that ``text`` is; its key ignores a time at its beginning and the rank's own number before that.

        Example: '[rank1]: 2025-02-10 17:58:17,472 hello' of rank 1 → its key is that of '[rank0]: …' of rank 0.
        """
        plain = _SEQUENCE.sub("", text)
        said = text
        own = _RANK.match(plain)
        if own is not None and int(own[1]) == self._rank:
            plain = plain[own.end() :]
            said = _RANK.sub("", text, count=1) if _RANK.match(text) else text
        error = bool(_ERROR.search(plain))
        if error and self._stderr:
            self._aftermath_until = now + _AFTERMATH_SECONDS
        time = _TIME.match(plain)
        key = plain[: time.start("time")] + "\0" + plain[time.end("time") :] if time is not None else plain
        return Line(
            shown(said, color=self._color),
            f"{'2' if self._stderr else '1'}{key.rstrip()}",
            error or now < self._aftermath_until,
        )
