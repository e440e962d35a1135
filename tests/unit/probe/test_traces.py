"""What objects have counted and collected, as the probe reads it: without user code, within bounds."""

from __future__ import annotations

import sys
import types
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import hangdoc

PROBE = Path(hangdoc.__file__).parent / "probe"


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[types.ModuleType, types.ModuleType]]:
    monkeypatch.syspath_prepend(str(PROBE))
    import hangdoc_probe_details
    import hangdoc_probe_traces

    yield hangdoc_probe_traces, hangdoc_probe_details
    for name in ("hangdoc_probe_details", "hangdoc_probe_traces", "hangdoc_probe_tasks", "hangdoc_probe_typed"):
        sys.modules.pop(name, None)


@dataclass
class Outcome:
    rows: int = 0
    failures: list[int] = field(default_factory=list)


class Watch:
    def __init__(self) -> None:
        self.spikes: deque[int] = deque([1, 2])
        self.reasons = Counter({"short": 2, "of the job's data": 5})
        self.stopped = False

    def note(self) -> None:
        self.reasons["short"] += 1

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            return super().__getattribute__(name)
        raise RuntimeError("user code ran")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("user code ran")

    __hash__ = None  # type: ignore[assignment]


class Loud(list[int]):
    def __len__(self) -> int:
        raise RuntimeError("user code ran")


class Engine:
    def __init__(self) -> None:
        self.outcome = Outcome(3, [7])
        self.callbacks = [Watch()]
        self.loud = Loud()
        self.model = object()
        self.me = self
        self.secret = "hunter2"
        self.tables: dict[str, Any] = defaultdict(int)


def looked(probe: tuple[types.ModuleType, types.ModuleType], roots: list[str]) -> list[list[str]]:
    traces, details = probe
    engine = Engine()
    results = [1, 2, 3]
    stack = [sys._getframe()]
    found: list[list[str]] = traces.traces([stack], details._locals, details.instance_names, roots)
    assert engine is not None
    assert results is not None
    return found


def test_counters_flags_and_sizes_are_read_without_user_code(
    probe: tuple[types.ModuleType, types.ModuleType],
) -> None:
    rows = looked(probe, [])
    found = {(kind, owner, name): value for _, kind, owner, name, value in rows}
    assert found["looked", "", "len(results)"] == "3"
    assert found["Outcome", "engine.outcome", "rows"] == "3"
    assert found["Outcome", "engine.outcome", "len(failures)"] == "1"
    assert found["Watch", "engine.callbacks[]", "len(spikes)"] == "2"
    assert found["Watch", "engine.callbacks[]", "stopped"] == "False"
    assert found["Engine", "engine", "len(tables)"] == "0"
    assert found["Engine", "engine", "secret"] == "'…'"
    # Under a key that the code spells out, and by its place there: the others are the job's data.
    keys = [(name, value) for (kind, _, name), value in found.items() if kind == "Watch" and "[" in name]
    assert [value for _, value in keys] == ["2"]
    assert not [row for row in rows if "hunter2" in str(row) or "short" in str(row) or "data" in str(row)]
    assert ("Engine", "engine", "len(loud)") not in found


def test_classes_of_libraries_are_left_alone(probe: tuple[types.ModuleType, types.ModuleType]) -> None:
    assert looked(probe, [str(Path(__file__).parent)]) == []


def test_an_answer_stays_within_its_bounds(
    probe: tuple[types.ModuleType, types.ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe[0], "MOST_TRACES", 5)
    assert len(looked(probe, [])) <= 5
