"""Short tables for people: on a terminal the last column wraps, elsewhere every row is one line."""

from __future__ import annotations

from collections.abc import Sequence

from hangdoc.model.wording import harmless

_GAP = 2


def lay_out(rows: Sequence[Sequence[str]], width: int | None) -> str:
    """The rows under each other, in columns. ``width``: cells of a line, in which the last column wraps; None: any.

    Every cell is made harmless. No column but the last is ever cut or wrapped.
    """
    if not rows:
        return ""
    cells = [[harmless(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]) - 1)]
    if width is None:
        lines = (
            (" " * _GAP).join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[-1]]) for row in cells
        )
        return "".join(f"{line.rstrip()}\n" for line in lines)
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, show_header=False, padding=(0, _GAP, 0, 0), pad_edge=False)
    for column in widths:
        table.add_column(no_wrap=True, min_width=column)
    table.add_column(overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    # Rows that need more than there is are better too long than cut.
    least = sum(widths) + _GAP * len(widths) + 16
    console = Console(width=max(width, least), color_system=None, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(table)
    return "".join(f"{line.rstrip()}\n" for line in capture.get().splitlines())
