"""``hangdoc explain CODE``: what a cause means and how to fix it."""

from __future__ import annotations

from typing import Annotated

import typer

from hangdoc.model.catalogue import CatalogueEntry


def _codes(incomplete: str) -> list[str]:
    from hangdoc.model.catalogue import catalogue

    known = [*catalogue(), *(entry.name for entry in catalogue().values())]
    return [each for each in known if each.lower().startswith(incomplete.lower())]


app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})


@app.command()
def explain(
    code: Annotated[
        str | None,
        typer.Argument(help="Code or name of a cause; without it, list all.", autocompletion=_codes),
    ] = None,
) -> None:
    """Explain a cause: what it means, how it comes about, how to fix it, which scenario shows it."""
    from hangdoc.errors import UsageError
    from hangdoc.model.catalogue import catalogue, find, nearest
    from hangdoc.model.wording import harmless

    if code is None:
        from hangdoc.progress import columns
        from hangdoc.report.table import lay_out

        rows = [(f"{e.code}{'' if e.recognised else '*'}", e.name, e.title) for e in catalogue().values()]
        typer.echo(lay_out(rows, columns()), nl=False)
        if any(not entry.recognised for entry in catalogue().values()):
            typer.echo("\n* explained here, and not yet recognized by this version")
        return
    found = find(code)
    if found is None:
        close = ", ".join(f"{entry.code} {entry.name}" for entry in nearest(code))
        raise UsageError(
            f"no cause has the code or name '{harmless(code)}'",
            f"Did you mean {close}?" if close else "`hangdoc explain` lists all.",
        )
    typer.echo(_page(found), nl=False)


def _page(entry: CatalogueEntry) -> str:
    import shutil
    import textwrap

    from hangdoc import scenarios

    width = max(40, min(96, shutil.get_terminal_size().columns))

    def wrapped(text: str, first: str = "  ", rest: str = "  ") -> str:
        return textwrap.fill(
            text,
            width,
            initial_indent=first,
            subsequent_indent=rest,
            break_on_hyphens=False,
            break_long_words=False,
        )

    parts = [f"{entry.code} {entry.name}", wrapped(entry.title + "."), "", wrapped(entry.explanation), ""]
    parts += ["How it comes about", *(wrapped(way, "  - ", "    ") for way in entry.arises), ""]
    parts += ["How to tell it apart", wrapped(entry.tell_apart), "", "How to fix it", wrapped(entry.fix)]
    shown = [scenario for scenario in scenarios.available() if scenario.cause == entry.code]
    if shown:
        parts += ["", "See it happen"]
        parts += [f"  hangdoc scenario run {scenario.name}" for scenario in shown]
    if not entry.recognised:
        text = "This version does not recognize it yet: such a job gets its lines and ranks with a null cause."
        parts += ["", wrapped(text)]
    return "\n".join(parts) + "\n"
