"""Which of c10d's recorders the probe asks, on torches that have one for all hooked backends, and one for each."""

from __future__ import annotations

import json
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hangdoc

PROBE = Path(hangdoc.__file__).parent / "probe"


class Recorders:
    """c10d's module: the dump functions and a group's backends. ``asked``: what was dumped, in order."""

    def __init__(self, *, by_backend: bool, own: tuple[str, ...] = ()) -> None:
        self.asked: list[str] = []
        if by_backend:
            self._dump_fr_trace_json = self._of_a_backend
        else:
            self._dump_fr_trace_json = self._of_all
        for name in own:
            setattr(self, f"_dump_{name}_trace_json", lambda *_, name=name: self._dumped(f"own {name}"))
        self.Backend = types.SimpleNamespace(name=lambda backend: backend.called)
        self.ProcessGroup = types.SimpleNamespace(
            _device_types=types.SimpleNamespace(__get__=lambda group: list(group.backends)),
            _get_backend=lambda group, device: group.backends[device],
        )

    def _of_all(self, _collectives: bool, _active: bool) -> bytes:
        return self._dumped("common")

    def _of_a_backend(self, _collectives: bool, _active: bool, backend: str = "gloo") -> bytes:
        return self._dumped(backend)

    def _dumped(self, name: str) -> bytes:
        self.asked.append(name)
        return json.dumps({"of": name}).encode()


class Made:
    """A backend that C++ made."""

    def __init__(self, called: str) -> None:
        self.called = called


class Named(Made):
    """A backend that the user wrote in Python."""

    def getBackendName(self) -> str:
        raise RuntimeError("user code ran")


class Group:
    def __init__(self, **backends: Made) -> None:
        self.backends = backends


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    monkeypatch.syspath_prepend(str(PROBE))
    import hangdoc_probe
    import hangdoc_probe_recorders

    yield hangdoc_probe_recorders
    del hangdoc_probe
    for name in ("hangdoc_probe", "hangdoc_probe_recorders"):
        sys.modules.pop(name, None)


def asked(
    probe: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    c10d: Recorders,
    *groups: tuple[str, Group],
    state: Any = None,
) -> tuple[list[str], Any]:
    """(what the probe asks for once, the probe's state afterwards). ``groups``: backend as asked for, the group."""
    world = types.SimpleNamespace(pg_map={group: (backend, None) for backend, group in groups})
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", types.SimpleNamespace(_world=world))
    monkeypatch.setattr(probe, "c10d", lambda: c10d)
    state = state or sys.modules["hangdoc_probe"].State("")
    state.groups.update({str(at): ([], "", backend, None) for at, (backend, _) in enumerate(groups)})
    c10d.asked.clear()
    parts = probe.recorded(state, "_dump_%s_trace_json", False, False)
    assert [json.loads(part)["of"] for part in parts] == c10d.asked
    return c10d.asked, state


def test_each_hooked_backend_is_asked_by_the_name_that_it_gives_itself(
    probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    c10d = Recorders(by_backend=True, own=("nccl",))
    mixed = Group(cpu=Made("gloo"), cuda=Made("nccl2"))
    found, state = asked(probe, monkeypatch, c10d, ("cpu:gloo,cuda:nccl", mixed), ("ucc", Group(cpu=Made("ucc"))))
    assert found == ["gloo", "own nccl", "nccl2", "ucc"]
    # A rank that ends has destroyed its groups; what they recorded is still there.
    assert asked(probe, monkeypatch, c10d, state=state)[0] == ["gloo", "own nccl", "nccl2", "ucc"]


def test_no_recorder_is_made_for_a_backend_that_records_itself_or_nothing(
    probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    c10d = Recorders(by_backend=True, own=("nccl", "xccl"))
    groups = [("gloo", Group(cpu=Made("gloo"))), ("fake", Group(cpu=Made("fake")))]
    assert asked(probe, monkeypatch, c10d, *groups)[0] == ["gloo"]
    groups += [("nccl-legacy", Group(cuda=Made("nccl"))), ("xccl", Group(xpu=Made("xccl")))]
    assert asked(probe, monkeypatch, c10d, *groups)[0] == ["gloo", "own nccl", "own xccl"]


def test_a_torch_with_one_recorder_for_all_is_asked_once_as_ever(
    probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    c10d = Recorders(by_backend=False, own=("nccl",))
    groups = [("cpu:gloo,cuda:nccl", Group(cpu=Made("gloo"), cuda=Made("nccl"))), ("ucc", Group(cpu=Made("ucc")))]
    found, state = asked(probe, monkeypatch, c10d, *groups)
    assert found == ["common", "own nccl"]
    assert state.backends is None  # and it is not tried again
    assert asked(probe, monkeypatch, c10d, *groups, state=state)[0] == ["common", "own nccl"]


def test_a_users_backend_is_not_asked_for_its_name(probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    c10d = Recorders(by_backend=True)
    c10d.Backend = types.SimpleNamespace(name=lambda backend: backend.getBackendName())
    assert asked(probe, monkeypatch, c10d, ("board", Group(cpu=Named(""))))[0] == ["gloo", "board"]


def test_an_answer_has_no_more_parts_than_the_capture_takes(
    probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hangdoc.capture.read import probe_answers

    c10d = Recorders(by_backend=True, own=("nccl", "xccl"))
    names = ["nccl", "xccl", *(f"b{number}" for number in range(20))]
    found, _ = asked(probe, monkeypatch, c10d, *((name, Group(cpu=Made(name))) for name in names))
    assert len(found) == probe_answers._MOST_PARTS
