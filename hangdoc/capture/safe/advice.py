"""Commands to advise, for a job that runs already, that work where they are pasted."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path

NEXT_TIME = "next time, start the job with `hangdoc watch`, which keeps the ranks' call history"


def ourselves() -> str:
    """This hangdoc by its absolute path: sudo looks for programs in other folders, and leaves virtual environments."""
    for candidate in (Path(sys.argv[0]), Path(sys.executable).parent / "hangdoc"):
        if candidate.name == "hangdoc" and os.access(candidate, os.X_OK) and candidate.is_file():
            return shlex.quote(os.path.abspath(candidate))  # noqa: PTH100 - as it was called, links and all
    return f"{shlex.quote(sys.executable)} -m hangdoc"


def as_root() -> str:
    """How to run hangdoc as root."""
    return f"run hangdoc as root: `sudo {ourselves()} …`"


def once_more(words: str) -> str:
    """The command line that starts this hangdoc again, with sudo if this one was started with it."""
    if os.geteuid() == 0 and "SUDO_UID" in os.environ:
        return f"sudo {ourselves()} {words}"
    return f"{'hangdoc' if shutil.which('hangdoc') else ourselves()} {words}"
