"""A whole job without secrets: nothing leaves a capture, and nothing is shown of a saved one, but through here."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

from hangdoc.model.branches import BranchCounts, Taken
from hangdoc.model.journal import Attribute, Call, Journal, PointToPoint, ProcessGroup
from hangdoc.model.logged import Logged, LogLine
from hangdoc.model.masking import Place, mask_lines, mask_named, mask_text, mask_words
from hangdoc.model.process import Frame, Local, Process, Thread
from hangdoc.model.ran import RanCode
from hangdoc.model.snapshot import JobSnapshot, LogTail, Module, RankSnapshot, SourceText
from hangdoc.model.store import ForeignServer

_T = TypeVar("_T")


def masked(job: _T) -> _T:
    """``job``, or a part of one, with every text in it masked by the rules for its place; itself where there is nothing
    to hide."""
    return _Pass().of(job)


class _Pass:
    def __init__(self) -> None:
        self._known: dict[int, Any] = {}
        """By identity: journals repeat the same ones, and they live as long as the job that is passed through."""

    def of(self, value: _T) -> _T:
        """``value`` masked; the same object where nothing changed."""
        result: Any = self._any(value)
        return result  # type: ignore[no-any-return]

    def _any(self, value: Any) -> Any:
        if isinstance(value, str):
            return mask_text(value)
        if value is None or isinstance(value, (int, float)):
            return value
        if isinstance(value, tuple):
            found = tuple(map(self._any, value))
            return value if all(map(_same, found, value)) else found
        if isinstance(value, (Frame, ProcessGroup)):
            return self._once(value, self._parts)
        return self._parts(value) if dataclasses.is_dataclass(value) else value

    def _once(self, value: Any, way: Callable[[Any], Any]) -> Any:
        known = self._known.get(id(value))
        if known is None:
            known = self._known[id(value)] = way(value)
        return known

    def _parts(self, value: Any) -> Any:
        kind: Any = type(value)
        own = _OWN_WAYS.get(kind, {})
        changed = {}
        for name in _names(kind):
            before = getattr(value, name)
            if not before:
                continue
            if name in own:
                after = own[name](value)
            elif type(before) is str:
                after = mask_text(before)
            else:
                # Thousands of ranks may share one table of stacks, and what else is the same in their journals.
                shared = before and isinstance(before, tuple) and isinstance(value, Journal)
                after = self._once(before, self._any) if shared else self._any(before)
            if after is not before and after != before:
                changed[name] = after
        return dataclasses.replace(value, **changed) if changed else value


def _same(one: object, other: object) -> bool:
    return one is other


@cache
def _names(kind: Any) -> tuple[str, ...]:
    left = _LEFT_ALONE.get(kind, ())
    if left == "*":
        return ()
    fields = kind.__dataclass_fields__.values()
    return tuple(each.name for each in fields if each.name not in left and each.type not in _NUMBERS)


def _variable(item: tuple[str, str]) -> tuple[str, str]:
    return item[0], mask_named(item[0], item[1], Place.VARIABLE)


def _lines(logged: Logged) -> tuple[LogLine, ...]:
    """Its lines, of which several may hold one secret: a private key."""
    found = []
    for line, text in zip(logged.lines, mask_lines([line.text for line in logged.lines]), strict=True):
        file = mask_text(line.file)
        same = (file, text) == (line.file, line.text)
        found.append(line if same else dataclasses.replace(line, file=file, text=text))
    return tuple(found)


_OWN_WAYS: dict[type, dict[str, Callable[[Any], Any]]] = {
    Local: {"value": lambda local: mask_named(local.name, local.value)},
    Attribute: {"value": lambda attribute: mask_named(attribute.name, attribute.value)},
    Logged: {"lines": _lines},
    LogTail: {"lines": lambda log: mask_lines(log.lines)},
    Process: {
        "argv": lambda process: mask_words(process.argv),
        "environment": lambda process: tuple(map(_variable, process.environment)),
    },
    ForeignServer: {"argv": lambda server: mask_words(server.argv)},
    JobSnapshot: {"command": lambda job: mask_words(job.command)},
    RankSnapshot: {
        "environment": lambda rank: tuple(
            (name, mask_named(name, text, Place.VARIABLE)) for name, text in rank.environment
        )
    },
}
_NUMBERS = ("int", "float", "bool", "int | None", "float | None", "bool | None")
# Torch's own words, of which journals hold many thousand; names by which groups and calls find each other; code, whose
# texts were taken out where it was read, and its lines; the kernel's words and numbers.
_LEFT_ALONE: dict[type, str | tuple[str, ...]] = {
    Call: "*",
    PointToPoint: "*",
    ProcessGroup: ("name", "members", "backend"),
    Journal: ("calls", "point_to_points", "counters"),
    RanCode: ("ran", "idle", "tests"),
    BranchCounts: ("values", "counts", "last"),
    Taken: "*",
    SourceText: ("text",),
    Module: ("digest", "text", "marks", "words"),
    Thread: ("state", "wchan", "syscall"),
}
