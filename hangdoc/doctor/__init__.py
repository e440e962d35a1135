"""Can hangdoc work here? Each check tries the thing itself and names the blocker and its fix."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator

from hangdoc.doctor import job, looking
from hangdoc.doctor.check import Check


def check_all(python: str | None = None, environment: dict[str, str] | None = None) -> Iterator[Check]:
    """Every check, as soon as it is done. ``python`` is the job's interpreter (default: the one on PATH)."""
    environment = dict(os.environ) if environment is None else environment
    checks: tuple[Callable[[], Iterator[Check]], ...] = (
        looking.machine,
        looking.tools,
        lambda: job.places(environment),
        lambda: job.python(python or shutil.which("python") or sys.executable, environment),
    )
    for check in checks:
        yield from check()
