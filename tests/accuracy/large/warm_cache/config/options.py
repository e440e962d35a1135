"""Options: an INI file beside this module, another one named on the command line, and single values."""

import argparse
import configparser
import os
from pathlib import Path

from config.checks import problems

HERE = Path(__file__).parent
_TRUTH = configparser.ConfigParser.BOOLEAN_STATES


def words_of(text):
    return [word.strip() for word in text.split(",") if word.strip()]


def typed(text):
    """Number, truth, list of such, or text."""
    if "," in text:
        return [typed(word) for word in words_of(text)]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    if text.lower() in _TRUTH and not text.isdigit():
        return _TRUTH[text.lower()]
    return text


def tables_of(parser):
    """{section: {name: value}}; sections ``split:NAME`` are gathered below ``splits``."""
    found = {"splits": {}}
    for section in parser.sections():
        values = {name: typed(text) for name, text in parser.items(section)}
        kind, colon, name = section.partition(":")
        if not colon:
            found[section] = values
        elif kind == "split":
            found["splits"][name] = values
        else:
            raise SystemExit(f"there are no sections [{kind}:…]")
    return found


def apply(parser, assignment):
    name, sign, value = assignment.partition("=")
    section, dot, key = name.rpartition(".")
    if not sign or not dot:
        raise SystemExit(f"{assignment} is not SECTION.NAME=VALUE")
    if not parser.has_section(section):
        raise SystemExit(f"no section [{section}]")
    if not parser.has_option(section, key):
        close = [each for each in parser.options(section) if each.startswith(key[:2])]
        hint = f" ({', '.join(close)}?)" if close else ""
        raise SystemExit(f"[{section}] has no {key}{hint}")
    parser.set(section, key, value)


def read(argv=None):
    command = argparse.ArgumentParser()
    command.add_argument("-c", "--config", type=Path, action="append", default=[])
    command.add_argument("assignments", nargs="*")
    given = command.parse_args(argv)
    parser = configparser.ConfigParser(interpolation=None)
    missing = {str(path) for path in given.config} - set(parser.read([HERE / "tickets.ini", *given.config]))
    if missing:
        raise SystemExit("cannot read " + ", ".join(sorted(missing)))
    for assignment in given.assignments:
        apply(parser, assignment)
    if os.environ.get("FIXED") == "1":
        parser.set("cache", "shared", "no")
    opts = tables_of(parser)
    wrong = problems(opts)
    if wrong:
        raise SystemExit("; ".join(wrong))
    return opts
