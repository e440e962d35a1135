"""Ask one host for its snapshot: run `hangdoc capture` there, and say clearly why nothing came back."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from hangdoc.capture.find.job_key import format_key
from hangdoc.capture.request import CaptureOptions
from hangdoc.capture.safe.text import clean
from hangdoc.capture.safe.tool import ToolResult, run_tool
from hangdoc.capture.transports import Transport
from hangdoc.model.masking import mask_lines

AT_ONCE = 64
"""Hosts that one host asks at the same time, as clush does by default."""
MOST_BYTES = 16 << 20
"""Of one host. Judgement: eight ranks with 2,000 calls each take 0.2 MB."""
MOST_CHATTER = 1 << 16
"""Bytes that a login script may write before the snapshot, and that are read of what a host complains. Judgement."""
_NOT_FOUND = (126, 127)
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class HostsRequest:
    """Which hosts to ask, how, and for which job. ``variables``: what the job's ranks share (see ``job_key``); {}: the
    only job that runs there. ``seconds``: for each host. ``at_once``: hosts that are asked from here at a time; where
    there are more, some of them ask the others."""

    hosts: Sequence[str]
    transport: Transport
    hangdoc: Sequence[str]
    """The words that start hangdoc there."""
    variables: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 30.0
    options: CaptureOptions = field(default_factory=CaptureOptions)
    at_once: int = AT_ONCE


class SilentError(Exception):
    """A host gave no snapshot."""

    def __init__(self, why: str, remedy: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


def ask(
    request: HostsRequest, host: str, more: Sequence[str] = (), *, seconds: float | None = None, most: int | None = None
) -> bytes:
    """What `hangdoc capture` of that host writes, with ``more`` words behind it. Raises ``SilentError``.

    ``most``: bytes that it may write. ``seconds`` and ``most`` None: as for a host that answers for itself.
    """
    seconds = request.seconds if seconds is None else seconds
    most = MOST_BYTES if most is None else most
    line = request.transport.command(host, [*request.hangdoc, *_arguments(request), *more])
    try:
        done = run_tool(line, until=time.monotonic() + seconds, most_output=most)
    except TimeoutError:
        raise SilentError(
            f"did not answer within {seconds:g} s",
            "its ranks were not seen and are not blamed; see if the host is up, or give it more time: --host-timeout",
        ) from None
    except OSError as error:
        raise SilentError(f"could not be asked: {line[0]}: {error.strerror or error}") from None
    if done.status:
        raise _failed(done, request)
    if done.cut:
        raise SilentError(f"sent more than {most >> 20} MiB")
    return done.output


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
    # No shell on the way changes a percent-encoded path.
    words += [word for path in request.options.paths for word in ("--path", quote(os.fsencode(path)))]
    words += [word for mark in request.options.seen for word in ("--seen", mark)]
    if not request.options.live:
        words.append("--only-paths")
    return words


def _failed(done: ToolResult, request: HostsRequest) -> SilentError:
    """The host's words, masked: hangdoc there gives a line and a remedy, anything else is quoted by its last line."""
    said = done.errors[-MOST_CHATTER:].decode("utf-8", "backslashreplace").splitlines()
    lines = [line for line in mask_lines(said) if line.strip()]
    own = next((number for number, line in enumerate(lines) if line.startswith("hangdoc: ")), None)
    if own is not None:
        remedy = lines[own + 1].strip() if own + 1 < len(lines) and lines[own + 1].startswith("  ") else ""
        return SilentError(clean(lines[own].removeprefix("hangdoc: "), _LONGEST), clean(remedy, _LONGEST))
    words = clean(lines[-1].strip(), _LONGEST) if lines else f"{request.transport.name} exits with {done.status}"
    missing = done.status in _NOT_FOUND or "No module named hangdoc" in words or "not found" in words
    if not missing:
        return SilentError(words)
    bring = "; or bring it along: --debug-image IMAGE --container NAME" if request.transport.name == "kubectl" else ""
    return SilentError(words, f"say how hangdoc is started there: --remote-hangdoc 'CMD'{bring}")
