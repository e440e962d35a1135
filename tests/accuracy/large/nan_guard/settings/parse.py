"""Settings from defaults, a file of `section.name = value` lines, `FORECAST_…` variables and the command line."""

from __future__ import annotations

import argparse
import os
from dataclasses import fields, is_dataclass
from pathlib import Path

from settings.schema import Settings, SettingsError

PREFIX = "FORECAST_"
_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def load(arguments):
    parser = argparse.ArgumentParser(description="Train a forecaster.")
    parser.add_argument("--settings", type=Path, help="a file of settings")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    options = parser.parse_args(arguments)
    settings = Settings()
    if options.settings is not None:
        for name, text in read_lines(options.settings.read_text(encoding="utf-8")):
            put(settings, name, text)
    for variable, text in sorted(os.environ.items()):
        if variable.startswith(PREFIX) and variable != PREFIX:
            put(settings, variable[len(PREFIX) :].lower().replace("__", "."), text)
    for assignment in options.set:
        name, sign, text = assignment.partition("=")
        if not sign:
            raise SettingsError(f"{assignment!r} is not NAME=VALUE")
        put(settings, name.strip(), text.strip())
    if os.environ.get("FIXED") == "1":
        settings.guard.together = True
    settings.check()
    return settings


def read_lines(text):
    """Yield (name, text) of each line that is neither empty nor a comment; a line in brackets opens a section."""
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        line = line.split("#", 1)[0].strip()
        if not line:
            continue
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1].strip()
            continue
        name, sign, value = line.partition("=")
        if not sign:
            raise SettingsError(f"line {number} has no '='")
        name = name.strip()
        yield (f"{section}.{name}" if section else name), value.strip()


def put(settings, name, text):
    """Set one setting by its dotted name. Raises ``SettingsError`` where there is none."""
    owner = settings
    *sections, last = name.split(".")
    for section in sections:
        owner = getattr(owner, section, None)
        if not is_dataclass(owner):
            raise SettingsError(f"no section is called {section!r}")
    known = {each.name for each in fields(owner)}
    if last not in known:
        near = sorted(each for each in known if each[:3] == last[:3])
        raise SettingsError(f"no setting is called {name!r}" + (f"; {', '.join(near)}?" if near else ""))
    old = getattr(owner, last)
    if is_dataclass(old):
        raise SettingsError(f"{name!r} is a section")
    setattr(owner, last, converted(text, old, name))


def converted(text, old, name):
    if isinstance(old, bool):
        if text.lower() not in _WORDS:
            raise SettingsError(f"{name} is true or false, not {text!r}")
        return _WORDS[text.lower()]
    if isinstance(old, (int, float)):
        try:
            return type(old)(text)
        except ValueError as error:
            raise SettingsError(f"{name} is a number, not {text!r}") from error
    return text
