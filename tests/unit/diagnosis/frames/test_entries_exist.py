"""The tables against the libraries themselves: what an entry names exists where its source says.

Only libraries that are installed here in the entry's version are checked; none is imported.
"""

from __future__ import annotations

import ast
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Any

import pytest

from hangdoc.diagnosis.frames.names import names
from hangdoc.model.tables import table

SITE = Path(sysconfig.get_path("purelib"))
FOLDERS = {
    "Python": (Path(sysconfig.get_path("stdlib")),),
    "Lightning": (SITE, SITE / "lightning/pytorch", SITE / "pytorch_lightning"),
}
"""Where the paths of a library's files begin, of the interpreter and of a library in two packages."""
LANDMARKS = table("hangdoc.diagnosis.frames", "landmarks")
NAMES = table("hangdoc.diagnosis.frames", "names")
OPERATIONS = table("hangdoc.model", "operations")
C10D = "torch/distributed/distributed_c10d.py"


def installed(library: str) -> str:
    """The installed version of a library; '' where it is missing."""
    if library == "Python":
        return python_version()
    try:
        return version(library.lower())
    except PackageNotFoundError:
        return ""


def needs(source: str) -> None:
    """Skip unless the library of that source, 'torch 2.13, …', is installed in that version."""
    found = re.match(r"([\w-]+) ([\d.]+)\b", source)
    if found is None:
        pytest.skip(f"no version: {source}")
    if not f"{installed(found[1])}.".startswith(f"{found[2]}."):
        pytest.skip(f"{found[0]} is not installed")


@cache
def defined(file: Path) -> frozenset[str]:
    """The functions that a file defines, at whatever depth."""
    nodes = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)))


def files(entry: dict[str, Any]) -> Iterator[Path]:
    """The installed files that an entry is about."""
    library = entry["source"].partition(" ")[0]
    for folder in FOLDERS.get(library, (SITE,)):
        path = folder / entry["file"]
        yield from path.rglob("*.py") if path.is_dir() else [path] if path.exists() else []


@pytest.mark.parametrize(
    "entry",
    [
        *LANDMARKS["landmark"],
        *LANDMARKS["stage"],
    ],
    ids=lambda entry: f"{entry['file']}:{entry['function'][0]}",
)
def test_a_landmark_is_where_its_source_says(entry: dict[str, Any]) -> None:
    needs(entry["source"])
    found = list(files(entry))
    assert found
    known = frozenset().union(*map(defined, found)) if entry["function"] != ["*"] else frozenset("*")
    assert set(entry["function"]) <= known


@pytest.mark.parametrize("entry", OPERATIONS["operation"], ids=lambda entry: entry["names"][0])
def test_an_operation_is_where_its_source_says(entry: dict[str, Any]) -> None:
    needs(entry["source"])
    package = entry["source"].partition(" ")[0]
    found = re.findall(r"[\w/]+\.py", entry["source"])
    if not found:
        pytest.skip("not of a Python file")
    known = frozenset().union(*(defined(SITE / package / file) for file in found))
    assert set(entry["names"]) <= known


@pytest.mark.parametrize("entry", ["group_constructor", "makes_group", "destroys_group", "joins_job"])
def test_functions_of_distributed_c10d_exist(entry: str) -> None:
    needs(NAMES[entry]["source"])
    assert set(names(entry)) <= defined(SITE / C10D)


@pytest.mark.parametrize("entry", ["root_local", "peer_local", "tag_local"])
def test_locals_of_distributed_c10d_are_arguments(entry: str) -> None:
    needs(NAMES[entry]["source"])
    arguments = {node.arg for node in ast.walk(ast.parse((SITE / C10D).read_text())) if isinstance(node, ast.arg)}
    assert set(names(entry)) <= arguments


def test_every_table_says_where_its_entries_come_from() -> None:
    entries = [entry for each in (LANDMARKS, OPERATIONS) for rows in each.values() for entry in rows]
    assert [entry for entry in entries if not entry.get("source")] == []
