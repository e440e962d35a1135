from __future__ import annotations

from pathlib import Path

import pytest

from hangdoc import config
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
        ("[tool.hangdoc]\nquiet = 1\n", "wrong type"),
        ("[tool.hangdoc]\nreport = [1]\n", "file names"),
        ("[tool.hangdoc\n", "not valid TOML"),
        ("tool.hangdoc = 3\n", "not a table"),
    ],
)
def test_mistakes_are_told(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        config.from_file(project(tmp_path, text))


@pytest.mark.parametrize("text", ["", "not [ toml", "[tool]\nother = 1\n", "tool = 3\n"])
def test_a_file_that_is_not_ours_is_left_alone(text: str, tmp_path: Path) -> None:
    assert config.from_file(project(tmp_path, text)) == {}


def test_names_of_variables() -> None:
    assert config.environment_variable("stall_after") == "HANGDOC_STALL_AFTER"
