"""Settings out of profiles, JSON files and `--section.name value` words."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from settings.model import RunSettings

PROFILES: dict[str, dict[str, Any]] = {
    "quick": {"fit": {"steps": 10, "judge_every": 5}, "storage": {"records": 60}},
    "dim": {"feed": {"shade": 0.5, "cut": 0.0}},
    "strict": {"storage": {"verify": True}, "fit": {"clip": 1.0, "smooth": 0.0}},
}


class SettingsError(SystemExit):
    """A word of the command line, or a value, that means nothing."""


def pairs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """(name, value) of each option; a flag alone counts as true."""
    waiting: str | None = None
    for word in words:
        match word.startswith("--"), waiting:
            case True, None:
                waiting = word[2:]
            case True, str(flag):
                yield flag, "true"
                waiting = word[2:]
            case False, str(name):
                yield name, word
                waiting = None
            case _:
                raise SettingsError(f"{word!r} belongs to no option")
        if waiting and "=" in waiting:
            name, _, value = waiting.partition("=")
            yield name, value
            waiting = None
    if waiting is not None:
        yield waiting, "true"


def parsed(text: Any, like: Any, name: str) -> Any:
    """The value of a text in the type of the present value."""
    if not isinstance(text, str):
        return tuple(text) if isinstance(like, tuple) else text
    try:
        match like:
            case bool():
                return {"true": True, "false": False}[text.lower()]
            case Enum():
                return type(like)(text.lower())
            case int() | float():
                return type(like)(text)
            case tuple():
                return tuple(int(each) for each in text.split(",") if each)
    except (KeyError, ValueError):
        raise SettingsError(f"{name} cannot be {text!r}") from None
    return text


def overlaid(node: Any, over: Mapping[str, Any], path: str = "") -> Any:
    """The tree with some of its leaves replaced. Raises ``SettingsError`` for names that it lacks."""
    known = {each.name for each in dataclasses.fields(node)}
    changes: dict[str, Any] = {}
    for name, value in over.items():
        where = f"{path}{name}"
        if name not in known:
            raise SettingsError(f"there is no setting {where}; here are {', '.join(sorted(known))}")
        present = getattr(node, name)
        if dataclasses.is_dataclass(present):
            if not isinstance(value, Mapping):
                raise SettingsError(f"{where} is a section")
            changes[name] = overlaid(present, value, f"{where}.")
        else:
            changes[name] = parsed(value, present, where)
    return dataclasses.replace(node, **changes)


def checked(settings: RunSettings) -> RunSettings:
    """The same settings. Raises ``SettingsError`` where they do not fit together."""
    feed, fit, storage = settings.feed, settings.fit, settings.storage
    wrong = [
        text
        for text, bad in (
            ("a batch is larger than a pack", feed.batch > storage.records),
            ("the queue needs room for one batch", feed.depth < 1),
            ("a share is not between 0 and 1", any(not 0 <= share <= 1 for share in (feed.flip, feed.shade, feed.cut))),
            ("drops must rise", list(fit.drops) != sorted(set(fit.drops))),
            ("pool is mean or max", settings.vision.pool not in ("mean", "max")),
        )
        if bad
    ]
    if wrong:
        raise SettingsError("; ".join(wrong))
    return settings


def gather(words: Sequence[str]) -> RunSettings:
    """The settings of a run."""
    settings = RunSettings()
    for name, value in pairs(words):
        if name == "profile":
            if value not in PROFILES:
                raise SettingsError(f"no profile {value!r}")
            settings = overlaid(settings, PROFILES[value])
        elif name == "file":
            settings = overlaid(settings, json.loads(Path(value).read_text(encoding="utf-8")))
        else:
            change: Any = value
            for part in reversed(name.replace("-", "_").split(".")):
                change = {part: change}
            settings = overlaid(settings, change)
    if os.environ.get("FIXED") == "1":
        settings = overlaid(settings, {"quota": {"unit": "records"}})
    return checked(settings)
