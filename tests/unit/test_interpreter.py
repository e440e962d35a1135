"""What lies in the working directory is never imported: not by hangdoc, not by the Pythons that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hangdoc import interpreter
from hangdoc.doctor import job, looking
from hangdoc.early_warning import LookAhead

PLANTED = (set(sys.stdlib_module_names) | {"torch", "typer", "psutil", "pydantic", "sitecustomize"}) - {"__main__"}


@pytest.fixture
def trap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a module of every name; who imports one leaves its name in the file ``sprung``."""
    folder = tmp_path / "cwd"
    folder.mkdir()
    for name in PLANTED:
        (folder / f"{name}.py").write_text(f"with open({str(tmp_path / 'sprung')!r}, 'a') as f: f.write('{name} ')\n")
    monkeypatch.chdir(folder)
    return folder


def sprung(trap: Path) -> str:
    path = trap.parent / "sprung"
    return path.read_text() if path.exists() else ""


@pytest.fixture(params=["unset", "empty part", "at the end", "absolute", "link"])
def path(request: pytest.FixtureRequest, trap: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """PYTHONPATH that names the working directory, in each of the ways there are."""
    link = trap.parent / "link"
    link.symlink_to(trap)
    words = {"empty part": "{}:", "at the end": "{}::.", "absolute": f"{trap}:{{}}", "link": f"{link}:{{}}"}
    monkeypatch.delenv("PYTHONPATH", raising=False)
    if request.param in words:
        monkeypatch.setenv("PYTHONPATH", words[request.param].format("/opt/modules"))
    return str(request.param)


def test_a_child_has_all_of_the_path_but_the_working_directory(trap: Path, path: str) -> None:
    code = "import hangdoc, json, re, typing; print(*sys.path, sep='\\n')"
    done = subprocess.run(
        interpreter.command(code, "word"), env=interpreter.environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr, sprung(trap)) == (0, "", "")
    entries = done.stdout.splitlines()
    assert ("/opt/modules" in entries) is (path != "unset")
    assert not any(entry in ("", ".") or os.path.samefile(entry, trap) for entry in entries if os.path.exists(entry))


def test_the_trap_works(trap: Path) -> None:
    subprocess.run([sys.executable, "-c", "import json"], capture_output=True, timeout=60)
    assert sprung(trap) == "json "


def test_a_package_in_the_working_directory_is_ours_if_we_are_that_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout that is run from itself: the working directory comes last instead of first."""
    home = Path(interpreter.__file__).parents[1]
    monkeypatch.chdir(home)
    code = (
        f"import hangdoc, os; print(os.path.dirname(hangdoc.__file__), sys.path.index({str(home)!r}) - len(sys.path))"
    )
    done = subprocess.run(
        interpreter.command(code), env=interpreter.environment(), capture_output=True, text=True, timeout=60
    )
    assert done.stdout.split() == [str(home / "hangdoc"), "-1"]


def test_a_deleted_working_directory_hinders_nobody(tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    code = (
        "import os; os.chdir(sys.argv[1]); os.rmdir(sys.argv[1]); from hangdoc import interpreter;"
        "interpreter.forget_working_directory(); print(interpreter.environment({'PYTHONPATH': ':/opt'}))"
    )
    done = subprocess.run(
        interpreter.command(code, str(tmp_path / "gone")), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "{'PYTHONPATH': '/opt'}"


def _at_start(folder: Path) -> set[str]:
    """What Python itself imports for ``-m`` before the first line of any program: nothing of ours can keep that out."""
    (folder / "nothing.py").write_text("import sys; print(*sys.modules)")
    done = subprocess.run([sys.executable, "-m", "nothing"], cwd=folder, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in done.stdout.split()} | {"sitecustomize", "usercustomize"}


@pytest.mark.parametrize("words", [["explain", "HD102"], ["attach"], ["diagnose", "nothing"]])
@pytest.mark.parametrize("script", [True, False])
@pytest.mark.parametrize("path", ["unset", "empty part"], indirect=True)
def test_the_command_line_imports_nothing_from_there(trap: Path, path: str, words: list[str], script: bool) -> None:
    for name in _at_start(trap.parent):
        (trap / f"{name}.py").unlink(missing_ok=True)
    line = ["-c", "import sys; sys.path.pop(0); from hangdoc.__main__ import main; sys.exit(main())"]
    done = subprocess.run(
        [sys.executable, *(line if script else ["-m", "hangdoc"]), *words], capture_output=True, text=True, timeout=60
    )
    assert sprung(trap) == ""
    assert done.returncode == (3 if words[0] == "diagnose" else 0), done.stderr
    assert "Traceback" not in done.stderr


def test_the_look_ahead_imports_nothing_from_there(trap: Path, path: str) -> None:
    ahead = LookAhead(first=0.0)
    sockets = {0: trap / "0.sock", 1: trap / "1.sock"}
    ahead.tick(sockets, 0.0)
    ahead.tick(sockets, 0.0)
    look = ahead._look
    assert look is not None
    deadline = time.monotonic() + 60
    while look.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert look.communicate()[0] == b"{}"  # it ran to its end: nobody answered
    assert sprung(trap) == ""


@pytest.mark.parametrize("path", ["empty part"], indirect=True)
def test_the_doctor_imports_nothing_from_there(trap: Path, path: str) -> None:
    with looking._stranger() as pid, looking._child() as child:
        assert pid != child
    checks = {check.name: check for check in job.python(sys.executable, dict(os.environ))}
    assert (checks["torch"].state, checks["probe"].state) == ("ok", "ok"), checks
    assert sprung(trap) == ""
