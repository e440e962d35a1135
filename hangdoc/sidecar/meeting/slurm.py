"""Where Slurm's variables have the watches of a step meet: on its first host, at a port made from the step's number."""

from __future__ import annotations

import re
import socket
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from hangdoc.model.launch import is_loopback, number

_FIRST_PORT, _PORTS = 20_000, 10_000
"""Below the ports that Linux gives to outgoing connections (32768 and up). Judgement."""
_LONGEST_LIST = 1 << 16
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")
_RANGE = re.compile(r"(?P<low>\d{1,9})(?:-(?P<high>\d{1,9}))?")
_ANY_PORT = 9


@dataclass(frozen=True, slots=True)
class Step:
    """A step of Slurm's, as the environment of a watch on one of its hosts shows it.

    ``first`` and ``second`` are the names of its first hosts. ``leads``: this watch is the first one on the first host,
    so it opens the place.
    """

    first: str
    second: str
    port: int
    name: str
    leads: bool

    def own_address(self) -> str:
        """Of the first host itself: its address on the network of the others. Raises ``OSError``."""
        found = _resolved(self.first)
        if not is_loopback(found):
            return found
        # Many systems give their own name a loopback address; the way to another host shows the one to be reached at.
        other = _resolved(self.second)
        with socket.socket(socket.AF_INET6 if ":" in other else socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((other, _ANY_PORT))  # of a datagram socket: nothing is sent
            return str(way.getsockname()[0])


def step_of(environment: Mapping[str, str], host: str) -> Step | None:
    """The step that ``environment`` names; None where it names none of several hosts. ``host``: our own name.

    Example: SLURM_JOB_ID=7, SLURM_STEP_ID=0, SLURM_STEP_NODELIST=n[2-4], SLURMD_NODENAME=n2, SLURM_LOCALID=0 →
    ``Step("n2", "n3", 23719, "7-0", leads=True)``.
    """
    job, step = environment.get("SLURM_JOB_ID", ""), environment.get("SLURM_STEP_ID", "")
    nodes = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
    if not job.isdigit() or len(nodes) > _LONGEST_LIST:
        return None
    names = list(islice(node_names(nodes), 2))
    if len(names) < 2 or not all(map(_NAME.fullmatch, names)):
        return None
    here = environment.get("SLURMD_NODENAME") or host
    return Step(
        first=names[0],
        second=names[1],
        port=_FIRST_PORT + zlib.crc32(f"{job}.{step}".encode()) % _PORTS,
        name=f"{job}-{step}",
        leads=here.partition(".")[0] == names[0].partition(".")[0] and not number(environment.get("SLURM_LOCALID")),
    )


def node_names(text: str) -> Iterator[str]:
    """The names in a list of Slurm's, in its order. Example: 'n[01-02,7],x' → n01, n02, n7, x."""
    depth, begin = 0, 0
    for at, letter in enumerate(f"{text},"):
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            yield from _expanded(text[begin:at])
            begin = at + 1


def _expanded(name: str) -> Iterator[str]:
    before, opened, rest = name.partition("[")
    if not opened:
        if name:
            yield name
        return
    inside, _, after = rest.partition("]")
    for part in inside.split(","):
        found = _RANGE.fullmatch(part)
        if found is None:
            return
        for count in range(int(found["low"]), int(found["high"] or found["low"]) + 1):
            for tail in _expanded(after) if after else ("",):
                yield f"{before}{count:0{len(found['low'])}}{tail}"


def _resolved(host: str) -> str:
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
