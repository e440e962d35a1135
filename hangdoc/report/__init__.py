"""Reports: a diagnosis as text or bytes, one module per format. ``write`` chooses by the file's suffix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hangdoc.errors import UsageError
from hangdoc.model.codec import write_atomically
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.snapshot import JobSnapshot


def _renderer(suffix: str) -> Callable[[Diagnosis, JobSnapshot | None], str]:
    """The renderer of one format; each is imported on first use."""
    if suffix == ".html":
        from hangdoc.report import page

        return page.render
    if suffix == ".trace.json":
        from hangdoc.report import timeline

        return timeline.render
    from hangdoc.report import document, markdown, terminal

    of_diagnosis: Callable[[Diagnosis], str] = {
        ".json": document.render,
        ".txt": terminal.render,
        ".md": markdown.render,
    }[suffix]
    return lambda diagnosis, _: of_diagnosis(diagnosis)


FORMATS = (".json", ".txt", ".md", ".html", ".trace.json")
"""Suffixes of report files."""


def _suffix(path: str | os.PathLike[str]) -> str:
    """The longest of the formats' suffixes that the name has; its own where it has none of them."""
    name = Path(path).name.lower()
    known = [suffix for suffix in FORMATS if name.endswith(suffix) and len(name) > len(suffix)]
    return max(known, key=len, default=Path(name).suffix)


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Raise ``UsageError`` unless ``write`` knows the suffix of ``path``. To be asked before the work."""
    if _suffix(path) not in FORMATS:
        raise UsageError(
            f"cannot tell the report's format from {os.fspath(path)!r}",
            f"End the file name in one of: {', '.join(FORMATS)}",
        )


def write(
    diagnosis: Diagnosis, path: str | os.PathLike[str], job: JobSnapshot | None = None, *, page: str | None = None
) -> None:
    """Write ``diagnosis`` to ``path`` in the format of its suffix, whole or not at all.

    ``job`` is the snapshot it was made from: a page shows more of it than the diagnosis says. ``page``: the page of
    both, where it has been made already.

    Raises ``UsageError`` for an unknown suffix or a place that can hold no file, ``HangdocError`` where the
    disk refuses.
    """
    check_suffix(path)
    suffix = _suffix(path)
    text = page if suffix == ".html" and page is not None else _renderer(suffix)(diagnosis, job)
    write_atomically(Path(path), text.encode("utf-8", "backslashreplace"))
