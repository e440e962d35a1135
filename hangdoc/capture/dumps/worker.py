"""A process with limited memory and time that reads dump files: pickles or JSON, plain or compressed by gzip.

The contents of a dump do not show how much they allocate, so nobody else ever loads one. The parent opens each file and
passes its descriptor over a unix socket; the worker answers with a line of JSON for each.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import socket
import struct
import sys
import zlib
from typing import Any

from hangdoc.capture.dumps.alike import Alike
from hangdoc.capture.dumps.digest import NoDumpError, Tables, digest
from hangdoc.capture.read.flight_recorder import MOST_BYTES
from hangdoc.capture.safe.foreign import limit_memory, lower_limit
from hangdoc.capture.safe.pickles import allow_cpu, load_builtins

ANSWER = struct.Struct("<Q")
"""Before each answer: its length."""
MOST_FILES = 16
"""In one message: a byte for each, and the descriptors (unix(7): at most 253)."""
CPU_SECONDS = 20
"""For one file: 64 MiB of calls take 3 s."""
MEMORY = 384 << 20
"""Bytes of a worker's address space, including the interpreter's own (about 20 MiB)."""
LONGEST_ANSWER = 48 << 20
"""Bytes of the JSON text: 100 times what a recorder's 2,000 calls take."""

_HEAD = 1 << 16
"""Bytes that are read first, to see what kind of file it is; chosen by hand."""
_PIECE = 1 << 14
_MOST_MEMBERS = 4096
"""Of a gzip file, which has one; what packs in parallel makes one of every 64 KiB. Chosen by hand."""
_GARBAGE = 50_000
"""Containers that are left over when a file is done, and of which a cycle keeps some: then they are collected."""


def main() -> None:
    """Answer on the unix socket that is standard input, until it is closed."""
    gc.disable()
    gc.freeze()
    limit_memory(MEMORY)
    lower_limit(resource.RLIMIT_FSIZE, 0)
    tables, alike = Tables(), Alike()
    with socket.socket(fileno=os.dup(sys.stdin.fileno())) as parent:
        while True:
            _, files, _, _ = socket.recv_fds(parent, MOST_FILES, MOST_FILES)
            if not files:
                return
            for file in files:
                allow_cpu(CPU_SECONDS)
                answer = _answer(file, tables, alike)
                parent.sendall(ANSWER.pack(len(answer)) + answer)
                if gc.get_count()[0] > _GARBAGE:
                    gc.collect()


def _answer(descriptor: int, tables: Tables, alike: Alike) -> bytes:
    """What to say of a file: its digest with the new rows of the tables; 'bad' or 'foreign' with the reason; 'large'.

    After 'large' the worker is of no more use: what took the memory may still be there.
    """
    try:
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            data = _read(file)
        found = alike.digest(data)
        if found is None:
            dump = _load(data)
            found = digest(dump, tables)
            alike.learn(data, dump.get("entries"), found, tables.own[found["body"]])
        found["new"] = tables.news()
        answer = json.dumps(found, separators=(",", ":")).encode()
        if len(answer) > LONGEST_ANSWER:
            raise MemoryError
    except MemoryError:
        return b'{"large":true}'
    except NoDumpError as error:
        return json.dumps({"foreign": str(error)[:300]}).encode()
    except Exception as error:  # a broken file can raise any exception
        return json.dumps({"bad": str(error)[:300] or type(error).__name__}).encode()
    return answer


def _read(file: Any) -> bytes:
    """What is in the file, unpacked."""
    size = os.fstat(file.fileno()).st_size
    # A read reserves what it asks for: of a small file no more than it has, and a byte in case it grows.
    data: bytes = file.read(size + 1 if size < _HEAD else _HEAD)
    packed = data.startswith(b"\x1f\x8b")
    if data and not packed and not _may_be_a_dump(data):
        raise NoDumpError("it is neither a pickle nor JSON")
    data += file.read(min(size, MOST_BYTES) + 1)
    if packed:
        data = _expanded(data)
    if not data:
        raise ValueError("it is empty")
    if len(data) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes")
    return data


def _load(data: bytes) -> dict[Any, Any]:
    found = json.loads(data) if data.lstrip()[:1] == b"{" else load_builtins(data)
    if not isinstance(found, dict):
        raise NoDumpError(f"it holds {type(found).__name__}, not a dict")
    return found


def _may_be_a_dump(head: bytes) -> bool:
    """A pickle (protocol 2 and newer, or a dict of protocol 0 or 1), or a JSON object?"""
    return head[:1] in (b"\x80", b"(", b"}") or head.lstrip()[:1] == b"{"


def _expanded(data: bytes) -> bytes:
    """What gzip packed, one member after the other, up to a byte more than a dump may have.

    A member is given its bytes piece by piece: what it leaves over is copied, which may be all the rest of the file.
    """
    found, rest = bytearray(), memoryview(data)
    for _ in range(_MOST_MEMBERS):
        expander = zlib.decompressobj(wbits=31)
        while not expander.eof:
            try:
                found += expander.decompress(rest[:_PIECE], MOST_BYTES + 1 - len(found))
            except zlib.error as error:
                raise ValueError(f"gzip: {error}") from None
            if len(found) > MOST_BYTES:
                return bytes(found)
            if not rest and not expander.eof:
                raise ValueError("gzip: it ends too early")
            rest = rest[len(rest[:_PIECE]) - len(expander.unused_data) :]
        if not rest:
            return bytes(found)
    raise ValueError(f"gzip: it has more than {_MOST_MEMBERS} members")
