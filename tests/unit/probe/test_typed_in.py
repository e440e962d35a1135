"""Code that no file holds: which of it the probe tells, and what the capture makes of it."""

from __future__ import annotations

import linecache
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hangdoc
from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.probe_answers import TypedIn, details
from hangdoc.capture.read.sources import Sources
from hangdoc.model.process import Frame

CELL = "def evaluate(rank):\n    if rank == 1:\n        return\n    dist.barrier()\n"


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    monkeypatch.syspath_prepend(str(Path(hangdoc.__file__).parent / "probe"))
    import hangdoc_probe_typed

    yield hangdoc_probe_typed
    sys.modules.pop("hangdoc_probe_typed", None)


def remember(monkeypatch: pytest.MonkeyPatch, file: str, text: Any, changed: float | None = None) -> None:
    monkeypatch.setitem(linecache.cache, file, (len(str(text)), changed, text, file))


def thread(*files: str) -> tuple[int, Any]:
    top = None
    for file in files:
        top = SimpleNamespace(f_code=SimpleNamespace(co_filename=file), f_back=top)
    return 1, top


def test_lines_without_a_time_of_change_are_told(typed: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(monkeypatch, "/tmp/ipykernel_7/12.py", CELL.splitlines(keepends=True))
    remember(monkeypatch, "/job/train.py", ["pass\n"], changed=12.0)  # a file: the capture reads it itself
    found = typed.typed_in([[["/tmp/ipykernel_7/12.py", 2, "evaluate"]]], [thread("/job/train.py")])
    assert found == [["/tmp/ipykernel_7/12.py", 0, CELL]]
    assert typed.typed_in([], [thread("/job/train.py", "/tmp/ipykernel_7/12.py")]) == found


def test_the_notebooks_number_of_the_cell(typed: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    remember(monkeypatch, "/tmp/ipykernel_7/12.py", [CELL])
    shell = SimpleNamespace(compile=SimpleNamespace(_filename_map={"/tmp/ipykernel_7/12.py": 3}))
    module = SimpleNamespace(InteractiveShell=SimpleNamespace(_instance=shell))
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", module)  # type: ignore[arg-type]
    assert typed.typed_in([], [thread("/tmp/ipykernel_7/12.py")]) == [["/tmp/ipykernel_7/12.py", 3, CELL]]


def test_a_notebook_whose_properties_raise_has_no_numbers(
    typed: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Compiled:
        @property
        def _filename_map(self) -> None:
            raise RuntimeError

    remember(monkeypatch, "<cell>", [CELL])
    module = SimpleNamespace(InteractiveShell=SimpleNamespace(_instance=SimpleNamespace(compile=Compiled())))
    monkeypatch.setitem(sys.modules, "IPython.core.interactiveshell", module)  # type: ignore[arg-type]
    assert typed.typed_in([], [thread("<cell>")]) == [["<cell>", 0, CELL]]


@pytest.mark.parametrize("lines", [None, ("pass",), [7, None], ["x" * 70_000]])
def test_what_is_no_text_is_left_out(typed: types.ModuleType, monkeypatch: pytest.MonkeyPatch, lines: Any) -> None:
    remember(monkeypatch, "<cell>", lines)
    assert all(text == "" for _, _, text in typed.typed_in([], [thread("<cell>")]))


def test_no_more_files_than_an_answer_may_have(typed: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"<cell {number}>" for number in range(typed.MOST_FILES + 1)]
    for file in files:
        remember(monkeypatch, file, ["pass\n"])
    assert len(typed.typed_in([], [thread(*files)])) == typed.MOST_FILES


def test_the_capture_believes_only_rows_of_text() -> None:
    header = {"pid": 7, "rank": 0, "world_size": 2, "parts": []}
    rows = [
        ["<cell>", 3, CELL],
        ["<cell>", 3],
        ["<cell>", 3, 7],
        ["<cell>", "three", "pass"],
        ["<cell>", 1, "x" * 200_000],
    ]
    assert details({**header, "typed_in": rows}, b"").typed_in == (
        TypedIn("<cell>", 3, CELL),
        TypedIn("<cell>", 0, "pass"),
    )
    assert details({**header, "typed_in": "all"}, b"").typed_in == ()


def test_a_cell_is_source_like_any_other() -> None:
    file = "/tmp/ipykernel_7/12.py"
    stack = (Frame(file, 4, "evaluate"),)
    files = ParsedFiles([])
    files.learn([], {file: TypedIn(file, 3, CELL)})
    found = Sources([stack], files)
    (text,), missing = found.of_users()
    (module,), _ = found.of_modules((), time.monotonic() + 60)
    assert (module.file, module.cell, module.text.split("\n")[0]) == (file, 3, text.text.split("\n")[0])
    assert (text.function, text.first_line, text.cell, missing) == ("evaluate", 1, 3, ())
    assert text.lines()[2] == "    if rank == 1:"
