"""How attach and diagnose end: the verdict on stdout, the files asked for, the exit status."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot

EXIT_STATUS = {"healthy": 0, "slow": 0, "hang": 1, "crashed": 1, "blind": 3}
"""Outcome → exit status of attach and diagnose."""


def print_diagnosis(
    diagnosis: Diagnosis, job: JobSnapshot, reports: Sequence[Path], *, json: bool, color: str, verbose: bool
) -> None:
    """Print the diagnosis, or only its document, write the reports, and tell GitHub Actions where it runs."""
    from hangdoc.announce import say
    from hangdoc.report import document, github, terminal, write
    from hangdoc.report.log_lines import log_lines_for

    if json:
        text = document.render(diagnosis)
    else:
        text = terminal.render_for(sys.stdout, diagnosis, color=color, verbose=verbose)
        if verbose:
            text += github.inert(log_lines_for(sys.stdout, job, color=color), None)
    # Not click's: that takes the colors out of what is no terminal, also where they were asked for.
    sys.stdout.write(text)
    sys.stdout.flush()
    for file in reports:
        write(diagnosis, file, job)
    github.tell(diagnosis, say)
