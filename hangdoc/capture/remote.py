"""Look at one job on many hosts at once: each runs `hangdoc capture`, and what they show becomes one snapshot.

A host that fails or stays silent costs nothing but its own part: it is named in ``JobSnapshot.unavailable``, and its
ranks count as not seen, never as guilty.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from hangdoc.capture import relay
from hangdoc.capture.asking import MOST_CHATTER, HostsRequest, SilentError, ask
from hangdoc.capture.find.target import host_name
from hangdoc.capture.safe.deadline import Task
from hangdoc.capture.safe.spare_memory import spare_memory
from hangdoc.capture.transports import fold
from hangdoc.errors import BadSnapshot, CannotLook
from hangdoc.model.codec import Allowance, snapshot_from_bytes
from hangdoc.model.masked import masked
from hangdoc.model.merge import merge
from hangdoc.model.same_job import HOSTS, Part, fitting, variables_of, with_notes
from hangdoc.model.snapshot import JobSnapshot, Unavailable

_SNAPSHOT_BEGINS = b"\x1f\x8b\x08"

Answer = Part | tuple[str, str, str]
"""A host's part, or (host, why it has none, what would help)."""


def snapshot_of_hosts(request: HostsRequest, here: Callable[[], JobSnapshot] | None = None) -> JobSnapshot:
    """The job as all hosts together show it. ``here`` captures this host meanwhile.

    Takes as long as the slowest host, or its deadline. Raises ``CannotLook`` where no host shows anything.
    """
    parts, said = parts_of_hosts(request, here)
    if not parts:
        raise CannotLook(said[0].why if len(said) == 1 else f"no host answered; {said[0].why}", said[0].remedy)
    return with_notes(joined(parts, named=here is not None), said)


def parts_of_hosts(
    request: HostsRequest, here: Callable[[], JobSnapshot] | None = None
) -> tuple[list[Part], list[Unavailable]]:
    """(what this host, if ``here`` is given, and each host shows; notes on those that show nothing)."""
    answers = _Asked(request)
    own = [Part(host_name(), here())] if here is not None else []
    found = answers.all()
    parts = [*own, *(answer for answer in found if isinstance(answer, Part))]
    return parts, _folded([answer for answer in found if not isinstance(answer, Part)])


def joined(parts: Sequence[Part], *, named: bool) -> JobSnapshot:
    """The job that the parts show together. ``named``: the first one is of the job; else it is that of most parts."""
    kept, foreign, others = fitting(parts if named else _most_common_first(parts))
    said = [
        Unavailable(HOSTS, f"{found.part.origin} shows another job and is left out: {found.why}") for found in foreign
    ]
    return with_notes(merge([part.snapshot for part in kept]), [*said, *others])


class _Asked:
    """The hosts of a request, asked from now on. Where they are many, the first of each part asks the rest of it; those
    for whom it has no answer are asked from here after all."""

    def __init__(self, request: HostsRequest) -> None:
        self._request = request
        self._gate = threading.Semaphore(max(1, request.at_once))
        self._room = Allowance(spare_memory())
        parts = (
            relay.parts(request.hosts, request.at_once)
            if request.transport.between_hosts
            else [[host] for host in request.hosts]
        )
        rounds = 2 + len(request.hosts) // max(1, request.at_once)
        longest = max((relay.seconds_of(part, request.seconds) for part in parts if len(part) > 1), default=0.0)
        self._until = time.monotonic() + longest + rounds * request.seconds
        self._parts = [(part, Task(self._asking(part))) for part in parts]

    def all(self) -> list[Answer]:
        """The answer of every host, in their order."""
        return [answer for part, task in self._parts for answer in self._of(part, task)]

    def _of(self, part: Sequence[str], task: Task[list[Answer]]) -> list[Answer]:
        try:
            return task.result(self._until + 1.0)
        except TimeoutError:
            return [(host, "could not be asked in time", "") for host in part]

    def _asking(self, part: Sequence[str]) -> Callable[[], list[Answer]]:
        def asked() -> list[Answer]:
            found: dict[str, Answer] = {}
            if len(part) > 1:
                with self._gate:
                    handed = relay.ask_part(self._request, part)
                found = {host: _answer(host, partial(_given, data), self._room) for host, data in handed.items()}
            left = {host: Task(self._one(host)) for host in part if not isinstance(found.get(host), Part)}
            found |= {host: _answer(host, partial(task.result, self._until), self._room) for host, task in left.items()}
            return [found[host] for host in part]

        return asked

    def _one(self, host: str) -> Callable[[], bytes]:
        def asked() -> bytes:
            with self._gate:
                return ask(self._request, host)

        return asked


def _given(answer: bytes | SilentError) -> bytes:
    if isinstance(answer, SilentError):
        raise answer
    return answer


def _answer(host: str, answer: Callable[[], bytes], room: Allowance) -> Answer:
    try:
        data = answer()
        begin = data.find(_SNAPSHOT_BEGINS, 0, MOST_CHATTER)
        return Part(host, masked(snapshot_from_bytes(data[max(0, begin) :], origin="its answer", allowance=room)))
    except SilentError as error:
        return host, error.why, error.remedy
    except BadSnapshot as error:
        return host, f"sent no snapshot: {error.what}", "use the same version of hangdoc on all hosts"
    except TimeoutError:
        return host, "could not be asked in time", ""


def _folded(notes: Sequence[tuple[str, str, str]]) -> list[Unavailable]:
    """One note for all hosts that say the same, the most common first."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for host, why, remedy in notes:
        hosts.setdefault((why, remedy), []).append(host)
    by_count = sorted(hosts.items(), key=lambda item: -len(item[1]))
    return [Unavailable(HOSTS, f"{fold(names)}: {why}", remedy) for (why, remedy), names in by_count]


def _most_common_first(parts: Sequence[Part]) -> list[Part]:
    """Nobody named the job: it is the one that most hosts show."""
    jobs = [tuple(variables_of(part.snapshot).items()) for part in parts]
    count = Counter(jobs)
    order = sorted(range(len(parts)), key=lambda number: (-count[jobs[number]], jobs.index(jobs[number])))
    return [parts[number] for number in order]
