"""Finds the lines of a log that may matter, in one pass over its bytes.

The pass looks for a few literal texts (``markers``), one of which every line of interest has: no regular expression
sees a line without one. Of each marker's lines the first and the last are kept, so that a flood of one kind hides no
other kind, and memory is bounded whatever the file's size.

Example: of 'step 1\\nstep 2\\n[rank3]: … WorkNCCL(SeqNum=7, …\\nstep 3\\n' the third line is kept, with its number 3.
"""

from __future__ import annotations

import codecs
import re
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import BinaryIO

_PIECE = 4 << 20
"""Bytes that are searched at a time."""
_LONGEST = 16 << 10
"""Bytes of one line on each side of a marker; torch's longest records have some 3,000."""
_MOST_FIRST, _MOST_LAST = 4_000, 12_000
"""Lines kept of one marker, at the start and at the end of the file: some 16 MB for each marker at worst."""
MAX_UNPACKED = 8 << 30
"""Bytes read of one file, unpacked: a small gzip can hold a hundred gigabytes."""
_TAIL = 256 << 10
"""Bytes at the end of a file whose lines are kept as they are: what each rank wrote last."""
_LAST_PIECES = 3
_MOST_OF_A_PIECE = 200
"""Lines of one marker that are kept of a piece in the middle of a file that is full of them."""
_SMALL = 4 << 20
_LEAD = 64 << 10
"""Bytes of the piece before that are searched again, so that no record is cut where a piece ends."""
_WRAPPED = range(60, 401)
"""Columns of a terminal from which a log was pasted."""
_MOST_WRAPPED = 64 << 20
"""Bytes of a log with wrapped lines that are read: nobody pastes more."""
_FEWEST_WRAPPED, _TRIED_WIDTHS = 4, 5
_BEGINS = re.compile(
    r"\s*$|\[(rank|default|PG)|[A-Z]\d{4} |\d{4}-|Traceback|frame #|[>#*=-]|\s{2,}\S|Thread |Process |rank\b"
)
"""How a line begins that goes on with no other."""
_DIGIT = re.compile(r"\d")
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Marker:
    """A literal text, and how many lines before and after its line belong to it (a traceback's, a stack's)."""

    text: bytes
    before: int = 0
    after: int = 0


@dataclass(slots=True)
class Sifted:
    """What was kept of one file: (number, line) in their order, lines without their end."""

    kept: list[tuple[int, bytes]] = field(default_factory=list)
    tail: list[tuple[int, bytes]] = field(default_factory=list)
    lines: int = 0
    size: int = 0
    cut: str = ""
    """What was left out and why; '' where nothing was."""
    whole: bytes = b""
    """The whole text of a small file: some kinds are read as one document."""


class _Kept:
    """The lines of one marker: the first and the last."""

    def __init__(self) -> None:
        self.first: dict[int, bytes] = {}
        self.last: deque[tuple[int, bytes]] = deque(maxlen=_MOST_LAST)
        self.left_out = 0

    def add(self, number: int, line: bytes) -> None:
        if len(self.first) < _MOST_FIRST:
            self.first[number] = line
            return
        if len(self.last) == _MOST_LAST:
            self.left_out += 1
        self.last.append((number, line))


def sift(
    file: BinaryIO,
    markers: tuple[Marker, ...],
    progress: Callable[[int], None] | None = None,
    limit: int = MAX_UNPACKED,
) -> Sifted:
    """The lines of ``file`` with a marker, and its last ones. ``progress`` is told how many bytes have been read.

    A gzip file is unpacked on the way, text in UTF-16 becomes UTF-8, and lines that a terminal wrapped are joined
    again. Raises OSError; a gzip file that is broken, and one above ``limit``, is read as far as it goes, and ``cut``
    says so.
    """
    found = Sifted()
    kept = [_Kept() for _ in markers]
    lead, tail, number, tail_number = b"", b"", 1, 1
    pieces = _pieces(_text(file, found, limit))
    first = next(pieces, b"")
    width = wrapped_at(first)
    if width is not None:
        return _sift_wrapped(_joined(first, pieces, found), width, markers, found)
    held: deque[tuple[bytes, int]] = deque()
    """The last pieces, which are searched in full: a hang is told at the end."""
    for piece in chain((first,), pieces):
        found.size += len(piece)
        if found.size <= _SMALL:
            found.whole += piece
        held.append((lead + piece, number - lead.count(b"\n")))
        if len(held) > _LAST_PIECES:
            _search(*held.popleft(), markers, kept, _MOST_OF_A_PIECE)
        number += piece.count(b"\n")
        lead = lead + piece if len(piece) < _LEAD else piece
        if len(lead) > _LEAD:
            lead = lead[lead.find(b"\n", len(lead) - _LEAD) + 1 :]
        tail += piece
        if len(tail) > 2 * _TAIL:
            gone = tail[:-_TAIL]
            tail_number += gone.count(b"\n")
            tail = tail[-_TAIL:]
        if progress is not None:
            progress(found.size)
    for text, at in held:
        _search(text, at, markers, kept, _MOST_LAST)
    if found.size > _SMALL:
        found.whole = b""
    found.lines = number - 1 + (1 if tail and not tail.endswith(b"\n") else 0)
    found.kept = sorted({n: line for each in kept for n, line in (*each.first.items(), *each.last)}.items())
    found.tail = _last_lines(tail, tail_number, whole=found.size == len(tail))
    left_out = sum(each.left_out for each in kept)
    if left_out:
        found.cut = "; ".join(filter(None, (found.cut, f"{left_out:,} lines of kinds of which there are very many")))
    return found


def wrapped_at(text: bytes) -> int | None:
    """The width at which a terminal wrapped the lines of ``text``; None if it did not.

    Many long lines then have that one length, and what follows such a line goes on with it.
    """
    lines = text[: 1 << 20].decode("utf-8", "replace").split("\n")
    lengths = Counter(len(line) for line in lines)
    for width, count in lengths.most_common(_TRIED_WIDTHS):
        longer = sum(n for length, n in lengths.items() if length > width)
        if width not in _WRAPPED or count < _FEWEST_WRAPPED or longer > count:
            continue
        begun = sum(_begins_anew(lines[i + 1], line) for i, line in enumerate(lines[:-1]) if len(line) == width)
        if begun * 5 < count:
            return width
    return None


def _begins_anew(line: str, before: str) -> bool:
    """True for a line that begins as records do, or as the one before it."""
    return bool(_BEGINS.match(line)) or _DIGIT.sub("0", line[:4]) == _DIGIT.sub("0", before[:4])


def _joined(first: bytes, pieces: Iterator[bytes], found: Sifted) -> bytes:
    text = first
    for piece in pieces:
        text += piece
        if len(text) > _MOST_WRAPPED:
            found.cut = f"read up to {_MOST_WRAPPED >> 20} MB of lines that a terminal has wrapped"
            break
    return text


def _sift_wrapped(text: bytes, width: int, markers: tuple[Marker, ...], found: Sifted) -> Sifted:
    """As ``sift``, of a text whose lines were wrapped after ``width`` characters. A line has the number of its first
    part."""
    lines: list[tuple[int, bytes]] = []
    goes_on = False
    for number, part in enumerate(text.split(b"\n"), 1):
        if goes_on and len(lines[-1][1]) < _LONGEST:
            lines[-1] = (lines[-1][0], lines[-1][1] + part)
        else:
            lines.append((number, part))
        goes_on = len(part.decode("utf-8", "replace")) == width
    wanted: set[int] = set()
    for i, (_, line) in enumerate(lines):
        for marker in markers:
            if marker.text in line:
                wanted.update(range(max(0, i - marker.before), min(len(lines), i + marker.after + 1)))
    found.kept = [lines[i] for i in sorted(wanted)]
    found.tail = lines[-_TAIL // width :]
    found.whole = text if len(text) <= _SMALL else b""
    found.lines, found.size = text.count(b"\n"), len(text)
    return found


def _search(piece: bytes, number: int, markers: tuple[Marker, ...], kept: list[_Kept], most: int) -> None:
    """Put the lines of ``piece`` with a marker into ``kept``, of each marker the last ``most``, and the first where few
    were seen before; ``number`` is that of the piece's first line."""
    for marker, own in zip(markers, kept, strict=True):
        at = piece.find(marker.text)
        if at < 0:
            continue
        start = 0
        if len(own.first) >= _MOST_FIRST:
            start = _start_of_last(piece, marker.text, most)
            own.left_out += piece.count(marker.text, 0, start)
        _search_from(piece, start, number, marker, own)


def _start_of_last(piece: bytes, text: bytes, most: int) -> int:
    """Where the last ``most`` occurrences of ``text`` begin."""
    at = len(piece)
    for _ in range(most):
        before = piece.rfind(text, 0, at)
        if before < 0:
            return 0
        at = before
    return at


def _search_from(piece: bytes, begin: int, number: int, marker: Marker, own: _Kept) -> None:
    at, here, counted = piece.find(marker.text, begin), number, 0
    done, done_number = -1, 0
    """Where the lines end that belong to the marker before: each is kept once."""
    while at >= 0:
        start, end = _line_around(piece, at)
        here += piece.count(b"\n", counted, start)
        counted = start
        if start > done:
            first, above = start, here
            for _ in range(marker.before):
                if first <= 0:
                    break
                above -= piece[first - 1 : first] == b"\n"
                first, stop = _line_around(piece, first - 1)
                own.add(above, piece[first:stop])
            own.add(here, piece[start:end])
        following, offset = (end, here) if end >= done else (done, done_number)
        for _ in range(here + marker.after - offset):
            if following >= len(piece) - 1:
                break
            following += 1
            offset += 1
            _, stop = _line_around(piece, following)
            own.add(offset, piece[following:stop])
            following = stop
        done, done_number = following, offset
        at = piece.find(marker.text, end)


def _line_around(piece: bytes, at: int) -> tuple[int, int]:
    """Where the line of the byte at ``at`` begins and ends, at most ``_LONGEST`` away. A progress bar's carriage return
    ends no line's number, but what follows it is a text of its own."""
    low = max(0, at - _LONGEST)
    start = max(piece.rfind(b"\n", low, at), piece.rfind(b"\r", low, at), low - 1) + 1
    high = min(len(piece), at + _LONGEST)
    end = piece.find(b"\n", at, high)
    return start, high if end < 0 else end


def _pieces(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes, cut where lines end; a line that is longer than a piece is cut anywhere."""
    held = b""
    for chunk in chunks:
        held += chunk
        if len(held) < _PIECE:
            continue
        end = held.rfind(b"\n") + 1
        if end:
            yield held[:end]
            held = held[end:]
        elif len(held) >= 2 * _PIECE:
            yield held
            held = b""
    if held:
        yield held


def _text(file: BinaryIO, found: Sifted, limit: int) -> Iterator[bytes]:
    """The bytes of ``file``, unpacked and in UTF-8."""
    head = file.read(4)
    rest = _unpacked(file, head, found) if head.startswith(_GZIP) else _raw(file, head)
    read = 0
    wide: codecs.IncrementalDecoder | None = None
    for chunk in rest:
        if not read and chunk[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE):
            wide = codecs.getincrementaldecoder("utf-16")(errors="replace")
        read += len(chunk)
        yield chunk if wide is None else wide.decode(chunk).encode("utf-8", "replace")
        if read >= limit:
            found.cut = f"read up to {limit >> 30} GiB" if limit >= 1 << 30 else f"read up to {limit:,} bytes"
            return


def _raw(file: BinaryIO, head: bytes) -> Iterator[bytes]:
    if head:
        yield head
    while chunk := file.read(_PIECE):
        yield chunk


def _unpacked(file: BinaryIO, head: bytes, found: Sifted) -> Iterator[bytes]:
    """What a gzip file holds, of all its members, in bounded pieces."""
    unpacker = zlib.decompressobj(31)
    data = head
    try:
        while data:
            yield unpacker.decompress(data, _PIECE)
            data = unpacker.unconsumed_tail
            if unpacker.eof:
                data = unpacker.unused_data or file.read(_PIECE)
                unpacker = zlib.decompressobj(31)
            elif not data:
                data = file.read(_PIECE)
    except zlib.error as error:
        found.cut = f"its gzip data is broken ({error})"


def _last_lines(tail: bytes, number: int, *, whole: bool) -> list[tuple[int, bytes]]:
    """The lines of the file's end with their numbers, without the first one if it may be half of one."""
    lines = tail.split(b"\n")
    if lines and not lines[-1]:
        lines.pop()
    numbered = [(number + i, re.split(rb"\r(?!$)", line)[-1][:_LONGEST]) for i, line in enumerate(lines)]
    return numbered if whole else numbered[1:]
