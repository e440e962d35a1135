"""``hangdoc capture``: listed here, parsed and run by ``hangdoc.capture_command``, which needs no typer."""

from __future__ import annotations

import typer

from hangdoc import capture_command

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command(add_help_option=False, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def capture(context: typer.Context) -> None:
    """Write what this host shows of a job to stdout, as one snapshot for `hangdoc diagnose`."""
    raise typer.Exit(capture_command.main(context.args))
