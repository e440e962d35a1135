"""What watches write to each other: small JSON, sealed, with limits. Nothing else crosses the network but snapshots."""

from __future__ import annotations

import hashlib
import hmac
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

LARGEST_RECORD = 1 << 18
"""Bytes: of 16,000 ranks' numbers, more than a host has. Judgement."""
LARGEST_WORLD = 100_000
CALM_SECONDS = 5.0
"""Between two steps of a watch while nothing changes, and between two of its beats unless the lead says otherwise.
Judgement: few enough for some hundred hosts."""
_MOST_CALM_SECONDS = 30.0
"""That a lead may ask for. Judgement: a lost host is to be noticed within a minute or so."""
_LONGEST_TEXT = 4096
_LONGEST_NAME = 255
"""Of a host, of what tells it from others (60 letters), and of a watch. Judgement."""
_SEAL = hashlib.sha256().digest_size


@dataclass(frozen=True, slots=True)
class Beat:
    """How one watch's ranks are. ``still``: seconds since they last moved; None while they move.

    ``number`` grows with each beat: a beat that stays the same shows that the watch is silent. ``heard``: the round of
    the latest verdict that the watch has; ``answered``: the latest in which it has left what was asked for. ``left``:
    its command has ended, and it says no more.
    """

    member: str
    host: str
    identity: str
    ranks: tuple[int, ...]
    world: int
    number: int
    still: float | None = None
    heard: int = 0
    left: bool = False
    answered: int = 0


@dataclass(frozen=True, slots=True)
class Orders:
    """What the lead wants, as small as it can be: a thousand watches read it once a second.

    Some are asked in ``round``; 0: nobody has been asked yet. Who it is they read once, elsewhere (``addressed``).
    """

    member: str
    host: str
    number: int
    round: int = 0
    verdict: int = 0
    """The round of the latest verdict; 0: there is none yet."""
    waiting: bool = False
    """Ranks of some host move, so there is nothing to look at yet."""
    refused: tuple[str, ...] = ()
    """Members that do not fit the job: no verdict is about their ranks."""
    digests: bool = False
    """There are many hosts: each is asked for a digest, not for a whole snapshot."""
    pieces: bool = False
    """In this round, for pieces that the digests have left out."""
    pause: float = 0.25
    """Seconds between two looks at this while a round is on."""
    calm: float = CALM_SECONDS
    """Seconds between two beats of a watch of which nothing has changed. Leads of earlier versions do not say it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the lead has concluded. ``path``: of the report's snapshot on ``host``; '' where it could not be kept.

    ``may_end``: it rests on ranks that were seen. ``hosts``: how many hosts' snapshots it rests on. ``end``: the rank
    to end for a restart, its pid and start time on its own host, that host's name, and a mark that equal verdicts
    share; empty where the verdict carries no restart. ``fix``, ``news``: as in ``Conclusion``.
    """

    round: int
    outcome: str
    sentence: str
    host: str
    path: str = ""
    may_end: bool = False
    hosts: int = 1
    end: tuple[int, int, float, str, str] | tuple[()] = ()
    fix: str = ""
    news: str = ""


Record = TypeVar("Record", Beat, Orders, Verdict)


def written(record: Beat | Orders | Verdict) -> bytes:
    """The record as JSON."""
    return json.dumps(asdict(record), separators=(",", ":")).encode()


def read(kind: type[Record], data: bytes) -> Record:
    """The record in ``data``. Raises ``ValueError`` for anything that is none."""
    if len(data) > LARGEST_RECORD:
        raise ValueError(f"a record of {len(data)} bytes")
    try:
        document = json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    document = document if isinstance(document, dict) else {}
    found: dict[str, Any] = {}
    for name, check in _FIELDS[kind].items():
        if name not in document and (kind, name) in _LATER:
            continue
        if name not in document or not check(document[name]):
            raise ValueError(f"no {name} in the {kind.__name__.lower()}")
        value = document[name]
        found[name] = tuple(value) if isinstance(value, list) else value
    return kind(**found)


def addressed(members: Iterable[str]) -> bytes:
    """Who is asked, in eight letters each: a thousand watches read it."""
    return b" ".join(map(_short, members))


def is_addressed(member: str, said: bytes) -> bool:
    """True if the member is among those who are asked (or, once in some million times, has the same letters)."""
    return _short(member) in said.split(b" ")


def _short(member: str) -> bytes:
    return hashlib.sha256(member.encode()).hexdigest()[:8].encode()


def sealed(key: bytes, name: str, payload: bytes) -> bytes:
    """``payload`` with a seal that only those can make who know ``key``, for this ``name`` and no other."""
    return hmac.digest(key, _bound(name, payload), "sha256") + payload


def opened(key: bytes, name: str, value: bytes) -> bytes:
    """The payload of a sealed value. Raises ``ValueError`` where the seal is not right."""
    seal, payload = value[:_SEAL], value[_SEAL:]
    if not hmac.compare_digest(seal, hmac.digest(key, _bound(name, payload), "sha256")):
        raise ValueError(f"{name} is not sealed by a watch of this job")
    return payload


def _bound(name: str, payload: bytes) -> bytes:
    encoded = name.encode()
    return len(encoded).to_bytes(4, "big") + encoded + payload


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 53


def _text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= _LONGEST_TEXT


def _name(value: Any) -> bool:
    return _text(value) and len(value) <= _LONGEST_NAME


def _flag(value: Any) -> bool:
    return type(value) is bool


def _ranks(value: Any) -> bool:
    plain = isinstance(value, list) and all(type(rank) is int and 0 <= rank < LARGEST_WORLD for rank in value)
    return plain and len(set(value)) == len(value)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _seconds(value: Any) -> bool:
    return value is None or (type(value) in (int, float) and math.isfinite(value) and value >= 0)


def _end(value: Any) -> bool:
    if not isinstance(value, list) or len(value) not in (0, 5):
        return False
    checks = (_count, _count, _instant, _text, _text)
    return all(check(each) for check, each in zip(checks, value, strict=False))


def _instant(value: Any) -> bool:
    return value is not None and _seconds(value)


def _pause(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value <= 10


def _calm(value: Any) -> bool:
    return type(value) in (int, float) and CALM_SECONDS <= value <= _MOST_CALM_SECONDS


def _world(value: Any) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_WORLD


_FIELDS: dict[type, dict[str, Callable[[Any], bool]]] = {
    Beat: {
        **{"member": _name, "host": _name, "identity": _name, "ranks": _ranks, "world": _world, "number": _count},
        **{"still": _seconds, "heard": _count, "left": _flag, "answered": _count},
    },
    Orders: {
        **{"member": _text, "host": _text, "number": _count, "round": _count, "verdict": _count},
        **{"waiting": _flag, "refused": _texts, "digests": _flag, "pieces": _flag, "pause": _pause},
        **{"calm": _calm},
    },
    Verdict: {
        **{"round": _count, "outcome": _text, "sentence": _text, "host": _text, "path": _text, "may_end": _flag},
        **{"hosts": _count, "end": _end, "fix": _text, "news": _text},
    },
}
_LATER = {(Orders, "calm")}
"""Fields that earlier versions do not write; without them their defaults count."""
