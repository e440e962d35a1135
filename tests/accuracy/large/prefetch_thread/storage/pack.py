"""A pack: records one after the other, and an index at the end.

Layout: magic, records (kind, side, checksum, pixels), index (offset and size of each), count.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from storage.camera import Shot

MAGIC = b"PACK0002"
_HEAD = struct.Struct("<BHI")
_ENTRY = struct.Struct("<QI")
_COUNT = struct.Struct("<I")


class PackError(ValueError):
    """A file is no pack, or is cut off."""


@dataclass(frozen=True, slots=True)
class Record:
    """One entry: where it is, and how many bytes it has."""

    number: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Picture:
    kind: int
    pixels: np.ndarray


class Pack:
    """A pack open for reading, a context manager."""

    def __init__(self, file: BinaryIO, records: list[Record], path: Path):
        self.file = file
        self.records = records
        self.path = path

    def __enter__(self) -> Pack:
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def __len__(self) -> int:
        return len(self.records)

    @staticmethod
    def write(path: Path, shots: Iterable[Shot]) -> None:
        """Write all shots, in one piece as far as readers can tell."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        entries: list[tuple[int, int]] = []
        with draft.open("wb") as file:
            file.write(MAGIC)
            for shot in shots:
                body = shot.pixels.tobytes()
                checksum = zlib.crc32(body) ^ (1 if shot.damaged else 0)
                entries.append((file.tell(), _HEAD.size + len(body)))
                file.write(_HEAD.pack(shot.kind, shot.pixels.shape[0], checksum))
                file.write(body)
            for entry in entries:
                file.write(_ENTRY.pack(*entry))
            file.write(_COUNT.pack(len(entries)))
        draft.replace(path)

    @classmethod
    def open(cls, path: Path) -> Pack:
        """Raises ``PackError``, ``OSError``."""
        file = path.open("rb")
        try:
            if file.read(len(MAGIC)) != MAGIC:
                raise PackError(f"{path} is no pack")
            end = file.seek(-_COUNT.size, os.SEEK_END)
            (count,) = _COUNT.unpack(file.read())
            start = end - count * _ENTRY.size
            if start < len(MAGIC):
                raise PackError(f"{path} is cut off")
            file.seek(start)
            index = file.read(count * _ENTRY.size)
            records = [Record(number, *entry) for number, entry in enumerate(_ENTRY.iter_unpack(index))]
        except BaseException:
            file.close()
            raise
        return cls(file, records, path)

    def read(self, record: Record, *, verify: bool) -> Picture | None:
        """The picture of a record; None where its checksum does not fit."""
        self.file.seek(record.offset)
        kind, side, checksum = _HEAD.unpack(self.file.read(_HEAD.size))
        body = self.file.read(record.size - _HEAD.size)
        if len(body) < side * side:
            raise PackError(f"record {record.number} of {self.path} is cut off")
        if verify and zlib.crc32(body) != checksum:
            return None
        return Picture(kind, np.frombuffer(body, np.uint8).reshape(side, side))
