"""What a hypothesis says has happened: its form, and the needs that it explains."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.needs.need import Need, NeedKind
from hangdoc.model.kinds import Word


class FormKind(Word):
    """What has happened to the culprits, or what they did."""

    GONE = "gone"
    """They have ended, by themselves or not, and owe what the others need."""
    STOPPED = "stopped"
    """Something holds them, of which the job has no part: a signal, a debugger, a terminal, the GIL, their own dead
    threads."""
    MISALIGNED = "misaligned calls"
    """They made a call too many, left one out, or made them in another order: ``edit``."""
    UNEQUAL = "unequal arguments"
    """They gave another argument: ``argument``."""
    MISSED = "missed provision"
    """They are past what would have given the others what they need, or never come to it: ``need``."""
    CIRCLE = "circle"
    """Each waits for the next one of them: ``circle``."""
    NEVER_MET = "never met"
    """Ranks have not come together in a group, or a rendezvous."""
    BUSY = "busy"
    """They work, or sleep, or wait for something outside of the job, where the others wait for them."""
    DEVICE = "device"
    """A device or a network does not do its part."""
    UNKNOWN = "unknown"


class EditKind(Word):
    """What the smallest repair does with the calls of the culprits."""

    DELETE = "delete"
    INSERT = "insert"
    REPLACE = "replace"
    MOVE = "move"
    NONE = ""


@dataclass(frozen=True, slots=True)
class Form:
    """What is said of the culprits of one hypothesis."""

    kind: FormKind = FormKind.UNKNOWN
    need: Need | None = None
    """The need of others that they owe, of several the first of the rank that waits; None where none is known."""
    own: Need | None = None
    """What the first of the culprits itself waits for; None where it waits for nothing."""
    edit: EditKind = EditKind.NONE
    """Of misaligned calls."""
    gap: Gap | None = None
    """Where the calls part, where a group's calls do: the token, and what either side issued there."""
    argument: str = ""
    """Of unequal arguments: 'arguments' or 'root'."""
    circle: tuple[NeedKind, ...] = ()
    """What the culprits of a circle wait for, each kind once, in the order of ``NeedKind``."""
