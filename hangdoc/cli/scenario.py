"""``hangdoc scenario list · show NAME · run NAME``: the reproductions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from hangdoc.scenarios import Comparison

app = typer.Typer(
    help="List, show and run the reproductions of real hangs.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _names(incomplete: str) -> list[str]:
    from hangdoc import scenarios

    return [each.name for each in scenarios.available() if each.name.startswith(incomplete)]


@app.command("list")
def list_scenarios() -> None:
    """List the scenarios: name, expected verdict, title."""
    from hangdoc import scenarios
    from hangdoc.progress import columns
    from hangdoc.report.table import lay_out

    rows = [(each.name, each.cause or each.outcome, each.title) for each in scenarios.available()]
    typer.echo(lay_out(rows, columns()), nl=False)


@app.command()
def show(name: Annotated[str, typer.Argument(help="Name of a scenario.", autocompletion=_names)]) -> None:
    """Print a scenario's script: its story, its expected verdict, its code."""
    from hangdoc import scenarios

    typer.echo(scenarios.find(name).path.read_text(encoding="utf-8"), nl=False)


@app.command()
def run(
    names: Annotated[list[str], typer.Argument(help="Names of scenarios, or 'all'.", autocompletion=_names)],
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show the comparison only.")] = False,
) -> None:
    """Run scenarios under watch and compare each verdict with the expected one.

    With FIXED=1 in the environment the corrected variants run, which must end healthy. Exit status: 0 all
    verdicts are the expected ones, 1 they are not.
    """
    import signal
    import tempfile
    from contextlib import nullcontext

    from hangdoc import scenarios
    from hangdoc.progress import working

    # SIGTERM must end the job as well: an exception does that, the default action would leave it running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    chosen = scenarios.available() if names == ["all"] else [scenarios.find(name) for name in names]
    fixed = os.environ.get("FIXED") == "1"
    agreed = True
    for scenario in chosen:
        with tempfile.TemporaryDirectory(prefix="hangdoc-output-") as folder:
            output = Path(folder) / "output" if quiet else None
            with working(f"running {scenario.name}") if quiet else nullcontext():
                rows = scenarios.run(scenario, fixed=fixed, output=output)
            good = all(row.agrees for row in rows)
            if output is not None and not good:
                typer.echo(output.read_text(encoding="utf-8", errors="backslashreplace")[-20_000:], err=True)
        typer.echo(_table(scenario.name + (" (fixed)" if fixed else ""), rows))
        agreed = agreed and good
    raise typer.Exit(0 if agreed else 1)


def _table(name: str, rows: list[Comparison]) -> str:
    good = all(row.agrees for row in rows)
    lines = [f"{'as expected' if good else 'NOT as expected'}: {name}"]
    widths = [max(len(getattr(row, column)) for row in rows) for column in ("what", "expected", "found")]
    lines += [
        f"  {row.what:<{widths[0]}}  expected {row.expected:<{widths[1]}}  found {row.found:<{widths[2]}}"
        f"  {'ok' if row.agrees else 'DIFFERS'}"
        for row in rows
    ]
    return "\n".join(lines)
