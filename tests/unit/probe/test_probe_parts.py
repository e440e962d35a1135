"""The probe's parts that need no torch: who is a rank, lines of instructions, attributes without user code."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import hangdoc

PROBE = Path(hangdoc.__file__).parent / "probe"
TORCH = "/opt/site-packages/torch/distributed"


@pytest.fixture
def probe(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    monkeypatch.syspath_prepend(str(PROBE))
    for name in ("RANK", "WORLD_SIZE", "HANGDOC_PROBE"):
        monkeypatch.delenv(name, raising=False)
    import hangdoc_probe

    yield hangdoc_probe
    for name in ("hangdoc_probe", "hangdoc_probe_details", "hangdoc_probe_hooks"):
        sys.modules.pop(name, None)


@pytest.fixture
def details(probe: types.ModuleType) -> types.ModuleType:
    import hangdoc_probe_details

    return hangdoc_probe_details


def frames(*places: tuple[str, dict[str, Any]]) -> Any:
    """Frames innermost first."""
    made = None
    for file, values in reversed(places):
        made = types.SimpleNamespace(f_code=types.SimpleNamespace(co_filename=file), f_locals=values, f_back=made)
    return made


USER = ("/home/me/train.py", {"rank": 9, "world_size": 9})
INIT = (f"{TORCH}/distributed_c10d.py", {"rank": -1, "world_size": -1})


def test_a_rank_is_known_by_its_rendezvous(probe: types.ModuleType) -> None:
    stack = frames((f"{TORCH}/rendezvous.py", {"rank": 3, "world_size": 4}), INIT, USER)
    assert probe._identity(stack) == (3, 4)


def test_the_arguments_of_init_process_group_do_where_there_is_no_rendezvous(probe: types.ModuleType) -> None:
    assert probe._identity(frames((f"{TORCH}/distributed_c10d.py", {"rank": 1, "world_size": 2}), USER)) == (1, 2)


def test_an_agent_of_torchrun_is_no_rank(probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "0")  # a nested torchrun's
    stack = frames((f"{TORCH}/elastic/rendezvous/c10d_rendezvous_backend.py", {}), (f"{TORCH}/run.py", {}))
    assert probe._identity(stack) is None


def test_a_function_that_an_agent_launched_is_a_rank(probe: types.ModuleType) -> None:
    launched = (f"{TORCH}/elastic/multiprocessing/api.py", {})
    stack = frames((f"{TORCH}/rendezvous.py", {"rank": 1, "world_size": 2}), INIT, USER, launched)
    assert probe._identity(stack) == (1, 2)
    assert probe._identity(frames(USER, launched)) == (None, None), "its own store, before any group"


def test_a_users_own_store_has_the_environments_rank(probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe._identity(frames(USER)) == (None, None), "a local of the user's says nothing"
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "many")
    assert probe._identity(frames(USER)) == (2, None)


@pytest.mark.parametrize(
    ("value", "number"),
    [(0, 0), ("7", 7), (True, None), (-1, None), ("-1", None), ("x", None), (1.0, None), (None, None), (1 << 40, None)],
)
def test_counts(probe: types.ModuleType, value: object, number: int | None) -> None:
    assert probe.count(value) == number


def test_packed_stacks_give_their_lines(probe: types.ModuleType, details: types.ModuleType) -> None:
    def inner() -> tuple[Any, ...]:
        return (
            None,
            probe.pack_stack(sys._getframe()),
        )

    packed = inner()[1]
    stacks = details._Stacks()
    assert stacks.add(packed) == stacks.add(packed) == 0
    assert stacks.add(None) == -1
    first, second, *_ = stacks.listed[0]
    assert (first[0], first[2]) == (__file__, "inner")
    assert "pack_stack" in Path(__file__).read_text().splitlines()[first[1] - 1]
    assert "inner()" in Path(__file__).read_text().splitlines()[second[1] - 1]


class Loud:
    """Everything that could run user code raises."""

    label: str

    def __init__(self) -> None:
        self.__dict__ |= {
            "on": True,
            "count": 3,
            "secret": "hunter2",
            "ratio": 0.5,
            "none": None,
            "list": [1],
            "big": 1 << 99,
        }

    def __getattribute__(self, name: str) -> Any:
        if name == "__dict__":
            return super().__getattribute__(name)
        raise RuntimeError("user code ran")


def test_attributes_are_plain_values_read_without_user_code(details: types.ModuleType) -> None:
    own = details.instance_names(Loud())
    assert set(details.plain("self", own, {*own, "absent"})) == {
        ("self", "on", "True"),
        ("self", "count", "3"),
        ("self", "secret", "'…'"),
        ("self", "ratio", "0.5"),
        ("self", "none", "None"),
    }
    assert list(details.plain("self", own, {"ratio"})) == [("self", "ratio", "0.5")]


def test_values_are_followed_a_few_attributes_far(details: types.ModuleType) -> None:
    module = types.ModuleType("settings")
    module.EVERY = 5  # type: ignore[attr-defined]
    deep = types.SimpleNamespace(more=types.SimpleNamespace(more=types.SimpleNamespace(every=7), every=3), every=2)
    names = {"settings": module, "args": deep, "loud": Loud(), "cls": Loud}
    found = set(details.plain("", names, {"settings", "EVERY", "args", "more", "every", "loud", "count", "cls"}))
    assert found == {
        ("settings", "EVERY", "5"),
        ("args", "every", "2"),
        ("args.more", "every", "3"),
        ("loud", "count", "3"),
    }
    circle = types.SimpleNamespace()
    circle.me = circle
    assert list(details.plain("", {"circle": circle}, {"circle", "me"})) == []


def test_owners_without_a_dictionary_of_their_own_have_no_attributes(details: types.ModuleType) -> None:
    class Slots:
        __slots__ = ("a",)

    class Property:
        __slots__ = ()

        @property
        def __dict__(self) -> Any:
            raise RuntimeError("user code ran")

    for owner in (Slots(), Property(), 5, None, object()):
        assert details.instance_names(owner) == {}


def test_entry_point_is_quiet_about_everything(
    probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.touch()
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    for folder in ("", "\0", "/nowhere", str(file), str(link), "x" * 5000):
        monkeypatch.setattr(probe.os, "environ", {"HANGDOC_PROBE": folder})
        probe._autoload()
        assert probe.STATE is None
    assert capfd.readouterr() == ("", "")


class _State:
    def __init__(self) -> None:
        self.step = 20
        self.options = types.SimpleNamespace(every=5, name="secret")
        self.plan = _Plan()


class _Plan:
    def __init__(self) -> None:
        self.interval, self.token, self.asked, self.unread = 4, "secret", 7, 1

    def due(self, step: int) -> bool:
        self.asked += 1
        return step % self.interval == 0 and bool(self.token)

    @property
    def over(self) -> bool:
        return self.interval > 100


def _trains(state: _State, looked: list[Any], details: types.ModuleType, roots: tuple[str, ...] = ()) -> int:
    weight, plan = object(), state.plan
    seen = details._seen_by(sys._getframe(), _trains.__code__, roots)
    looked.append({(owner, name): shown for owner, name, shown in seen})
    if plan.due(state.step) and plan.over:
        return -1
    return state.step % state.options.every if state.options.name else id(weight)


def test_attributes_of_locals_are_shown_and_nothing_is_kept(details: types.ModuleType) -> None:
    looked: list[Any] = []
    state = _State()
    before = sys.getrefcount(state)
    assert _trains(state, looked, details) == 0
    assert looked[0]["state", "step"] == "20"
    assert looked[0]["state.options", "every"] == "5"
    assert looked[0]["state.options", "name"] == "'…'"
    assert sys.getrefcount(state) == before


def test_what_methods_read_is_shown_and_what_they_set_is_not(details: types.ModuleType) -> None:
    looked: list[Any] = []
    _trains(_State(), looked, details)
    _trains(_State(), looked, details, (str(Path(__file__).parent) + "/",))
    found = {(owner, name): shown for (owner, name), shown in looked[0].items() if "()" in owner}
    assert found["plan.due()", "interval"] == "4"
    assert found["plan.due()", "token"] == "'…'"
    assert found["plan.over()", "interval"] == "4"
    assert {name for _, name in found} == {"interval", "token"}
    assert not [owner for owner, _ in looked[1] if "()" in owner]  # a library's methods are none of the user's


def test_a_dictionary_of_locals_that_the_job_holds_is_left_alone(details: types.ModuleType) -> None:
    def function() -> dict[str, Any]:
        mine = 3
        held = locals()
        details._locals(sys._getframe(), function.__code__)
        return {**held, "again": mine}

    assert function()["mine"] == 3


def test_a_frame_that_is_being_traced_is_left_alone(details: types.ModuleType) -> None:
    frame = types.SimpleNamespace(f_trace=print, f_locals={"x": 1})
    assert details._locals(frame, _trains.__code__) == {}


class FakeGroup:
    """A process group as far as the hooks look at one."""

    group_name = "0"

    def __init__(self) -> None:
        self.issued = 0

    def _get_sequence_number_for_group(self) -> int:
        return self.issued

    def send(self, _tensors: object, _dstRank: int, _tag: int) -> None:
        self.issued += 1


@pytest.mark.parametrize(("beyond", "newest"), [(-995, None), (0, None), (7, None), (-995, 2)])
def test_a_ring_that_is_full_says_how_much_it_forgot(
    details: types.ModuleType,
    probe: types.ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    beyond: int,
    newest: int | None,
) -> None:
    import hangdoc_probe_hooks

    messages = probe.RING + beyond
    kept = newest or min(messages, probe.RING)

    world = types.SimpleNamespace(pg_names={}, pg_group_ranks={}, pg_map={})
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__version__="2.13.0", __file__=f"{TORCH}/x.py"))
    monkeypatch.setitem(sys.modules, "torch.distributed.distributed_c10d", types.SimpleNamespace(_world=world))
    probe.STATE = probe.State("/nowhere")
    group = FakeGroup()
    send = hangdoc_probe_hooks._point_to_point("send", "dstRank")(FakeGroup.send)
    for _ in range(messages):
        send(group, [], 1, 0)
    header = details.collect(probe.STATE, {}, False, newest)
    assert len(header["point_to_point_calls"]) == kept
    assert header["point_to_point_calls"][-1][2] == messages, "the newest is there"
    assert header["forgotten"] == messages - kept


class _Loud(ValueError):
    def __str__(self) -> str:
        raise AssertionError("code of the user's ran")


class _Value:
    __str__ = __repr__ = _Loud.__str__


def _raised(action: Any) -> BaseException:
    try:
        action()
    except Exception as error:
        return error
    raise AssertionError


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("sample 12"), "sample 12"),
        (KeyError("label"), "'label'"),
        (ValueError(_Value()), ""),
        (ValueError("at", _Value()), "at"),
        (_Loud("no label"), "no label"),
        (RuntimeError("a" * 5000), "a" * 1000 + " … " + "a" * 1000),
        (OSError(2, "No such file", "/none/such"), "2: No such file: '/none/such'"),
        (OSError(2, "No such file", _Value()), "2: No such file"),
        ("no exception", ""),
    ],
    ids=lambda value: str(type(value).__name__),
)
def test_an_exceptions_text_is_shown_without_code_of_the_users(
    details: types.ModuleType, error: object, text: str
) -> None:
    assert details.message_of(error) == text


def test_what_an_exception_was_raised_from_is_told_with_how(details: types.ModuleType) -> None:
    def fail() -> None:
        try:
            try:
                raise KeyError("label")
            except KeyError as error:
                raise ValueError("no label") from error
        except ValueError:
            raise RuntimeError("step failed")  # noqa: B904 - the implicit chain is what is tested

    found = details.raised_from(_raised(fail))
    assert [(name, text, direct) for name, text, _, direct in found] == [
        ("ValueError", "no label", False),
        ("KeyError", "'label'", True),
    ]
    assert all(place[0][2] == "fail" for _, _, place, _ in found)


def test_modules_are_named_by_file_and_none_of_them_is_asked(
    details: types.ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lazy(types.ModuleType):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(name)

    def module(name: str, **names: object) -> types.ModuleType:
        made = types.ModuleType(name)
        made.__dict__.update(names)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    mine = module("mine", __file__="/job/mine.py")
    mine.__class__ = Lazy
    module("theirs", __file__=f"{TORCH}/theirs.py")
    module("compiled", __file__="/job/compiled.so")
    module("odd", __file__=3)
    module("none")
    monkeypatch.setitem(sys.modules, "no_module", None)
    monkeypatch.setattr(details, "library_roots", lambda: ["/opt/site-packages", *sys.path])
    assert details._modules() == ["/job/mine.py"]
    monkeypatch.setattr(details, "MOST_MODULES", 0)
    assert details._modules() == []


def test_folders_that_packages_were_installed_into_are_the_libraries(
    probe: types.ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, inside in (("mine", "mine-1.dist-info"), ("target", "torch-9.dist-info"), ("plain", "train.py")):
        (tmp_path / name / inside).mkdir(parents=True)
    (tmp_path / "run" / "here-1.dist-info").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "run")
    paths = [str(tmp_path / name) for name in ("mine", "target", "plain", "run", "absent")]
    monkeypatch.setattr(sys, "path", [*paths, "run", "/opt/dist-packages", 7])
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__file__="/opt/torch/__init__.py"))
    found = probe.library_roots()
    assert {each for each in found if each.startswith(str(tmp_path))} == {str(tmp_path / "target")}
    assert "/opt/dist-packages" in found
    (tmp_path / "target" / "torch-9.dist-info").rmdir()
    assert probe.library_roots() == found  # nothing is looked at again


def test_what_is_recorded_is_what_the_watch_says(probe: types.ModuleType) -> None:
    from hangdoc.sidecar.options import RECORDABLE, RECORDED, recorded

    assert tuple(what for what in RECORDABLE if probe.records({}, what)) == RECORDED
    assert recorded(None) is None
    settings = {"record": recorded("collectives,lines")}
    assert [what for what in RECORDABLE if probe.records(settings, what)] == ["collectives", "lines"]
