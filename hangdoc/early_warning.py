"""Early warning: look now and then into the journals of a job that moves, for ranks that have diverged for good.

The look runs in a process of its own (`main`, with the words RANK=SOCKET …), so that the sidecar stays small and never
waits for it. The ranks spend some 20 ms each on the answer; the looks become rarer as the job grows old.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from hangdoc import interpreter

FIRST_LOOK = 60.0
"""Seconds until the first look. The interval then doubles, up to ``RAREST_LOOK``."""
RAREST_LOOK = 480.0
"""Three doublings of ``FIRST_LOOK``."""
_LONGEST_LOOK = 20.0
"""Seconds after which a look is ended: six rounds of eight ranks that do not answer in time. Chosen by hand."""
_ANSWER_SECONDS = 3.0
"""Seconds that a rank has to answer; it takes some 20 ms. Chosen by hand."""
_MOST_MEMORY = 3 << 29
"""Bytes of address space. glibc reserves 64 MiB for the heap of each thread (malloc(3), 64 bits), here eight."""


class LookAhead:
    """Schedules the looks. ``tick`` is called once a second and never blocks. Times are monotonic seconds."""

    def __init__(self, first: float = FIRST_LOOK) -> None:
        self._interval = first
        self._next: float | None = None
        self._look: subprocess.Popen[bytes] | None = None
        self._began = 0.0
        self._suspicion: str | None = None
        self._reported: set[str] = set()

    def tick(self, sockets: Mapping[int, Path], now: float) -> str | None:
        """The warning, once for each divergence that two looks in a row have seen; else None."""
        if self._look is not None:
            return self._harvest(self._look, now)
        if self._next is None:
            self._next = now + self._interval
        elif now >= self._next and len(sockets) > 1:
            self._start(sockets, now)
        return None

    def close(self) -> None:
        """End a look that still runs."""
        if self._look is not None:
            self._look.kill()
            self._look.communicate()
            self._look = None

    def _start(self, sockets: Mapping[int, Path], now: float) -> None:
        environment = interpreter.environment()
        environment = {name: value for name, value in environment.items() if not name.startswith("HANGDOC_")}
        words = [f"{rank}={path}" for rank, path in sorted(sockets.items())]
        with contextlib.suppress(OSError):
            self._look = subprocess.Popen(
                interpreter.command("from hangdoc import early_warning; early_warning.main(sys.argv[1:])", *words),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._began = now

    def _harvest(self, look: subprocess.Popen[bytes], now: float) -> str | None:
        if look.poll() is None:
            if now - self._began < _LONGEST_LOOK:
                return None
            look.kill()
        output, _ = look.communicate()
        self._look = None
        found = _read(output)
        key = found.get("key")
        if key is not None and key not in self._reported and key == self._suspicion:
            self._reported.add(key)
            self._next = now + self._interval
            return found.get("text")
        # A new suspicion is checked again soon; a healthy job is left alone for longer each time.
        fresh = key is not None and key not in self._reported
        self._suspicion = key
        self._interval = min(self._interval if fresh else 2 * self._interval, RAREST_LOOK)
        self._next = now + (min(self._interval, FIRST_LOOK) / 4 if fresh else self._interval)
        return None


def _read(output: bytes) -> dict[str, str]:
    try:
        found = json.loads(output)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def look(sockets: Mapping[int, Path]) -> dict[str, str]:
    """Ask the probes at ``sockets`` for their journals; the key and the text of a divergence, or an empty dict."""
    from concurrent.futures import ThreadPoolExecutor

    from hangdoc.capture.read.probe_client import ProbeClient, ProbeDetails
    from hangdoc.diagnosis.early_warning import proved_divergence
    from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

    def ask(item: tuple[int, Path]) -> RankSnapshot | None:
        rank, path = item
        client = ProbeClient(path)
        try:
            answer = client.details(_ANSWER_SECONDS)
        finally:
            client.close()
        return RankSnapshot(rank, "", "probe", journal=answer.journal) if isinstance(answer, ProbeDetails) else None

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(ask, sorted(sockets.items())))
    if None in answers:
        return {}  # without every rank, nothing is proved
    ranks = tuple(answer for answer in answers if answer is not None)
    lead = proved_divergence(JobSnapshot(taken=time.time(), mode="watch", ranks=ranks))
    return {"key": repr(lead.key), "text": lead.text} if lead is not None else {}


def main(words: list[str]) -> None:
    """Print the answer of one look as JSON."""
    from hangdoc.capture.safe.foreign import limit_memory

    limit_memory(_MOST_MEMORY)
    with contextlib.suppress(OSError):
        os.nice(10)
    pairs = (word.partition("=") for word in words)
    sockets = {int(rank): Path(path) for rank, _, path in pairs if rank.isdigit()}
    sys.stdout.write(json.dumps(look(sockets)))
