"""How a rank's program ended, by the exception that ended it and by those that this one was raised from."""

from __future__ import annotations

import re

from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.model.process import ProcessExit, Raised
from hangdoc.model.snapshot import RankSnapshot

_LONGEST = 240
"""Characters of an exception's own text in a report; chosen by hand: two or three lines."""


def origin(end: ProcessExit) -> Raised | None:
    """``began_with`` of the exception that ended the program; None where none was seen."""
    return began_with(end.raised)


def began_with(raised: tuple[Raised, ...]) -> Raised | None:
    """The exception that it all began with: the earliest in user code that the first was raised from, or after.

    Not one that the same function answered with another without naming it: that one says more. Example: StepFailed at
    train.py:40 in fit(), raised from the KeyError of data.py:9 → that KeyError; `except KeyError: raise ValueError(…)`
    → the ValueError.
    """
    found = next(iter(raised), None)
    for each in raised[1:]:
        here, there = (next(iter(user_stack(one.stack)), None) for one in (each, found) if one is not None)
        if here is None:
            break
        answered = there is not None and (here.file, here.function) == (there.file, there.function)
        if each.direct or not answered:
            found = each
    return found


def ended_with(end: ProcessExit) -> str:
    """'StepFailed', or 'StepFailed, raised from KeyError' where it was not the first; '' for an end without error."""
    began = origin(end)
    if began is None or not end.exception or began.exception == end.exception:
        return end.exception or ""
    chain = end.raised_from[: end.raised_from.index(began) + 1]
    return f"{end.exception}, raised {'from' if all(each.direct for each in chain) else 'after'} {began.exception}"


def own_words(raised: Raised) -> str:
    """What the exception says, on one line: its first line, or its last where it carries another's traceback."""
    lines = [line.strip() for line in raised.message.splitlines() if line.strip()]
    if not lines:
        return ""
    said = lines[-1] if any("Traceback (most recent call last)" in line for line in lines) else lines[0]
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def ended_well(rank: RankSnapshot) -> bool:
    """True if its process has ended by itself, with status 0 and without an exception."""
    end = rank.exit
    return end is not None and not end.status and not end.signal and not end.exception


def is_echo(end: ProcessExit) -> bool:
    """True if some exception of the chain says that a peer had left, or was waited for too long.

    Such an error is the echo of another rank's end, wherever it was raised again.
    """
    return timed_out(end) or any(_says(each, "lost_peer") for each in end.raised)


def timed_out(end: ProcessExit) -> bool:
    """True if some exception of the chain says that a peer was waited for too long."""
    return any(_says(each, "waited_too_long") for each in end.raised)


def refused_piece(said: str) -> str:
    """'got a piece of 16 bytes and expected 10', by gloo's own words for why it aborted a rank; '' where they name no
    sizes."""
    found = re.search(r"preamble\.length <= op\.nbytes\. (\d{1,18}) vs (\d{1,18})", said)
    return f"got a piece of {found[1]} bytes and expected {found[2]}" if found else ""


def _says(raised: Raised, entry: str) -> bool:
    return any(words in raised.message for words in names(entry))


def exit_text(rank: RankSnapshot) -> str:
    """How the process ended, in words."""
    end = rank.exit
    if end is None:
        return "ended"
    if end.fatal_signal:
        return f"killed by signal {end.fatal_signal}"
    if end.exception:
        return f"ended with {ended_with(end)}"
    if end.status is not None:
        return f"exited with status {end.status}"
    return "ended, status unknown"
