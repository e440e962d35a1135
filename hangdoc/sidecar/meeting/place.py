"""Where the watches of a job meet: the lead leaves the address under a key of the job's own store, others read it."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import re
import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hangdoc.capture.find.job_store import JobStore, job_name, job_store
from hangdoc.capture.find.store_protocol import LARGEST_VALUE, StoreConnection
from hangdoc.model.launch import is_loopback, meets_on_loopback, on_one_host
from hangdoc.sidecar.meeting.boards import Board, FolderBoard, StoreBoard
from hangdoc.sidecar.meeting.helper import StoreHelper
from hangdoc.sidecar.meeting.own_folder import OwnFolder
from hangdoc.sidecar.meeting.slurm import Step
from hangdoc.sidecar.meeting.wishes import Standing
from hangdoc.sidecar.options import endpoint

_SECONDS = 2.0
_KEY_BYTES = 32
_LARGEST_NOTE = 1024
_SETTLED_SECONDS = 10.0
"""For so long the ranks of other hosts may take to come to a store that only this host's have come to. Judgement."""
_HEX = re.compile(r"[0-9a-f]{64}")
_KEY_NAME = b"hangdoc/key"
_NOBODY = "no watch beside rank 0 has called a meeting"
_LONGEST_KEY_NAME = 200


class NoPlaceError(Exception):
    """There is no place to meet, or not yet; the text says why."""


@dataclass(slots=True)
class Place:
    """A place to meet, and what has to be closed with it. ``key``: with which everything is sealed."""

    board: Board
    key: bytes
    helper: StoreHelper | None = None
    note: bytes = b""
    """What was left in the job's store."""
    leads: bool = False
    """This watch leads here."""
    by_slurm: bool = False
    """Slurm's variables say who leads, wherever rank 0 is."""

    def close(self) -> None:
        """Leave the place; the store ends with its helper."""
        with contextlib.suppress(OSError):
            self.board.close()
        if self.helper is not None:
            self.helper.close()


def open_place(meet: str, standing: Standing, *, leads: bool, step: Step | None = None, late: bool = False) -> Place:
    """The place of ``--meet``, made if this watch ``leads``. Raises ``NoPlaceError``; may take a minute.

    ``step``: of Slurm's, where those meet whom no store joins; its place is not opened before it is ``late``.
    """
    try:
        if meet == "auto":
            return _at_store(standing, leads=leads) if step is None else _at_store_or_step(standing, step, leads, late)
        at = endpoint(meet)
        if at is not None:
            return _lead_at(at, standing) if leads else _join_at(at)
        return _in_folder(Path(meet), standing, leads=leads)
    except (OSError, ValueError) as error:
        raise NoPlaceError(str(error) or type(error).__name__) from error


def announce(place: Place, standing: Standing) -> None:
    """Leave the address of a store in the job's own store once more: a restarted job has a new one.

    Raises ``OSError``, ``ValueError`` and ``NoPlaceError``.
    """
    if place.note:
        with _talking(_store_of(standing), LARGEST_VALUE) as talk:
            _claim(talk, _name(standing), place.note)


def called_at_store(standing: Standing) -> bool:
    """True if a watch has called a meeting in the job's own store."""
    try:
        with _talking(_store_of(standing)) as talk:
            return talk.has(_name(standing))
    except (NoPlaceError, OSError, ValueError):
        return False


def _at_store(standing: Standing, *, leads: bool) -> Place:
    return _lead_at_store(standing) if leads else _join_at_store(standing)


def _at_store_or_step(standing: Standing, step: Step, leads: bool, late: bool) -> Place:
    """At the job's store, else on the first host of Slurm's step.

    Rank 0 may have come last, when the others have given up waiting for its store: whoever is not the first host's
    watch looks there before it calls a meeting of its own.
    """
    if leads and not step.leads:
        with contextlib.suppress(OSError, ValueError, NoPlaceError):
            return _join_step(standing, step)
    try:
        return _at_store(standing, leads=leads)
    except (NoPlaceError, OSError, ValueError) as error:
        why = str(error) or type(error).__name__
    if step.leads and not late:
        raise NoPlaceError(why)
    try:
        return _lead_step(standing, step) if step.leads else _join_step(standing, step)
    except (NoPlaceError, OSError, ValueError) as error:
        raise NoPlaceError(f"{why}; {step.first}, port {step.port}, where Slurm's variables lead: {error}") from None


def _lead_step(standing: Standing, step: Step) -> Place:
    return replace(_lead_with_key(step.own_address(), step.port, _step_key(standing, step), standing), by_slurm=True)


def _join_step(standing: Standing, step: Step) -> Place:
    return replace(_join_with_key((step.first, step.port), _step_key(standing, step)), by_slurm=True)


def _step_key(standing: Standing, step: Step) -> bytes:
    """Under which the key lies. Not where the ranks meet: hosts may have been told different places."""
    runs = {dict(target.environment).get("TORCHELASTIC_RUN_ID", "") for target in standing.targets if target.pid}
    return _KEY_NAME + f"/{step.name}/{min(runs, default='')}".encode()[:_LONGEST_KEY_NAME]


def _lead_at_store(standing: Standing) -> Place:
    store = _store_of(standing)
    settled = time.monotonic() + _SETTLED_SECONDS
    alone = any(meets_on_loopback(env) or on_one_host(env) for env in (dict(t.environment) for t in standing.targets))
    while is_loopback(store.interface) and not alone and time.monotonic() < settled:
        time.sleep(1.0)
        store = _store_of(standing)
    key = secrets.token_bytes(_KEY_BYTES)
    helper = StoreHelper(store.interface, 0, _witness(standing))
    try:
        note = json.dumps({"address": helper.address, "port": helper.port, "key": key.hex()}).encode()
        with _talking(store, LARGEST_VALUE) as talk:
            _claim(talk, _name(standing), note)
        return Place(StoreBoard(helper.address, helper.port, key), key, helper, note, leads=True)
    except BaseException:
        helper.close()
        raise


def _join_at_store(standing: Standing) -> Place:
    name = _name(standing)
    with _talking(_store_of(standing)) as talk:
        if not talk.has(name):
            raise NoPlaceError(_NOBODY)
        note = talk.value(name)
    address, port, key = _read_note(note)
    return Place(StoreBoard(address, port, key), key)


def _lead_at(at: tuple[str, int], standing: Standing) -> Place:
    address = str(socket.getaddrinfo(at[0], at[1], type=socket.SOCK_STREAM)[0][4][0])
    return _lead_with_key(address, at[1], _KEY_NAME, standing)


def _lead_with_key(address: str, port: int, name: bytes, standing: Standing) -> Place:
    """A store of our own there, in which the key lies under ``name``."""
    helper = StoreHelper(address, port, _witness(standing))
    try:
        key = secrets.token_bytes(_KEY_BYTES)
        with contextlib.closing(StoreConnection(address, helper.port, seconds=_SECONDS)) as talk:
            talk.set(name, key.hex().encode())
        return Place(StoreBoard(address, helper.port, key), key, helper, leads=True)
    except BaseException:
        helper.close()
        raise


def _join_at(at: tuple[str, int]) -> Place:
    return _join_with_key(at, _KEY_NAME)


def _join_with_key(at: tuple[str, int], name: bytes) -> Place:
    talk = StoreConnection(*at, seconds=_SECONDS, largest_value=_LARGEST_NOTE)
    with contextlib.closing(talk):
        if not talk.has(name):
            raise NoPlaceError("the meeting's store has no key of this job's yet")
        key = _read_key(talk.value(name).decode("ascii", "replace"))
    return Place(StoreBoard(*at, key), key)


def _in_folder(folder: Path, standing: Standing, *, leads: bool) -> Place:
    try:
        own = OwnFolder(folder / f"hangdoc-{job_name(standing.targets)}", make=leads)
    except FileNotFoundError:
        raise NoPlaceError(f"{folder} is no folder" if leads else _NOBODY) from None
    try:
        if leads:
            own.clear()  # what an earlier run of that name left
            key = secrets.token_bytes(_KEY_BYTES)
            own.put("key", key.hex().encode())
            return Place(FolderBoard(own, key, leads=True), key, leads=True)
        said = own.read("key")
        if said is None:
            raise NoPlaceError(_NOBODY)
        key = _read_key(said.decode("ascii", "replace"))
        return Place(FolderBoard(own, key), key)
    except BaseException:
        own.close()
        raise


def _witness(standing: Standing) -> int:
    return next(target.pid for target in standing.targets if target.pid is not None)


def _store_of(standing: Standing) -> JobStore:
    found = job_store(standing.targets)
    if found is None:
        raise NoPlaceError("the sockets of the ranks do not show a store that they share")
    return found


def _name(standing: Standing) -> bytes:
    return b"hangdoc/" + job_name(standing.targets).encode()


@contextmanager
def _talking(store: JobStore, largest: int = _LARGEST_NOTE) -> Iterator[StoreConnection]:
    """A short conversation with the job's own store; a value of more than ``largest`` bytes ends it."""
    talk = StoreConnection(store.address, store.port, seconds=_SECONDS, largest_value=largest)
    with contextlib.closing(talk):
        yield talk


def _claim(talk: StoreConnection, name: bytes, note: bytes) -> None:
    """Leave our note, in place of one of an earlier run: there is only one rank 0."""
    found = talk.compare_set(name, b"", note)
    if found != note:
        found = talk.compare_set(name, found, note)
    if found != note:
        raise ValueError("another watch calls a meeting at the same time")


def _read_note(note: bytes) -> tuple[str, int, bytes]:
    """(address, port, key) of the meeting. Raises ``ValueError`` for anything that is no such note."""
    try:
        document: Any = json.loads(note)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    document = document if isinstance(document, dict) else {}
    address, port = document.get("address"), document.get("port")
    if not isinstance(address, str) or type(port) is not int or not 0 < port < 1 << 16:
        raise ValueError("the note in the job's store names no address")
    return str(ipaddress.ip_address(address)), port, _read_key(document.get("key"))


def _read_key(text: object) -> bytes:
    if not isinstance(text, str) or not _HEX.fullmatch(text):
        raise ValueError("the meeting has no key")
    return bytes.fromhex(text)
