"""Put measured tables and figures into the pages of hangdoc/guide, and their last line into README.md.

A table lies between `<!-- name -->` and `<!-- /name -->`; below it, its sum in one line, which the README has as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
README = "README.md"
ACCURACY = "hangdoc/guide/accuracy.md"
COST = "hangdoc/guide/cost.md"
DUMPS = "hangdoc/guide/dumps.md"


def put_table(name: str, table: str, summary: str, root: Path = ROOT, page: str = ACCURACY) -> None:
    """The table and its sum into the page; the sum into the README."""
    _put(root / page, name, f"{table}\n\n{summary}")
    _put(root / README, name, summary)


def put_example(name: str, text: str, root: Path = ROOT) -> None:
    """What a command prints, into the page on dumps."""
    _put(root / DUMPS, name, f"```text\n{text.strip()}\n```")


def put_on_page(page: str, name: str, text: str, root: Path = ROOT) -> None:
    """The text into the page alone."""
    _put(root / page, name, text)


def put_figures(figures: Mapping[str, str], root: Path = ROOT) -> None:
    """The figures of those rows (by their first cell) into the page on cost; its last row into the README.

    Raises ``KeyError`` for a row that the page has not.
    """
    rows = [line.split(" | ") for line in _between(root / COST, "cost").splitlines()]
    named = {row[0].removeprefix("| "): row for row in rows}
    for what, figure in figures.items():
        named[what][1] = figure
    _put(root / COST, "cost", "\n".join(" | ".join(row) for row in rows))
    what, figure = rows[-1][0].removeprefix("| "), rows[-1][1]
    _put(root / README, "cost", f"{what[:1].upper()}{what[1:]}: {figure}.")


def _between(page: Path, name: str) -> str:
    text = page.read_text(encoding="utf-8")
    return text[text.index(f"<!-- {name} -->") : text.index(f"<!-- /{name} -->")].partition("\n")[2].strip("\n")


def _put(page: Path, name: str, text: str) -> None:
    old = page.read_text(encoding="utf-8")
    start, end = old.index(f"<!-- {name} -->"), old.index(f"<!-- /{name} -->")
    page.write_text(f"{old[:start]}<!-- {name} -->\n{text}\n{old[end:]}", encoding="utf-8")
