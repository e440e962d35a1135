import json
import os
from pathlib import Path
from typing import Any

from setup.options import Options, from_table, problems

_DEEPEST = 5


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """``above`` over ``below``; tables are merged, everything else replaced."""
    found = dict(below)
    for key, value in above.items():
        both = isinstance(value, dict) and isinstance(found.get(key), dict)
        found[key] = merged(found[key], value) if both else value
    return found


def read_table(path: Path, depth: int = 0) -> dict[str, Any]:
    if depth > _DEEPEST:
        raise ValueError(f"{path}: options extend each other too deeply")
    table = json.loads(path.read_text())
    parent = table.pop("extends", None)
    return merged(read_table(path.parent / parent, depth + 1), table) if parent else table


def parse_word(word: str) -> dict[str, Any]:
    """{'save': {'every': 20}} of 'save.every=20'."""
    path, sign, text = word.partition("=")
    if not sign:
        raise ValueError(f"{word!r} is not name=value")
    try:
        value: Any = json.loads(text)
    except json.JSONDecodeError:
        value = text
    for name in reversed(path.split(".")):
        value = {name: value}
    return value


def read_options(path: Path, words: list[str]) -> Options:
    table = read_table(path)
    for word in words:
        table = merged(table, parse_word(word))
    options = from_table(table)._replace(share_usage=os.environ.get("FIXED") == "1")
    wrong = problems(options)
    if wrong:
        raise ValueError("; ".join(wrong))
    return options
