"""Reports: a diagnosis as text or bytes, one module per format. ``write`` chooses by the file's suffix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from hangdoc.errors import UsageError
from hangdoc.model.codec import write_atomically
from hangdoc.model.diagnosis import Diagnosis


def _json(diagnosis: Diagnosis) -> str:
    from hangdoc.report import document

    return document.render(diagnosis)


def _text(diagnosis: Diagnosis) -> str:
    from hangdoc.report import terminal

    return terminal.render(diagnosis, width=100)


def _markdown(diagnosis: Diagnosis) -> str:
    from hangdoc.report import markdown

    return markdown.render(diagnosis)


_FORMATS: dict[str, Callable[[Diagnosis], str]] = {".json": _json, ".txt": _text, ".md": _markdown}


def check_suffix(path: str | os.PathLike[str]) -> None:
    """Raise ``UsageError`` unless ``write`` knows the suffix of ``path``. To be asked before the work."""
    suffix = Path(path).suffix.lower()
    if suffix not in _FORMATS:
        raise UsageError(
            f"cannot tell the report's format from {os.fspath(path)!r}",
            f"End the file name in one of: {', '.join(_FORMATS)}",
        )


def write(diagnosis: Diagnosis, path: str | os.PathLike[str]) -> None:
    """Write ``diagnosis`` to ``path`` in the format of its suffix, whole or not at all.

    Raises ``UsageError`` for an unknown suffix or a place that can hold no file, ``HangdocError`` where the
    disk refuses.
    """
    check_suffix(path)
    text = _FORMATS[Path(path).suffix.lower()](diagnosis)
    write_atomically(Path(path), text.encode("utf-8", "backslashreplace"))
