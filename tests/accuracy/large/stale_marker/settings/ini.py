"""Configuration in INI files. A section `[rank 2: data]` holds what differs on one rank."""

from __future__ import annotations

import configparser
import math
import os
import re
from pathlib import Path

DEFAULTS = Path(__file__).with_name("forecast.ini")
_FOR_RANK = re.compile(r"rank (\d+): (\w+)")
_CHANGE = re.compile(r"(\w+)\.(\w+)=(.*)", re.DOTALL)


class ConfigurationError(Exception):
    """The configuration cannot be used; the message says where and why."""


class Configuration:
    """Values by section and name, converted when they are asked for."""

    def __init__(self, parser: configparser.ConfigParser, rank: int) -> None:
        self.parser = parser
        self.rank = rank
        self.asked: set[tuple[str, str]] = set()

    def text(self, section: str, name: str) -> str:
        self.asked.add((section, name))
        own = f"rank {self.rank}: {section}"
        if self.parser.has_option(own, name):
            return self.parser.get(own, name).strip()
        if not self.parser.has_option(section, name):
            raise ConfigurationError(f"[{section}] has no {name}")
        return self.parser.get(section, name).strip()

    def number(self, section: str, name: str) -> float:
        text = self.text(section, name)
        try:
            value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
        except ValueError:
            raise ConfigurationError(f"[{section}] {name} is no number: {text!r}") from None
        if math.isnan(value):
            raise ConfigurationError(f"[{section}] {name} is not a number at all")
        return value

    def integer(self, section: str, name: str) -> int:
        value = self.number(section, name)
        if value != int(value):
            raise ConfigurationError(f"[{section}] {name} is no whole number: {value}")
        return int(value)

    def flag(self, section: str, name: str) -> bool:
        text = self.text(section, name).lower()
        if text not in ("yes", "no", "on", "off"):
            raise ConfigurationError(f"[{section}] {name} is yes or no, not {text!r}")
        return text in ("yes", "on")

    def words(self, section: str, name: str) -> list[str]:
        return [word for word in re.split(r"[,\s]+", self.text(section, name)) if word]

    def unused(self) -> list[str]:
        """Names that nobody has asked for, perhaps misspelled."""
        return [
            f"{section}.{name}"
            for section in self.parser.sections()
            if not _FOR_RANK.fullmatch(section)
            for name in self.parser.options(section)
            if (section, name) not in self.asked
        ]


def read_configuration(arguments: list[str]) -> Configuration:
    """From the defaults, then files and changes `section.name=value` in the order in which they are given."""
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(DEFAULTS.read_text())
    for argument in arguments:
        change = _CHANGE.fullmatch(argument)
        if change is not None:
            section, name, value = change.groups()
            if not parser.has_section(section):
                raise ConfigurationError(f"no section {section}; there are {', '.join(parser.sections())}")
            parser.set(section, name, value)
        elif not parser.read(argument):
            raise ConfigurationError(f"{argument} cannot be read")
    if os.environ.get("FIXED") == "1":
        parser.set("storage", "lease", "600")
    for section in parser.sections():
        for_rank = _FOR_RANK.fullmatch(section)
        if for_rank is not None and not parser.has_section(for_rank[2]):
            raise ConfigurationError(f"[{section}] is about a section that does not exist")
    return Configuration(parser, int(os.environ.get("RANK", "0")))
