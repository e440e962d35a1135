"""What every pytest session loads: the option, the marker and the fixture. It imports pytest and nothing of hangdoc."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from hangdoc.pytest_plugin.job import RunJob

_MARKER = (
    "hangdoc(seconds, give_up_after=None): as --hangdoc=SECONDS, for one test; 0 turns it off. give_up_after: from "
    "then on a rank that sleeps or polls counts as hung (default 4 times the seconds)."
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the option."""
    what = "Diagnose and end a test whose ranks (processes of torch.distributed) stand still for this long."
    group = parser.getgroup("hangdoc", "name the rank that froze a test")
    group.addoption("--hangdoc", metavar="SECONDS", default=None, help=what)
    parser.addini("hangdoc", f"{what} In seconds; the option --hangdoc goes first.", default="")


# The old kind of wrapper: a session with an old pluggy that asks for nothing must not fail here.
@pytest.hookimpl(hookwrapper=True, tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> Generator[None, None, None]:
    """Begin before pytest captures output, and before a conftest imports torch."""
    # Not `getoption`: the command line has been read only half.
    if asked := early_config.known_args_namespace.hangdoc or early_config.getini("hangdoc"):
        _begin(early_config, asked)
    yield


def pytest_configure(config: pytest.Config) -> None:
    """Begin here where the plugin was loaded late."""
    config.addinivalue_line("markers", _MARKER)
    if asked := config.getoption("hangdoc", None) or config.getini("hangdoc"):
        _begin(config, asked)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin if only markers ask for it."""
    if any(item.get_closest_marker("hangdoc") is not None for item in items):
        _begin(config, None)


def _begin(config: pytest.Config, seconds: str | None) -> None:
    if sys.platform == "linux" and "hangdoc-session" not in dict(config.pluginmanager.list_name_plugin()):
        from hangdoc.pytest_plugin.session import begin

        begin(config, seconds, os.environ)


@pytest.fixture
def hangdoc_job(request: pytest.FixtureRequest, tmp_path: Path) -> RunJob:
    """Run ranks of a function or of a script under watch; returns the Diagnosis of their hang.

    ``hangdoc_job(target, *arguments, ranks=2)``; all parameters: ``hangdoc guide pytest``.
    """
    from hangdoc.pytest_plugin.job import RunJob

    return RunJob(request.config, tmp_path)
