"""A small language: `name: value`, sections by indentation, `#` for remarks."""

from __future__ import annotations

import os
import re
from pathlib import Path

from plan.config import Config

_ENTRY = re.compile(r"(?P<indent> *)(?P<name>[\w -]+?) *: *(?P<value>.*)")

Table = dict[str, "str | Table"]


def parse(text: str) -> Table:
    table: Table = {}
    section: Table = table
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.partition("#")[0].rstrip()
        if not line:
            continue
        match = _ENTRY.fullmatch(line)
        if match is None:
            raise ValueError(f"line {number}: {raw!r} is no entry")
        name, value = match["name"], match["value"]
        if not match["indent"]:
            section = table
        elif section is table:
            raise ValueError(f"line {number}: indented, but below no section")
        if value:
            section[name] = value
        else:
            section = {}
            table[name] = section
    return table


def number(table: Table, name: str) -> int:
    match table.get(name):
        case str(value) if value.isdigit():
            return int(value)
        case None:
            raise ValueError(f"{name} is not set")
        case other:
            raise ValueError(f"{name} is no number: {other!r}")


def section(table: Table, name: str) -> dict[str, str]:
    match table.get(name, {}):
        case dict(found):
            return {key: value for key, value in found.items() if isinstance(value, str)}
        case other:
            raise ValueError(f"{name} is a section, not {other!r}")


def places(text: str) -> frozenset[tuple[int, int]]:
    """{(3, 1)} of '3.1': micro-batch 1 of step 3."""
    found = set()
    for word in text.split(","):
        step, dot, micro = word.strip().partition(".")
        if dot and step.isdigit() and micro.isdigit():
            found.add((int(step), int(micro)))
        elif word.strip():
            raise ValueError(f"{word!r} is no STEP.MICRO")
    return frozenset(found)


def read_config(path: Path, words: list[str]) -> Config:
    table = parse(path.read_text(encoding="utf-8"))
    for word in words:
        name, sign, value = word.removeprefix("--").partition("=")
        if not sign or name not in table or not isinstance(table[name], str):
            raise ValueError(f"{word!r} sets nothing that {path.name} has")
        table[name] = value
    lengths, memory, speed = section(table, "lengths"), section(table, "memory"), section(table, "speed")
    config = Config(
        stages=number(table, "stages"),
        replicas=number(table, "replicas"),
        steps=number(table, "steps"),
        micro_batches=number(table, "micro-batches"),
        samples=number(table, "samples"),
        width=number(table, "width"),
        vocabulary=number(table, "vocabulary"),
        rate=float(str(table["rate"])),
        momentum=float(str(table.get("momentum", "0"))),
        seed=number(table, "seed"),
        folder=str(table.get("folder", "out")),
        archive_every=number(table, "archive-every"),
        usual_length=int(lengths["usual"]),
        long_length=int(lengths["long"]),
        long_at=places(lengths.get("long-at", "")),
        memory={name: int(value) for name, value in memory.items()},
        slow_factor=float(speed.get("slow-factor", "3")),
        book_once=os.environ.get("FIXED") == "1",
    )
    config.check()
    return config
