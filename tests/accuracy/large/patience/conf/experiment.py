import configparser
import os
import re

OVERRIDE = re.compile(r"--(?P<section>\w+)\.(?P<key>\w+)=(?P<value>.*)")


class ConfigError(Exception):
    pass


class Experiment:
    """An ini file, overrides from the command line, and typed access."""

    def __init__(self, parser):
        self.parser = parser
        self.sync_losses = os.environ.get("FIXED") == "1"

    @classmethod
    def load(cls, path, argv=()):
        parser = configparser.ConfigParser(interpolation=None)
        if not parser.read(path, encoding="utf-8"):
            raise ConfigError(f"no experiment at {path}")
        for word in argv:
            match = OVERRIDE.fullmatch(word)
            if match is None:
                raise ConfigError(f"cannot read {word!r}; say --section.key=value")
            section, key, value = match.group("section", "key", "value")
            if not parser.has_section(section):
                raise ConfigError(f"no section [{section}]")
            if not parser.has_option(section, key):
                known = ", ".join(sorted(parser[section]))
                raise ConfigError(f"[{section}] has no {key}; it has {known}")
            parser.set(section, key, value)
        return cls(parser)

    def get(self, section, key, default=None):
        if self.parser.has_option(section, key):
            return self.parser.get(section, key)
        if default is None:
            raise ConfigError(f"[{section}] {key} is not set")
        return default

    def int(self, section, key, default=None):
        text = self.get(section, key, default)
        try:
            return int(text)
        except ValueError:
            raise ConfigError(f"[{section}] {key} = {text!r} is no whole number") from None

    def float(self, section, key, default=None):
        text = self.get(section, key, default)
        try:
            return float(text)
        except ValueError:
            raise ConfigError(f"[{section}] {key} = {text!r} is no number") from None

    def words(self, section, key):
        return self.get(section, key, "").split()

    def ints(self, section, key):
        return [int(word) for word in self.words(section, key)]
