"""Look at one job on many hosts at once: each runs `hangdoc capture`, and what they show becomes one snapshot.

A host that fails or stays silent costs nothing but its own part: it is named in ``JobSnapshot.unavailable``, and its
ranks count as not seen, never as guilty.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from hangdoc.capture.find.job_key import format_key
from hangdoc.capture.find.target import host_name
from hangdoc.capture.request import CaptureOptions
from hangdoc.capture.safe.deadline import Task
from hangdoc.capture.safe.spare_memory import spare_memory
from hangdoc.capture.safe.text import clean
from hangdoc.capture.safe.tool import ToolResult, run_tool
from hangdoc.capture.transports import Transport, fold
from hangdoc.errors import BadSnapshot, CannotLook
from hangdoc.model.codec import Allowance, snapshot_from_bytes
from hangdoc.model.masked import masked
from hangdoc.model.masking import mask_lines
from hangdoc.model.merge import merge
from hangdoc.model.same_job import HOSTS, Part, fitting, variables_of, with_notes
from hangdoc.model.snapshot import JobSnapshot, Unavailable

AT_ONCE = 64
"""Hosts that are asked at the same time, as clush does by default."""
_MOST_BYTES = 16 << 20
"""Of one host. Judgement: eight ranks with 2,000 calls each take 0.2 MB."""
_MOST_CHATTER = 1 << 16
"""Bytes that a login script may write before the snapshot, and that are read of what a host complains. Judgement."""
_SNAPSHOT_BEGINS = b"\x1f\x8b\x08"
_NOT_FOUND = (126, 127)
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class HostsRequest:
    """Which hosts to ask, how, and for which job. ``variables``: what the job's ranks share (see ``job_key``); {}: the
    only job that runs there. ``seconds``: for each host."""

    hosts: Sequence[str]
    transport: Transport
    hangdoc: Sequence[str]
    """The words that start hangdoc there."""
    variables: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 30.0
    options: CaptureOptions = field(default_factory=CaptureOptions)


def snapshot_of_hosts(request: HostsRequest, here: Callable[[], JobSnapshot] | None = None) -> JobSnapshot:
    """The job as all hosts together show it. ``here`` captures this host meanwhile.

    Takes as long as the slowest host, or its deadline. Raises ``CannotLook`` where no host shows anything.
    """
    gate = threading.Semaphore(AT_ONCE)
    room = Allowance(spare_memory())
    asked = {host: Task(_asking(request, host, gate, room)) for host in request.hosts}
    own = [Part(host_name(), here())] if here is not None else []
    rounds = 2 + len(asked) // AT_ONCE
    until = time.monotonic() + rounds * request.seconds
    answers = [_answer(host, task, until) for host, task in asked.items()]
    parts = [*own, *(answer for answer in answers if isinstance(answer, Part))]
    notes = [answer for answer in answers if not isinstance(answer, Part)]
    said = _folded(notes)
    if not parts:
        raise CannotLook(said[0].why if len(said) == 1 else f"no host answered; {said[0].why}", said[0].remedy)
    if here is None:
        parts = _most_common_first(parts)
    kept, foreign, others = fitting(parts)
    said += [
        Unavailable(HOSTS, f"{found.part.origin} shows another job and is left out: {found.why}") for found in foreign
    ]
    return with_notes(merge([part.snapshot for part in kept]), [*said, *others])


def _answer(host: str, task: Task[JobSnapshot], until: float) -> Part | tuple[str, str, str]:
    """The host's part, or (host, why it has none, what would help)."""
    try:
        return Part(host, task.result(until))
    except _SilentError as error:
        return host, error.why, error.remedy
    except TimeoutError:
        return host, "could not be asked in time", ""


class _SilentError(Exception):
    """A host gave no snapshot."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


def _asking(request: HostsRequest, host: str, gate: threading.Semaphore, room: Allowance) -> Callable[[], JobSnapshot]:
    def ask() -> JobSnapshot:
        with gate:
            return _ask(request, host, room)

    return ask


def _ask(request: HostsRequest, host: str, room: Allowance) -> JobSnapshot:
    line = request.transport.command(host, [*request.hangdoc, *_arguments(request)])
    try:
        done = run_tool(line, until=time.monotonic() + request.seconds, most_output=_MOST_BYTES)
    except TimeoutError:
        raise _SilentError(
            f"did not answer within {request.seconds:g} s",
            "its ranks were not seen and are not blamed; see if the host is up, or give it more time: --host-timeout",
        ) from None
    except OSError as error:
        raise _SilentError(f"could not be asked: {line[0]}: {error.strerror or error}") from None
    if done.status:
        raise _failed(done, request)
    if done.cut:
        raise _SilentError(f"sent more than {_MOST_BYTES >> 20} MiB")
    begin = done.output.find(_SNAPSHOT_BEGINS, 0, _MOST_CHATTER)
    try:
        return masked(snapshot_from_bytes(done.output[max(0, begin) :], origin="its answer", allowance=room))
    except BadSnapshot as error:
        raise _SilentError(f"sent no snapshot: {error.what}", "use the same version of hangdoc on all hosts") from None


def _arguments(request: HostsRequest) -> list[str]:
    words = ["capture"]
    if request.variables:
        words += ["--job", format_key(request.variables)]
    if request.options.inject:
        words.append("--inject")
    if request.options.ask_dumps:
        words.append("--ask-dumps")
    if request.options.no_source:
        words.append("--no-source")
    return words


def _failed(done: ToolResult, request: HostsRequest) -> _SilentError:
    """The host's words, masked: hangdoc there gives a line and a remedy, anything else is quoted by its last line."""
    said = done.errors[-_MOST_CHATTER:].decode("utf-8", "backslashreplace").splitlines()
    lines = [line for line in mask_lines(said) if line.strip()]
    own = next((number for number, line in enumerate(lines) if line.startswith("hangdoc: ")), None)
    if own is not None:
        remedy = lines[own + 1].strip() if own + 1 < len(lines) and lines[own + 1].startswith("  ") else ""
        return _SilentError(clean(lines[own].removeprefix("hangdoc: "), _LONGEST), clean(remedy, _LONGEST))
    words = clean(lines[-1].strip(), _LONGEST) if lines else f"{request.transport.name} exits with {done.status}"
    missing = done.status in _NOT_FOUND or "No module named hangdoc" in words or "not found" in words
    return _SilentError(words, "say how hangdoc is started there: --remote-hangdoc 'CMD'" if missing else "")


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
