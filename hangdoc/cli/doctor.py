"""``hangdoc doctor``: can hangdoc work here?"""

from __future__ import annotations

from typing import Annotated

import typer

app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def doctor(
    python: Annotated[
        str | None, typer.Option(help="The job's Python (default: python on PATH).", envvar="HANGDOC_PYTHON")
    ] = None,
) -> None:
    """Check whether hangdoc can work here; each blocker comes with its fix.

    Exit status: 0 it can (perhaps seeing less), 3 it cannot.
    """
    from hangdoc.doctor import check_all
    from hangdoc.model.wording import harmless
    from hangdoc.progress import working

    blocked = False
    checks = check_all(python)
    while True:
        with working("trying what hangdoc needs"):
            check = next(checks, None)
        if check is None:
            break
        typer.echo(f"{check.state:<8} {check.name}: {harmless(check.finding)}")
        if check.fix and check.state != "ok":
            typer.echo(f"         {harmless(check.fix)}")
        blocked = blocked or check.state == "blocked"
    raise typer.Exit(3 if blocked else 0)
