"""``hangdoc guide [TOPIC]``: the guide's pages, which come with the package, in the terminal."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

_LINK = re.compile(r"\[([^\]]+)\]\((\w+)\.md(?:#[\w-]+)?\)")


def _topics(incomplete: str) -> list[str]:
    return sorted(name for name in _pages() if name.startswith(incomplete))


def _pages() -> dict[str, Traversable]:
    from importlib import resources

    folder = resources.files("hangdoc") / "guide"
    return {entry.name.removesuffix(".md"): entry for entry in folder.iterdir() if entry.name.endswith(".md")}


def _with_commands(text: str) -> str:
    """Links to other pages as the commands that show them: '[how](hosts.md#trust)' → 'how (`hangdoc guide hosts`)'."""
    return _LINK.sub(r"\1 (`hangdoc guide \2`)", text)


def guide(
    topic: Annotated[
        str | None,
        typer.Argument(help="Name of a page; without it, list them.", metavar="TOPIC", autocompletion=_topics),
    ] = None,
) -> None:
    """Read the guide, also where there is no network.

    The pages are shown as they are where the output is no terminal: `hangdoc guide hosts > hosts.md`.
    """
    from difflib import get_close_matches

    from hangdoc.errors import UsageError
    from hangdoc.model.wording import harmless

    pages = _pages()
    name = "index" if topic is None else topic.removesuffix(".md")
    if name not in pages:
        close = get_close_matches(name, pages, 1)
        raise UsageError(
            f"the guide has no page '{harmless(name)}'",
            f"Did you mean {close[0]}?" if close else f"Its pages: {', '.join(sorted(pages))}.",
        )
    text = pages[name].read_text(encoding="utf-8")
    if not sys.stdout.isatty():
        typer.echo(text, nl=False)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    console = Console()
    console.print(Markdown(_with_commands(text), hyperlinks=False), width=min(console.width, 100))
    if topic is None:
        console.print(f"\nRead one: hangdoc guide NAME ({', '.join(sorted(set(pages) - {'index'}))})", highlight=False)
