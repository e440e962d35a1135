"""The lines of code that prove the verdict, with who went where beside them, as compilers show an error."""

from __future__ import annotations

from hangdoc.model.diagnosis import CodeExcerpt, CodeLine
from hangdoc.report.behavior_rows import FileNames
from hangdoc.report.layout import Layout


def lay_out(layout: Layout, excerpts: tuple[CodeExcerpt, ...], names: FileNames) -> None:
    """Each function's lines under its file's name, without the indentation that they share."""
    digits = max((len(str(line.number)) for excerpt in excerpts for line in excerpt.lines), default=1)
    for excerpt in excerpts:
        layout.gap()
        within = excerpt.function if excerpt.function.startswith("<") else f"{excerpt.function}()"
        place = (excerpt.file, excerpt.lines[0].number) if excerpt.lines else None
        layout.paragraph(f"{names.short(excerpt.file)}" + (f" {within}" if within != "<module>" else ""), "dim", place)
        indent = min((_indentation(line) for line in excerpt.lines if line.text.strip()), default=0)
        before: int | None = None
        for line in excerpt.lines:
            if before is not None and line.number > before + 1:
                layout.code(f"{'⋮':>{digits}}", "")
            _line(layout, line, digits, indent)
            before = line.number


def _line(layout: Layout, line: CodeLine, digits: int, indent: int) -> None:
    """The line and its notes: those of a condition under it, with carets; all others behind it."""
    style = "bold red" if line.guilty else "bold"
    notes = ", ".join(line.notes[:1]) if line.mark else "; ".join(line.notes)
    layout.code(f"{line.number:>{digits}} │ ", line.text[indent:], "" if line.mark else notes, style)
    if line.mark:
        first, behind = (layout.cells(line.text[indent : max(indent, column)]) for column in line.mark)
        carets = " " * first + "^" * (behind - first)
        layout.code(f"{'':>{digits}} │ ", carets, notes, "bold", arrow=False)
        for more in line.notes[1:]:
            layout.code(f"{'':>{digits}} │ ", " " * first, more, style, arrow=False)


def _indentation(line: CodeLine) -> int:
    return len(line.text) - len(line.text.lstrip())
