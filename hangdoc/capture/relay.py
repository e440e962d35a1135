"""Hosts that ask other hosts, where there are more than one machine should ask: a tree of two levels.

The machine where `hangdoc attach` runs asks the first host of each part, with the names of the part's other hosts; that
one captures, asks the others meanwhile, and hands their answers over unread. ClusterShell's gateways would do the same,
but what they send back is unpickled.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

from hangdoc.capture.asking import AT_ONCE, MOST_BYTES, MOST_CHATTER, HostsRequest, SilentError, ask
from hangdoc.capture.request import CaptureOptions
from hangdoc.capture.safe.deadline import Task
from hangdoc.capture.safe.text import clean
from hangdoc.capture.transports import Transport
from hangdoc.errors import HangdocError, UsageError
from hangdoc.model.masking import mask_text

_BEGINS = b"hangdoc-relay/1\n"
_LONGEST_HEAD = 4096
_LONGEST = 300
_MOST_PART = 128 << 20
"""Bytes of all answers that one host hands over."""

Answers = dict[str, "bytes | SilentError"]


def parts(hosts: Sequence[str], at_once: int) -> list[list[str]]:
    """``hosts`` in ``at_once`` runs of almost the same length, or fewer.

    Example: a, b, c, d, e by 2 → [a, b], [c, d, e].
    """
    count = min(len(hosts), max(1, at_once))
    ends = [len(hosts) * number // count for number in range(count + 1)]
    return [list(hosts[start:end]) for start, end in pairwise(ends)]


def seconds_of(part: Sequence[str], seconds: float) -> float:
    """For the first host of a part to answer for all of it."""
    return seconds * (1 + math.ceil((len(part) - 1) / AT_ONCE))


def ask_part(request: HostsRequest, part: Sequence[str]) -> Answers:
    """The answers of the hosts of the part that its first one hands over; {} where that one gives none."""
    most = min(_MOST_PART, MOST_BYTES * len(part))
    try:
        data = ask(request, part[0], ["--relay", _token(request, part[1:])], seconds=seconds_of(part, request.seconds),
                   most=most)  # fmt: skip
    except SilentError:
        return {}
    found = _frames(data)
    return {host: found[name] for host, name in zip(part, ["", *part[1:]], strict=True) if name in found}


def hand_over(token: str, options: CaptureOptions, variables: Mapping[str, str], own: Callable[[], bytes]) -> bytes:
    """On the first host of a part: ``own``, its own snapshot, and the answers of the hosts in the token, framed.

    Raises ``UsageError`` for a token that `hangdoc attach` has not made, and under sudo: who may only capture as root
    must not come to run other commands as root.
    """
    if "SUDO_UID" in os.environ:
        raise UsageError("hangdoc asks no other hosts under sudo", "They are asked from where hangdoc attach runs.")
    request = _request(token, options, variables)
    gate = threading.Semaphore(AT_ONCE)

    def asking(host: str) -> Callable[[], bytes]:
        def asked() -> bytes:
            with gate:
                return ask(request, host)

        return asked

    tasks = {host: Task(asking(host)) for host in request.hosts}
    until = time.monotonic() + seconds_of(["", *request.hosts], request.seconds)
    frames = [_BEGINS, _frame("", own)]
    for host, task in tasks.items():
        frames.append(_frame(host, partial(task.result, until)))
    return b"".join(frames)


def _frame(host: str, answer: Callable[[], bytes]) -> bytes:
    why = remedy = ""
    data = b""
    try:
        data = answer()
    except SilentError as error:
        why, remedy = error.why, error.remedy
    except TimeoutError:
        why = "could not be asked in time"
    except HangdocError as error:
        why, remedy = error.what, error.remedy
    head = {"host": host, "bytes": len(data), "why": why, "remedy": remedy}
    return json.dumps(head).encode() + b"\n" + data


def _frames(data: bytes) -> Answers:
    """By host what was handed over, as far as it can be read; the relay's own answer has the name ''."""
    at = data.find(_BEGINS, 0, MOST_CHATTER)
    found: Answers = {}
    at += len(_BEGINS) if at >= 0 else len(data) + 1
    while at < len(data):
        end = data.find(b"\n", at, at + _LONGEST_HEAD)
        head = _json(data[at:end]) if end >= 0 else {}
        host, size = head.get("host"), head.get("bytes")
        if not isinstance(host, str) or type(size) is not int or not 0 <= size <= len(data) - end - 1:
            break
        why, remedy = (clean(mask_text(str(head.get(name, ""))), _LONGEST) for name in ("why", "remedy"))
        found[host] = data[end + 1 : end + 1 + size] if size else SilentError(why, remedy)
        at = end + 1 + size
    return found


def _token(request: HostsRequest, hosts: Sequence[str]) -> str:
    """What a relay needs to know, in letters that no shell on the way changes."""
    transport = request.transport
    document = {
        "hosts": [*hosts],
        "name": transport.name,
        "words": transport.words,
        "through_shell": transport.through_shell,
        "hangdoc": [*request.hangdoc],
        "seconds": request.seconds,
    }
    return base64.urlsafe_b64encode(json.dumps(document).encode()).decode()


def _request(token: str, options: CaptureOptions, variables: Mapping[str, str]) -> HostsRequest:
    try:
        found = _json(base64.urlsafe_b64decode(token.encode()))
        transport = Transport(str(found["name"]), _texts(found["words"]), bool(found["through_shell"]))
        hosts, words, seconds = _texts(found["hosts"]), _texts(found["hangdoc"]), float(found["seconds"])
        if not 0 < seconds < threading.TIMEOUT_MAX:
            raise ValueError
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise UsageError("--relay cannot be read", "It is for `hangdoc attach` to write.") from None
    return HostsRequest(hosts, transport, words, variables, seconds, options)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise TypeError
    return tuple(value)


def _json(data: bytes) -> dict[str, Any]:
    try:
        found: Any = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
