"""What several commands' options have in common: durations, colors, how much a report says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hangdoc.config import environment_variable
from hangdoc.model.durations import read_duration

COLORS = ("auto", "always", "never")


class Duration:
    """Parses an option in seconds: 90, 90s, 5m, 1h30m; of at least ``least`` seconds."""

    __name__ = "duration"

    def __init__(self, least: float) -> None:
        self._least = least

    def __call__(self, value: Any) -> float:
        """The seconds. Raises typer's own error, which names the option."""
        try:
            seconds = read_duration(str(value))
        except ValueError:
            raise typer.BadParameter(f"{value!r} is no duration; write 90, 90s, 5m or 1h30m.") from None
        if seconds < self._least:
            raise typer.BadParameter(f"{value!r} is too short; the least is {self._least:g} s.")
        return seconds


def _color(value: Any) -> str:
    if value not in COLORS:
        raise typer.BadParameter(f"{value!r} is neither {' nor '.join(COLORS)}.")
    return str(value)


Color = Annotated[
    str,
    typer.Option(
        "--color",
        metavar="auto|always|never",
        parser=_color,
        envvar=environment_variable("color"),
        help="Colors in the report. auto: on a terminal, unless NO_COLOR is set; also where FORCE_COLOR is.",
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        envvar=environment_variable("verbose"),
        help="Report all evidence and every stack, not only what decides.",
    ),
]

SavedJob = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...",
        help="Log or pasted stacks (a file, a directory, or - for standard input), snapshot file, run directory, or"
        " directory of flight-recorder dumps. Of a job on several hosts: the files of each.",
    ),
]
