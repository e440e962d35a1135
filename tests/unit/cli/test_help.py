"""Every --help ends with examples, and the examples are understood."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from hangdoc.cli import COMMANDS, _FileOptions, app
from hangdoc.cli.examples import EXAMPLES
from hangdoc.cli.guide import _with_commands
from hangdoc.cli.options import Duration


def click_command() -> typer.core.TyperGroup:
    return typer.main.get_command(app)


def names() -> list[str]:
    return [name for name in EXAMPLES if name]


def test_every_command_has_examples() -> None:
    assert set(COMMANDS) - set(EXAMPLES) == {"capture"}  # it explains itself
    group = click_command()
    scenario = group.get_command(None, "scenario")
    assert {f"scenario {name}" for name in scenario.commands} <= set(EXAMPLES)


@pytest.mark.parametrize("name", ["", *names()])
def test_the_help_shows_them_unwrapped(name: str) -> None:
    done = CliRunner(env={"COLUMNS": "80"}).invoke(app, [*name.split(), "--help"])
    assert done.exit_code == 0
    _, _, shown = done.stdout.partition("Examples:\n")
    assert [line for line, _ in EXAMPLES[name] if f"    {line}" not in shown] == []
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize("line", [line for examples in EXAMPLES.values() for line, _ in examples])
def test_the_examples_are_understood(line: str) -> None:
    words = shlex.split(line.partition(" > ")[0])
    _, command, *arguments = words[words.index("hangdoc") :]
    found = click_command().get_command(None, command)
    assert found is not None
    if command == "scenario":
        found, arguments = found.get_command(None, arguments[0]), arguments[1:]
        assert found is not None
    found.make_context(command, arguments).close()


def test_durations_are_taken_from_the_command_line_and_from_the_file(tmp_path, monkeypatch) -> None:
    watch = click_command().get_command(None, "watch")
    (tmp_path / "pyproject.toml").write_text("[tool.hangdoc]\ngive-up-after = '1h30m'\nkeep = 3\n")
    monkeypatch.chdir(tmp_path)
    with watch.make_context("watch", ["--stall-after", "5m", "x"], default_map=_FileOptions("watch")) as context:
        assert (context.params["stall_after"], context.params["give_up_after"]) == (300.0, 5400.0)
        assert (context.params["keep"], context.params["color"]) == (3, "auto")
    with watch.make_context("watch", ["x"]) as context:
        assert (context.params["stall_after"], context.params["give_up_after"]) == (None, 600.0)


@pytest.mark.parametrize("command", ["attach", "collect"])
def test_a_file_makes_no_command_inject_that_root_may_run(command: str, tmp_path, monkeypatch, capsys) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.hangdoc]\ninject = true\nno-source = true\n")
    monkeypatch.chdir(tmp_path)
    options = _FileOptions(command)
    assert (options.get("inject", False), options.get("no_source")) == (False, True)
    options.settle()
    assert f"{command} takes inject from its command line alone" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["5x", "0", "0.05s", "-1", "nan", ""])
def test_what_is_no_duration_is_refused(value: str) -> None:
    with pytest.raises(typer.BadParameter):
        Duration(0.1)(value)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("hangdoc exp", "explain"), ("hangdoc explain HD10", "HD102"), ("hangdoc guide qui", "quickstart"),
     ("hangdoc scenario run uneven_b", "uneven_batches"), ("hangdoc watch --stall", "--stall-after")],
)  # fmt: skip
def test_completion(words: str, expected: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from hangdoc.cli import main; sys.exit(main([]))"],
        env={
            **os.environ,
            "_HANGDOC_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split()) - 1),
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert expected in done.stdout.split(), done.stderr


def test_links_between_pages_are_commands_in_a_terminal() -> None:
    shown = _with_commands("See [how](hosts.md#trust), [CI](ci.md) and [PyTorch](https://pytorch.org/).")
    assert shown == "See how (`hangdoc guide hosts`), CI (`hangdoc guide ci`) and [PyTorch](https://pytorch.org/)."
