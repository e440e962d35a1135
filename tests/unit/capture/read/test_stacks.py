from __future__ import annotations

import json
import os
import stat
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hangdoc.capture.read import stacks
from hangdoc.capture.read.stacks import is_lock_path
from hangdoc.model.process import Frame, Local, ProcessState, Thread
from hangdoc.model.snapshot import Unavailable


@pytest.mark.parametrize(
    ("printed", "kept"),
    [
        ("5", "5"),
        ("-0.0000000035", "-0.0000000035"),
        ("1e+20", "1e+20"),
        ("True", "True"),
        ("None", "None"),
        ("inf", "inf"),
        ('"hunter2"', "'…'"),
        ('[1, "secret", 2.5, None]', "[1, '…', 2.5, None]"),
        ('{"key": "value", 3: True}', "{'…': '…', 3: True}"),
        ("(1)", "(1)"),
        ("[0, 1, ...]", "[0, 1, ...]"),
        ("<Tensor at 0x7fee4aa1bab0>", "<Tensor>"),
        ("[<a.b.C at 0x7f>, []]", "[<a.b.C>, []]"),
        ('["{"pin": 1234}"]', "[…]"),
        ('["a" 123 "b"]', "[…]"),
        ('{"a": unquoted}', "{…}"),
        ("hunter2", "…"),
        ("12hunter", "…"),
        ("Truest", "…"),
        ("?", "?"),
        ("", ""),
    ],
)
def test_mask(printed: str, kept: str) -> None:
    assert stacks.mask(printed) == kept


@given(st.text(alphabet=st.characters(categories=["L"]), min_size=1))
def test_no_letter_of_a_string_survives(secret: str) -> None:
    for printed in (f'"{secret}"', f'["{secret}"]', f'{{"{secret}": 1}}', f'[1, ["{secret}", 2]]'):
        assert secret not in stacks.mask(printed)


@given(st.text())
def test_mask_takes_any_text(text: str) -> None:
    assert stacks.mask(text).isprintable()


def thread(**changes: Any) -> dict[str, Any]:
    frame = {
        "name": "Trainer.fit",
        "filename": "/home/me/train.py",
        "line": 12,
        "locals": [
            {"name": "step", "repr": "7", "arg": True},
            {"name": "token", "repr": '"hunter2"', "arg": False},
            {"name": "gone", "repr": None, "arg": False},
            {"name": "math", "repr": "<module at 0x7f>", "arg": False},
            {"name": "model", "repr": "<Net at 0x7f>", "arg": False},
            {"name": "__doc__", "repr": "None", "arg": False},
        ],
    }
    return {
        "os_thread_id": 42,
        "thread_id": 140,
        "thread_name": "MainThread",
        "active": False,
        "owns_gil": True,
        "frames": [frame],
    } | changes


def test_parse() -> None:
    (found,) = stacks.parse(json.dumps([thread()]))
    assert (found.tid, found.name, found.python_id, found.active, found.owns_gil) == (
        42,
        "MainThread",
        140,
        False,
        True,
    )
    (frame,) = found.frames
    assert (frame.file, frame.line, frame.function) == ("/home/me/train.py", 12, "Trainer.fit")
    assert frame.locals == (Local("step", "7", True), Local("token", "'…'"), Local("model", "<Net>"))


def test_strings_stay_on_request() -> None:
    (found,) = stacks.parse(json.dumps([thread()]), keep_strings=True)
    assert Local("token", '"hunter2"') in found.frames[0].locals


@pytest.mark.parametrize(
    "document",
    ["", "{}", "[1]", "[{}]", "null", "[[]]", json.dumps([thread(frames=None)]), json.dumps([thread(frames=[{}])])],
)
def test_parse_refuses_rubbish(document: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        stacks.parse(document)


def test_merge_puts_frames_on_their_threads_and_drops_a_forks_past() -> None:
    mine = Frame("/home/me/data.py", 3, "__getitem__")
    entry = Frame("/usr/lib/python3.11/multiprocessing/process.py", 314, "_bootstrap")
    parents = Frame("/home/me/train.py", 31, "step")
    state = ProcessState(0.0, "S", threads=(Thread(42, "python", "S"), Thread(43, "gloo", "S")))
    seen = stacks.PythonThread(42, "MainThread", 140, False, False, (mine, entry, parents))
    merged = stacks.merge(42, state, [seen])
    assert merged.threads[0].frames == (mine, entry)
    assert merged.threads[0].name == "MainThread"
    assert merged.threads[1] == state.threads[1]


def test_threads_of_python_3_10_have_no_kernel_id_of_their_own() -> None:
    """py-spy then gives null, and calls every thread active: glibc's own record of this very thread tells."""
    pthread, tid = threading.get_ident(), threading.get_native_id()
    seen = stacks.parse(json.dumps([thread(os_thread_id=None, thread_id=pthread, thread_name="x", active=True)]))[0]
    found = stacks._identified(os.getpid(), seen)
    assert (found.tid, found.active) == (tid, None)
    for state, active in (("S", False), ("R", True)):
        look = ProcessState(at=0.0, state=state, threads=(Thread(tid, "python", state),))
        merged = stacks.merge(os.getpid(), look, [found])
        assert merged.threads[0].active is active
        assert merged.threads[0].frames
    nobody = stacks._identified(2**22 + 1, seen)
    assert nobody.tid is None


def fake_py_spy(folder: Path, body: str) -> str:
    program = folder / "py-spy"
    program.write_text(f"#!/bin/sh\n{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(program)


def dump_with(monkeypatch: pytest.MonkeyPatch, program: str | None, deadline: float = 5.0) -> object:
    monkeypatch.setattr(stacks, "find_py_spy", lambda: program)
    return stacks.dump([os.getpid()], deadline=deadline)[os.getpid()]


def test_py_spy_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dump_with(monkeypatch, None)
    assert isinstance(found, Unavailable)
    assert "pip install py-spy" in found.remedy


def test_py_spy_not_executable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = dump_with(monkeypatch, str(tmp_path))
    assert isinstance(found, Unavailable)
    assert "could not be started" in found.why


def test_py_spy_hangs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = fake_py_spy(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    began = time.monotonic()
    found = dump_with(monkeypatch, program, 0.5)
    assert isinstance(found, Unavailable)
    assert "in time" in found.why
    assert time.monotonic() - began < 5
    assert not Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists()


@pytest.mark.parametrize(
    ("message", "remedy"),
    [
        ("Error: Permission Denied: Try running again with elevated permissions", "ptrace_scope"),
        ("Error: Failed to find python version from target process", "not Python"),
        ("Error: Failed to find a python interpreter in the .data section", "not started"),
        ("Error: x\n\nCaused by:\n    0: No such file or directory (os error 2)", "gone"),
        ("something new", ""),
        ("", ""),
    ],
)
def test_py_spy_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, message: str, remedy: str) -> None:
    (tmp_path / "message").write_text(message)
    found = dump_with(monkeypatch, fake_py_spy(tmp_path, f"cat {tmp_path}/message >&2; exit 1"))
    assert isinstance(found, Unavailable)
    assert found.why
    assert remedy in found.remedy


def test_a_process_that_moved_meanwhile_is_read_again(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    moved = "Error: Failed to get stack traces: Bad address (os error 14)"
    script = f"test -e {tmp_path}/tried && echo '[]' && exit 0; touch {tmp_path}/tried; echo '{moved}' >&2; exit 1"
    assert dump_with(monkeypatch, fake_py_spy(tmp_path, script)) == ()


def test_py_spy_talks_rubbish(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = dump_with(monkeypatch, fake_py_spy(tmp_path, "echo hello"))
    assert isinstance(found, Unavailable)
    assert "could not be read" in found.why


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('"/data/cache/.index.lock"', True),
        ("'run/data.lck'", True),
        ('"/tmp/lock file with words"', False),
        ('"/data/blocks/7.bin"', False),
        ('"lock"', False),
        ('"/home/me/secret"', False),
    ],
)
def test_the_path_of_a_lock_file_is_kept(text: str, found: bool) -> None:
    assert is_lock_path(text) is found
