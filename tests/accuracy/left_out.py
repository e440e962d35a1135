"""What the diagnosis says of a case, and what it says without one of its mechanisms.

Every function is asked as ever until it first answers something in a case. There the process forks: the child goes on
as if the function had nothing to say, there and from then on, and tells what comes of it. What was done before is done
once, and nothing that was remembered in the one world is seen in the other. A row of a table is left out of the table,
and the case diagnosed anew.
"""

from __future__ import annotations

import builtins
import gc
import gzip
import importlib
import inspect
import itertools
import json
import os
import re
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from mechanisms import PACKAGE, TABLES, Mechanism

from hangdoc import api
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.tables import table

BREAKS = "breaks"
"""What a diagnosis comes to that raises, or takes too long, without a mechanism."""
_SECONDS = 60
"""Of CPU time that a diagnosis without a mechanism may take; hundreds of times what one takes."""
_HOOK = "_hangdoc_wins_"
_MISSING = object()


@dataclass
class Trial:
    """One case: what it says (``whole``), and what it says without each mechanism that answered in it (``without``)."""

    whole: dict[str, Any] = field(default_factory=dict)
    without: dict[str, dict[str, Any] | str] = field(default_factory=dict)


class Trials:
    """The mechanisms of one process, hooked once. Cases are tried in processes forked from it, one a case."""

    def __init__(self, mechanisms: Sequence[Mechanism]) -> None:
        self._rows = [each for each in mechanisms if each.row is not None]
        self._answered: set[str] = set()
        self._left_out = ""
        self._forks = False
        self._trial = Trial()
        self._child: int | None = None
        self._asked: set[tuple[str, str]] = set()
        self._readers: list[types.FunctionType] = []
        functions = [each for each in mechanisms if each.row is None]
        setattr(builtins, _HOOK, [self._hook(each, _function(each)) for each in functions])
        for name in TABLES:
            table(f"{PACKAGE}.frames", name)
        for place, each in enumerate(functions):
            function = _function(each)
            # Its code, not its name: whoever has imported, listed, registered or cached the function asks the hook.
            function.__code__ = eval(f"lambda *args, **named: {_HOOK}[{place}](*args, **named)").__code__
            function.__defaults__ = function.__kwdefaults__ = None
        setattr(builtins, f"{_HOOK}row", self._entry_of)
        for reader in (names, pattern):
            function = _plain(reader)
            self._readers.append(_copy(function))
            function.__code__ = eval(
                f"lambda entry, *, of='names': {_HOOK}row({len(self._readers) - 1}, entry, of)"
            ).__code__
        sys.setrecursionlimit(3 * sys.getrecursionlimit())  # a call is three with its hook
        _forget()
        gc.freeze()  # what is here is shared with all that fork

    def _hook(self, mechanism: Mechanism, function: types.FunctionType) -> Callable[..., Any]:
        original = _copy(function)
        key, code = mechanism.key, function.__code__
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = parameters.index(mechanism.nothing) if mechanism.nothing in parameters else None
        empty = None if given is not None else eval(f"lambda: {mechanism.nothing}")
        default = inspect.signature(original).parameters[mechanism.nothing].default if given is not None else None

        def nothing(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
            if empty is not None:
                return empty()
            assert given is not None
            return args[given] if given < len(args) else named.get(mechanism.nothing, default)

        def asked(*args: Any, **named: Any) -> Any:
            if self._left_out == key:
                return nothing(args, named)
            answer = original(*args, **named)
            if not self._forks or key in self._answered:
                return answer
            none = nothing(args, named)
            if isinstance(answer, Iterator):
                first = next(answer, _MISSING)
                something, answer = first is not _MISSING, itertools.chain([first], answer)
                answer = answer if something else iter(())
            else:
                something = answer is not none and answer != none
            if something:
                self._answered.add(key)
                if self._parts(key):
                    return none
            return answer

        return asked

    def _entry_of(self, reader: int, entry: str, of: str) -> Any:
        """What ``names`` or ``pattern`` says of an entry, which is noted as one that was asked for."""
        self._asked.add((of, entry))
        return self._readers[reader](entry, of=of)

    def _parts(self, key: str) -> bool:
        """Fork, and True in the child; in the parent what came of it is noted."""
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reads)
            signal.setitimer(signal.ITIMER_PROF, _SECONDS)
            self._child, self._left_out, self._forks = writes, key, False
            return True
        os.close(writes)
        with os.fdopen(reads, "rb") as pipe:
            told = pipe.read()
        os.waitpid(child, 0)
        self._trial.without[key] = json.loads(told) if told else BREAKS
        return False

    def _end(self, told: dict[str, Any] | str) -> None:
        """Of a child: tell, and end, whether anybody listens or not."""
        try:
            assert self._child is not None
            os.write(self._child, json.dumps(told).encode())
        finally:
            os._exit(0)

    def try_case(self, job: JobSnapshot, say: Callable[[Diagnosis], dict[str, Any]]) -> Trial:
        """Diagnose in a process that was forked for this one case, and without each mechanism that answers. ``say``:
        what is kept of a diagnosis, as JSON."""
        gc.disable()
        self._forks, self._trial = True, Trial()
        told = _told(job, say)
        if self._child is not None:
            self._end(told)
        if not isinstance(told, dict):
            raise RuntimeError(told)  # noqa: TRY004 - nothing was left out: the case breaks as it is, or with the hooks
        self._trial.whole, self._forks = told, False
        text = "\n".join(_texts(json.loads(gzip.decompress(snapshot_to_bytes(job)))))
        for row in self._rows:
            assert row.row is not None
            table_, section, place = row.row
            asked = place >= 0 or (table_, section) in self._asked
            if asked and occurs(_entry(row), text) and self._parts(row.key):
                _leave_out(row)
                _forget()
                self._end(_told(job, say))
        return self._trial


def apart(do: Callable[[], Any]) -> tuple[int, int]:
    """Do it in a forked process: (what to read its answer from, as JSON; its pid). A process that fails says nothing,
    but why on its standard error."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return reads, child
    try:
        os.close(reads)
        with os.fdopen(writes, "w", encoding="utf-8") as pipe:
            json.dump(do(), pipe)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(0)


def _told(job: JobSnapshot, say: Callable[[Diagnosis], dict[str, Any]]) -> dict[str, Any] | str:
    try:
        return say(api.diagnose(job))
    except Exception as error:
        return f"{BREAKS}: {type(error).__name__}"


def _function(mechanism: Mechanism) -> types.FunctionType:
    """The function object itself, below whatever decorates it."""
    module = importlib.import_module(f"{PACKAGE}.{mechanism.module}".removesuffix(".__init__"))
    *owner, name = mechanism.name.split(".")
    found: Any = vars(getattr(module, owner[0]) if owner else module)[name]
    if isinstance(found, cached_property):
        found = found.func
    elif isinstance(found, property):
        found = found.fget
    elif isinstance(found, (staticmethod, classmethod)):
        found = found.__func__
    return _plain(found)


def _plain(found: Any) -> types.FunctionType:
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    assert isinstance(found, types.FunctionType), found
    return found


def _copy(function: types.FunctionType) -> types.FunctionType:
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    copied.__kwdefaults__ = function.__kwdefaults__
    return copied


def _caches() -> list[Any]:
    """The functions of hangdoc that remember their answers, but for what was read of files."""
    modules = [module for name, module in sys.modules.items() if name.startswith("hangdoc.")]
    found = {id(v): v for module in modules for v in list(vars(module).values()) if hasattr(v, "cache_clear")}
    found.pop(id(table), None)
    return list(found.values())


def _forget() -> None:
    for each in _caches():
        each.cache_clear()


def _entry(row: Mechanism) -> dict[str, Any]:
    assert row.row is not None
    name, section, place = row.row
    content = table(f"{PACKAGE}.frames", name)[section]
    return dict(content[place] if place >= 0 else content)


def _leave_out(row: Mechanism) -> None:
    """Take the row out of the table, as this process holds it; an entry that is asked for by name becomes empty."""
    assert row.row is not None
    name, section, place = row.row
    content = table(f"{PACKAGE}.frames", name)
    if place >= 0:
        del content[section][place]
    else:
        content[section] = {"names": [], "pattern": [r"(?!)"]}


def occurs(entry: dict[str, Any], text: str) -> bool:
    """True if what a row looks for stands in that text."""
    if "file" in entry:
        return entry["file"] in text and any(each == "*" or each in text for each in entry["function"])
    patterns = entry.get("pattern", [])
    patterns = [patterns] if isinstance(patterns, str) else patterns
    named = [*entry.get("names", []), *([entry["name"]] if "name" in entry else [])]
    return any(each in text for each in named) or any(re.search(each, text, re.M | re.I) for each in patterns)


def _texts(value: Any) -> Iterator[str]:
    """All strings of a document."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
