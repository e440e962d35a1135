"""The options of a watch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hangdoc.errors import UsageError

ON_HANG = ("report", "abort", "restart")
RECORDED = ("collectives", "messages", "store", "lines", "branches")
"""What ranks keep of what they do, unless ``--record`` says otherwise; branches on Python 3.12 to 3.14."""
RECORDABLE = (*RECORDED, "phases")
MOST_ENTRIES = 20_000
"""As many as are read of an answer (``capture.read.probe_answers``)."""
_ENDPOINT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+):(?P<port>\d{1,5})")


def endpoint(meet: str) -> tuple[str, int] | None:
    """(host, port) of ``--meet HOST:PORT``; None for anything else."""
    found = _ENDPOINT.fullmatch(meet)
    return (found["host"].strip("[]"), int(found["port"])) if found and 0 < int(found["port"]) < 1 << 16 else None


def check_meet(meet: str) -> None:
    """Raises ``UsageError`` for a value of ``--meet`` that names no way to meet."""
    if meet in ("auto", "off") or endpoint(meet) is not None or (meet and Path(meet).is_dir()):
        return
    raise UsageError(
        f"--meet {meet}: there is no such folder, and it is no HOST:PORT",
        "give auto, off, HOST:PORT, or a folder that exists on every host",
    )


def recorded(text: str | None) -> tuple[str, ...] | None:
    """'collectives,phases' → the names in it; None for the usual. Raises ``UsageError`` for one that there is not."""
    if text is None:
        return None
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if name not in RECORDABLE:
            raise UsageError(f"--record {name}: nothing of that name is recorded", f"known are {','.join(RECORDABLE)}")
    return names


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """What `hangdoc watch` takes as options. Times in seconds."""

    stall_after: float | None = None
    """Look closely after this long without progress; None: learn the job's rhythm, at least 30 s."""
    give_up_after: float = 600.0
    """From then on a wait for something outside of the job counts as a hang."""
    on_hang: str = "report"
    """'report', 'abort' or 'restart'."""
    on_hang_exec: str = ""
    """A shell's command line that runs after the report of a hang; '' for none."""
    run_dir: Path | None = None
    """None: ``.hangdoc/<run id>``."""
    reports: tuple[Path, ...] = ()
    """Files for the report of a hang; the suffix chooses the format."""
    quiet: bool = False
    """Without the line at the start."""
    read_sources: bool = True
    """False: no source code of the job is read."""
    meet: str = "auto"
    """'auto', 'off', 'HOST:PORT', or a folder that all hosts share."""
    meet_send_sources: bool = False
    record: tuple[str, ...] | None = None
    """None: what is usual for the ranks' Python."""
    entries: int | None = None
    """How many of each a rank keeps; None: as many as PyTorch's recorder (2,000) and the probe (1,000) keep."""
    logs: bool = False
    """Ranks write to files of their own in the run directory, and one stream of them goes to stdout."""
    """Source code and values of variables go to rank 0's host, too."""
    keep: int | None = None
    """How many runs stay in ``.hangdoc``, this one among them; None: all."""
    color: str = "auto"
    """'auto', 'always' or 'never': in what the watch prints."""
    verbose: bool = False
