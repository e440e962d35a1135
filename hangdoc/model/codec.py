"""Snapshots and diagnoses to and from bytes.

A snapshot is gzip-compressed JSON with the schema ``hangdoc.snapshot/1``; of a large job with ``hangdoc.snapshot/2``,
where what its ranks have in common lies in tables (``interned.py``). ``encode`` writes it. Reading refuses another
schema, wrong types and anything above the limits with ``BadSnapshot``; it ignores fields it does not know, so that a
field can be added within a schema. pydantic is imported on first use: the sidecar stays small until a stall.
"""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import functools
import os
import re
import secrets
import stat
import threading
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from hangdoc.errors import BadSnapshot, CannotLook, HangdocError, UsageError
from hangdoc.model.diagnosis import DIAGNOSIS_SCHEMA
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.interned import INTERNED_SCHEMA, InternedJob, restored
from hangdoc.model.snapshot import SNAPSHOT_SCHEMA, JobSnapshot, Unavailable

if TYPE_CHECKING:
    from pydantic import RootModel
    from pydantic_core import SchemaValidator

_T = TypeVar("_T")

SNAPSHOT_SUFFIX = ".hangdoc"
"""How the names of snapshot files end; a run directory may hold several."""
MAX_COMPRESSED = 128 << 20
"""Bytes of a snapshot file we are willing to read."""
MAX_EXPANDED = 192 << 20
"""Bytes of JSON we are willing to hold."""
MAX_VALUES = 8_000_000
"""Numbers, texts, lists and objects in them: about 330,000 different calls. (Reading takes up to 80 bytes for each.)"""
_BYTES_OF_A_VALUE = 80
_PIECE = 1 << 20
_INTERNED = re.compile(rb'\s*\{\s*"schema"\s*:\s*"' + re.escape(INTERNED_SCHEMA).encode() + rb'"')

_BEGINS = re.compile(rb'\s*\{\s*"(?:taken"\s*:|schema"\s*:\s*"hangdoc\.)')
_GZIP_MAGIC = b"\x1f\x8b"
_RETAKE = "Take it again with `hangdoc watch` or `hangdoc attach --save FILE`."


class Allowance:
    """How much the snapshots of several hosts may hold together. One of them is read at a time."""

    def __init__(self, memory: int) -> None:
        """``memory``: bytes for all of them."""
        self._left = memory // _BYTES_OF_A_VALUE
        self.reading = threading.Lock()

    def take(self, values: int) -> bool:
        """False if there is no room for so many more."""
        if values > self._left:
            return False
        self._left -= values
        return True


def snapshot_from_bytes(
    data: bytes, *, origin: str = "the snapshot", allowance: Allowance | None = None
) -> JobSnapshot:
    """The snapshot in ``data`` (compressed, or the bare JSON). Raises ``BadSnapshot`` for anything else.

    ``allowance``: what it shares with others.
    """
    with allowance.reading if allowance is not None else contextlib.nullcontext():
        text = _text_of(data, origin, allowance)
        snapshot = _read_from(text, origin, _validated, lambda: _refuse_schema(_peek_schema(text), origin))
        _refuse_schema(snapshot.schema, origin)
        _charge(allowance, _unfolded(snapshot), origin)
        return snapshot


def value_from_bytes(kind: type[_T], data: bytes, *, origin: str, allowance: Allowance | None = None) -> _T:
    """The dataclass that ``encode.value_to_bytes`` wrote. Raises ``BadSnapshot`` for anything else."""
    reader = _reader(_envelope_of(cast("Any", kind)))
    with allowance.reading if allowance is not None else contextlib.nullcontext():
        text = _text_of(data, origin, allowance)
        found: _T = _read_from(text, origin, lambda text: reader.validate_json(text, strict=True))
        return found


def _charge(allowance: Allowance | None, values: int, origin: str) -> None:
    """Raise ``BadSnapshot`` if there is no room for so many values."""
    if allowance is not None and not allowance.take(values):
        raise BadSnapshot(f"{origin} is too large for this host's memory, with the others", "Look at fewer hosts.")


def _text_of(data: bytes, origin: str, allowance: Allowance | None) -> bytes:
    text = _expand(data, origin)
    # Every value except the first of a list or an object follows a comma.
    values = text.count(b",") + text.count(b"[") + text.count(b"{")
    if values > MAX_VALUES:
        raise BadSnapshot(
            f"{origin} is too large: it holds more than {MAX_VALUES:,} values",
            "Take it of fewer ranks, or with a smaller TORCH_FR_BUFFER_SIZE.",
        )
    _charge(allowance, values + len(text) // _BYTES_OF_A_VALUE, origin)
    return text


def _read_from(text: bytes, origin: str, way: Callable[[bytes], _T], otherwise: Callable[[], None] | None = None) -> _T:
    """What ``way`` makes of ``text``; ``otherwise`` may raise a better error for a text that does not validate."""
    from pydantic import ValidationError

    try:
        return way(text)
    except ValidationError as error:
        if otherwise is not None:
            otherwise()
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the document"
        raise BadSnapshot(f"{origin} is damaged: {place}: {first['msg']}", _RETAKE) from None
    except RecursionError:
        raise BadSnapshot(f"{origin} is damaged: nested too deeply", _RETAKE) from None
    except ValueError as error:  # a row that no table has
        raise BadSnapshot(f"{origin} is damaged: {error}", _RETAKE) from None


def _unfolded(snapshot: JobSnapshot) -> int:
    """As many values as take the memory of the calls that tables (``interned.py``) were unfolded to, about."""
    calls = {id(rank.journal.calls): len(rank.journal.calls) for rank in snapshot.ranks if rank.journal is not None}
    return 3 * sum(calls.values())


def _validated(text: bytes) -> JobSnapshot:
    """The snapshot in ``text``, of either form. Raises pydantic's ``ValidationError`` and ``ValueError``."""
    if _INTERNED.match(text) is None:
        snapshot: JobSnapshot = _reader(_envelope_of(JobSnapshot)).validate_json(text, strict=True)
        return snapshot
    found: InternedJob = _reader(_envelope_of(InternedJob)).validate_json(text, strict=True)
    return restored(found)


def dump_snapshot(snapshot: JobSnapshot, path: str | os.PathLike[str]) -> None:
    """Write ``snapshot`` to ``path``, whole or not at all, readable by its owner alone."""
    write_atomically(Path(path), snapshot_to_bytes(snapshot), mode=0o600)


def readable_bytes(snapshot: JobSnapshot) -> bytes:
    """The bytes of a file with ``snapshot`` that this version reads again; without the other jobs of its folder, and a
    note on them, where they are too large together. Raises ``HangdocError`` where it is too large alone."""
    data = snapshot_to_bytes(snapshot)
    try:
        snapshot_from_bytes(data, origin="what was collected")
    except BadSnapshot as error:
        if not snapshot.others:
            raise HangdocError(error.what, "Collect less at a time: fewer folders, or fewer ranks.") from None
        why = f"{len(snapshot.others)} other jobs of the folder were left out: the file would be too large"
        note = Unavailable("journal", why, "Collect the folder of each job by itself.")
        alone = dataclasses.replace(snapshot, others=(), unavailable=(*snapshot.unavailable, note))
        return readable_bytes(alone)
    return data


def begins_as_snapshot(path: Path) -> bool:
    """True if a file's first bytes are those of a snapshot. Raises ``OSError``."""
    with path.open("rb") as file:
        head = file.read(4096)
    if head.startswith(_GZIP_MAGIC):
        with contextlib.suppress(zlib.error):
            head = zlib.decompressobj(31).decompress(head, 4096)
    # A snapshot's first field is its time; that of a large job begins with the schema.
    return bool(_BEGINS.match(head))


def load_snapshot(path: str | os.PathLike[str]) -> JobSnapshot:
    """Read a snapshot file. Raises ``CannotLook`` if there is no such file, ``BadSnapshot`` otherwise."""
    return snapshot_from_bytes(_read(Path(path)), origin=str(path))


def write_atomically(path: Path, data: bytes, *, mode: int = 0o666) -> None:
    """Replace ``path`` by ``data`` in one step; ``mode`` is subject to the umask.

    Raises ``UsageError`` where ``path`` cannot be a file, ``HangdocError`` where the disk refuses.
    """
    temporary = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except (OSError, ValueError) as error:
        raise _cannot_write(path, error) from error


def _cannot_write(path: Path, error: OSError | ValueError) -> HangdocError:
    if not isinstance(error, OSError):  # a null byte in the name
        return UsageError(f"cannot write {str(path)!r}: {error}", "Give another file name.")
    what = f"cannot write {path}: {error.strerror or error}"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return HangdocError(what, "Free some space, or write to another disk.")
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG):
        return UsageError(what, "Give a file name in a directory that exists.")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return HangdocError(what, "Write to a directory that is yours.")
    return HangdocError(what, "Write to another place.")


def _read(path: Path) -> bytes:
    try:
        # Not blocking: the name may turn out to be a FIFO that nobody writes to.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise CannotLook(f"no such file: {path}", "Check the path; snapshots are under .hangdoc/.") from None
    except PermissionError:
        raise BadSnapshot(f"{path} may not be read", f"Ask its owner, or try: chmod u+r {path}") from None
    except (OSError, ValueError) as error:
        raise BadSnapshot(f"cannot open {str(path)!r}: {error}", "Check the path.") from None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise BadSnapshot(f"{path} is not a regular file", "Give the snapshot file itself.")
        if status.st_size > MAX_COMPRESSED:
            raise BadSnapshot(f"{path} is too large ({status.st_size >> 20} MiB)", _RETAKE)
        try:
            return file.read(MAX_COMPRESSED + 1)
        except OSError as error:
            raise BadSnapshot(f"cannot read {path}: {error}", "Copy the file to a healthy disk.") from None


def _expand(data: bytes, origin: str) -> bytes:
    """The JSON text in ``data``, never more than ``MAX_EXPANDED`` bytes of it."""
    if len(data) > MAX_COMPRESSED:
        raise BadSnapshot(f"{origin} is too large ({len(data) >> 20} MiB)", _RETAKE)
    if not data:
        raise BadSnapshot(f"{origin} is empty", _RETAKE)
    if data.lstrip()[:1] == b"{":
        return data
    if not data.startswith(_GZIP_MAGIC):
        raise BadSnapshot(f"{origin} is not a hangdoc snapshot", "Give a file that `hangdoc watch` saved.")
    expander = zlib.decompressobj(wbits=31)
    text, rest = bytearray(), data
    try:
        while not expander.eof and (piece := expander.decompress(rest, _PIECE)):
            text += piece
            rest = expander.unconsumed_tail
            if len(text) > MAX_EXPANDED:
                raise BadSnapshot(f"{origin} expands to more than {MAX_EXPANDED >> 20} MiB", _RETAKE)
    except zlib.error as error:
        raise BadSnapshot(f"{origin} is damaged: {error}", _RETAKE) from None
    if not expander.eof:
        raise BadSnapshot(f"{origin} is cut short", "Copy the whole file, or take the snapshot again.")
    if expander.unused_data:
        raise BadSnapshot(f"{origin} is damaged: something follows the snapshot", _RETAKE)
    return bytes(text)


def _peek_schema(text: bytes) -> object:
    """The schema of a document that did not validate; '' where it has none."""
    import pydantic_core

    try:
        document = pydantic_core.from_json(text)
    except ValueError:
        return SNAPSHOT_SCHEMA  # not JSON at all: the caller's own message says where
    return document.get("schema", "") if isinstance(document, dict) else ""


def _refuse_schema(schema: object, origin: str) -> None:
    if schema == SNAPSHOT_SCHEMA:
        return
    if schema == DIAGNOSIS_SCHEMA:
        raise BadSnapshot(f"{origin} is a diagnosis, not a snapshot", "Give the snapshot it was made from.")
    if isinstance(schema, str) and schema.startswith("hangdoc.snapshot/"):
        name = schema[:60].encode("ascii", "backslashreplace").decode()
        raise BadSnapshot(
            f"{origin} has the schema {name}; this version reads {SNAPSHOT_SCHEMA}",
            "Read it with the version of hangdoc that wrote it.",
        )
    raise BadSnapshot(f"{origin} is not a hangdoc snapshot", "Give a file that `hangdoc watch` saved.")


@functools.cache
def _envelope_of(kind: Any) -> type[RootModel[Any]]:
    from pydantic import ConfigDict, RootModel

    class Envelope(RootModel[kind]):
        # `--give-up-after inf` is legal, and by default pydantic writes an infinity as null.
        model_config = ConfigDict(ser_json_inf_nan="constants")

    return Envelope


@functools.cache
def _reader(envelope: type[RootModel[Any]]) -> SchemaValidator:
    """What reads a snapshot: as the envelope does, but a list with a wrong item is refused at that item. A message for
    each of millions would take gigabytes."""
    from pydantic_core import SchemaValidator

    schema: Any = envelope.__pydantic_core_schema__
    _refuse_at_first(schema)
    # The model's own wrapping would bring its ready-made validator along.
    if schema["type"] == "definitions":  # something in it holds more of its kind
        return SchemaValidator({**schema, "schema": schema["schema"]["schema"]})
    return SchemaValidator(schema["schema"])


def _refuse_at_first(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "tuple" and "variadic_item_index" in schema:
            schema["fail_fast"] = True
        for part in schema.values():
            _refuse_at_first(part)
    elif isinstance(schema, (list, tuple)):
        for part in schema:
            _refuse_at_first(part)
