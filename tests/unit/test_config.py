from __future__ import annotations

import os
import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from hangdoc import config
from hangdoc.cli import _FileOptions
from hangdoc.errors import UsageError


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_options_are_read_under_their_parameter_names(tmp_path: Path) -> None:
    project(
        tmp_path,
        '[tool.hangdoc]\nstall-after = 60\ngive_up_after = 1.5\nreport = "a.json"\nquiet = true\non-hang = "abort"\n',
    )
    assert config.from_file(tmp_path) == {
        "stall_after": 60,
        "give_up_after": 1.5,
        "report": ["a.json"],
        "quiet": True,
        "on_hang": "abort",
    }


def test_durations_have_units(tmp_path: Path) -> None:
    project(tmp_path, "[tool.hangdoc]\nstall-after = '5m'\ngive-up-after = '1h30m'\nkeep = 20\ncolor = 'never'\n")
    assert config.from_file(tmp_path) == {"stall_after": 300, "give_up_after": 5400, "keep": 20, "color": "never"}


def test_the_nearest_file_counts_alone(tmp_path: Path) -> None:
    project(tmp_path, "[tool.hangdoc]\nquiet = true\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    assert config.from_file(below) == {"quiet": True}
    project(tmp_path / "a", "[project]\nname = 'x'\n")
    assert config.from_file(below) == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.hangdoc]\nstal-after = 3\n", "unknown option 'stal-after'"),
        ("[tool.hangdoc]\nstall-after = '3'\n", "wrong type"),
        ("[tool.hangdoc]\nstall-after = true\n", "wrong type"),
        ("[tool.hangdoc]\nstall-after = '5 minutes'\n", "no duration"),
        ("[tool.hangdoc]\nstall-after = '10ms'\n", "the least is"),
        ("[tool.hangdoc]\nkeep = 0\n", "the least is 1"),
        ("[tool.hangdoc]\nkeep = true\n", "wrong type"),
        ("[tool.hangdoc]\ncolor = 'red'\n", "auto, always or never"),
        ("[tool.hangdoc]\nquiet = 1\n", "wrong type"),
        ("[tool.hangdoc]\nreport = [1]\n", "file names"),
        ("[tool.hangdoc]\nstall-after = -1\n", "the least is"),
        ("[tool.hangdoc]\ngive-up-after = nan\n", "the least is"),
        ("[tool.hangdoc]\non-hang = 'explode'\n", "either report or abort"),
        ("[tool.hangdoc]\nreport = 'a.pdf'\n", "a.pdf"),
        ("[tool.hangdoc\n", "not valid TOML"),
        ("[tool.hangdoc]\nx = " + 5000 * "[" + 5000 * "]", "nested too deeply"),
        (f"[tool.hangdoc]\nx = {5000 * '1'}", "not valid TOML"),
        ("tool.hangdoc = 3\n", "not a table"),
    ],
)
def test_mistakes_are_told(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        config.from_file(project(tmp_path, text))


@pytest.mark.parametrize("text", ["", "not [ toml", "[tool]\nother = 1\n", "tool = 3\n"])
def test_a_file_that_is_not_ours_is_left_alone(text: str, tmp_path: Path) -> None:
    assert config.from_file(project(tmp_path, text)) == {}


def told(folder: Path) -> str:
    """What is said of the file; nothing of it is used."""
    lines: list[str] = []
    assert config.from_file(folder, lines.append) == {}
    assert len(lines) == 1, lines
    return lines[0].replace(str(folder), ".")


def test_a_file_that_others_could_have_written_is_ignored(tmp_path: Path) -> None:
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    path = project(tmp_path, "[tool.hangdoc]\nquiet = true\n") / "pyproject.toml"
    path.chmod(0o646)
    assert told(tmp_path) == "[tool.hangdoc] of ./pyproject.toml is ignored: others may write to ./pyproject.toml"
    path.chmod(0o644)
    (tmp_path / "a").chmod(0o777)
    assert f"others may write to {tmp_path}/a" in told(below)
    (tmp_path / "a").chmod(0o755)
    assert config.from_file(below) == {"quiet": True}


def test_the_owners_private_group_is_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project(tmp_path, "[tool.hangdoc]\nquiet = true\n") / "pyproject.toml"
    path.chmod(0o664)
    status = path.stat()
    owner = SimpleNamespace(pw_name="ann", pw_gid=status.st_gid)
    monkeypatch.setattr(config.pwd, "getpwuid", lambda number: owner)

    def group(name: str, *members: str) -> None:
        found = SimpleNamespace(gr_name=name, gr_gid=status.st_gid, gr_mem=[*members])
        monkeypatch.setattr(config.grp, "getgrgid", lambda number: found)

    for private in ((), ("ann",)):
        group("ann", *private)
        assert config.from_file(tmp_path) == {"quiet": True}
    for name, members in (("ann", ("ann", "bob")), ("users", ()), ("ann", ("bob",))):
        group(name, *members)
        assert "others may write" in told(tmp_path)
    group("ann")
    owner.pw_gid += 1
    assert "others may write" in told(tmp_path)


def test_an_access_list_makes_the_private_group_a_public_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = project(tmp_path, "[tool.hangdoc]\nquiet = true\n") / "pyproject.toml"
    path.chmod(0o664)
    everybody = [(1, 6, 0xFFFFFFFF), (2, 6, 65534), (4, 4, 0xFFFFFFFF), (16, 6, 0xFFFFFFFF), (32, 4, 0xFFFFFFFF)]
    entries = b"".join(struct.pack("<HHI", *entry) for entry in everybody)
    try:
        os.setxattr(path, "system.posix_acl_access", struct.pack("<I", 2) + entries)
    except OSError:
        pytest.skip("this file system keeps no access lists")
    user = SimpleNamespace(pw_name="ann", pw_gid=path.stat().st_gid)
    monkeypatch.setattr(config.pwd, "getpwuid", lambda number: user)
    group = SimpleNamespace(gr_name="ann", gr_gid=user.pw_gid, gr_mem=[])
    monkeypatch.setattr(config.grp, "getgrgid", lambda number: group)
    assert "others may write" in told(tmp_path)


@pytest.mark.parametrize("make", ["link", "fifo", "folder"])
def test_what_is_no_plain_file_is_neither_followed_nor_waited_for(tmp_path: Path, make: str) -> None:
    path = tmp_path / "pyproject.toml"
    if make == "link":
        (tmp_path / "real").write_text("[tool.hangdoc]\nquiet = true\n")
        path.symlink_to("real")
    elif make == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert "is a link or no regular file" in told(tmp_path)


def test_a_file_without_end_is_ignored(tmp_path: Path) -> None:
    with (project(tmp_path, "[tool.hangdoc]\n") / "pyproject.toml").open("a") as file:
        file.truncate(10 << 30)
    assert "has more than" in told(tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_strangers_file_is_ignored(tmp_path: Path) -> None:
    path = project(tmp_path, "[tool.hangdoc]\nquiet = true\n") / "pyproject.toml"
    os.chown(path, 65534, 65534)
    assert "pyproject.toml belongs to " in told(tmp_path)
    path.write_text("[project]\nname = 'x'\n")
    lines: list[str] = []
    assert (config.from_file(tmp_path, lines.append), lines) == ({}, [])  # nothing in it that could be missed


def test_attach_takes_nothing_from_a_file_that_ends_or_runs_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.hangdoc]\non-hang = "restart"\non-hang-exec = "touch ran"\n')
    monkeypatch.chdir(tmp_path)
    watch, attach = _FileOptions("watch"), _FileOptions("attach")
    assert (watch.get("on_hang"), watch.get("on_hang_exec")) == ("restart", "touch ran")
    assert (attach.get("on_hang"), attach.get("on_hang_exec")) == (None, None)
    attach.settle()
    assert capsys.readouterr().err == ""


def test_names_of_variables() -> None:
    assert config.environment_variable("stall_after") == "HANGDOC_STALL_AFTER"
