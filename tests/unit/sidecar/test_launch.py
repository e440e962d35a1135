from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from hangdoc.errors import CannotRun, CommandNotFound, UsageError
from hangdoc.sidecar.launch import PROBE_PATH, child_environment, find_executable


def script(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


def test_found_on_the_path_of_the_environment(tmp_path: Path) -> None:
    tool = script(tmp_path / "tool", "#!/bin/sh\n")
    assert find_executable(["tool", "x"], {"PATH": f"/nowhere:{tmp_path}"}) == str(tool)


def test_a_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert find_executable([sys.executable], {"PATH": ""}) == sys.executable


def test_an_empty_command_line_is_a_usage_error() -> None:
    with pytest.raises(UsageError):
        find_executable([], {})


@pytest.mark.parametrize("name", ["", "no-such-program-anywhere", "/no/such/file"])
def test_not_found(name: str) -> None:
    with pytest.raises(CommandNotFound) as caught:
        find_executable([name], dict(os.environ))
    assert caught.value.exit_status == 127


def test_not_executable(tmp_path: Path) -> None:
    plain = script(tmp_path / "train.py", "print()", 0o644)
    for name, path in ((str(plain), ""), ("train.py", str(tmp_path)), (str(tmp_path), "")):
        with pytest.raises(CannotRun) as caught:
            find_executable([name], {"PATH": path})
        assert caught.value.exit_status == 126


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "{probe}"),
        ("", "{probe}"),
        ("/a:/b", "{probe}:/a:/b"),
        ("{probe}:/a", "{probe}:/a"),
        (":/a", "{probe}::/a"),
        ("{probe}", "{probe}"),
    ],
)
def test_the_probe_comes_first_on_the_python_path_and_once(before: str | None, after: str) -> None:
    probe = str(PROBE_PATH)
    environment = {"HOME": "/root", "RANK": "3"}
    if before is not None:
        environment["PYTHONPATH"] = before.format(probe=probe)
    child = child_environment(environment, Path("/run/sockets"))
    assert child.pop("PYTHONPATH") == after.format(probe=probe)
    assert child.pop("HANGDOC_PROBE") == "/run/sockets"
    environment.pop("PYTHONPATH", None)
    assert child == environment


def test_the_probe_is_where_we_say() -> None:
    assert (PROBE_PATH / "hangdoc_probe.py").is_file()
