"""Settings come from the defaults, a JSON file, the environment and the command line, later ones winning."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

from config.schema import Settings, SettingsError

PREFIX = "TAGGER_"
DEFAULTS = Path(__file__).with_name("defaults.json")


def load_settings(arguments: list[str]) -> Settings:
    parser = argparse.ArgumentParser(description="Train the tagger.")
    parser.add_argument("--config", type=Path, default=DEFAULTS, help="a JSON file with sections")
    parser.add_argument("--set", action="append", default=[], metavar="SECTION.NAME=VALUE", dest="changes")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args(arguments)
    settings = Settings()
    if options.config.exists():
        for section, values in json.loads(options.config.read_text()).items():
            for name, value in values.items():
                put(settings, f"{section}.{name}", value)
    for name, text in sorted(os.environ.items()):
        if name.startswith(PREFIX):
            put(settings, name[len(PREFIX) :].lower().replace("__", "."), text)
    for change in options.changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise SettingsError(f"--set wants SECTION.NAME=VALUE, not {change!r}")
        put(settings, name, text)
    if options.verbose:
        settings.run.verbose = True
    settings.metrics.agree = os.environ.get("FIXED") == "1"
    return settings.check()


def put(settings: Settings, name: str, value: Any) -> None:
    """Set ``section.name``, with a text converted to the type that is there."""
    section, dot, attribute = name.partition(".")
    if not dot or not hasattr(settings, section):
        raise SettingsError(f"no section of the settings for {name!r}")
    target = getattr(settings, section)
    if not hasattr(target, attribute):
        raise SettingsError(f"{section} has no setting {attribute!r}")
    setattr(target, attribute, convert(value, getattr(target, attribute)))


def convert(value: Any, present: Any) -> Any:
    if isinstance(present, tuple):
        words = value.split(",") if isinstance(value, str) else value
        return tuple(word.strip() for word in words if word.strip())
    if not isinstance(value, str):
        return value
    if isinstance(present, bool):
        if value.lower() not in ("0", "1", "true", "false", "yes", "no"):
            raise SettingsError(f"{value!r} is neither true nor false")
        return value.lower() in ("1", "true", "yes")
    if present is None or isinstance(present, float):
        return None if value == "none" else float(value)
    return int(value) if isinstance(present, int) else value
