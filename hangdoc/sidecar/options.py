"""The options of a watch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ON_HANG = ("report", "abort")


@dataclass(frozen=True, slots=True)
class WatchOptions:
    """Times in seconds. ``stall_after`` None: learn the job's rhythm, at least 30 s."""

    stall_after: float | None = None
    give_up_after: float = 600.0
    on_hang: str = "report"
    run_dir: Path | None = None
    """None: ``.hangdoc/<run id>``."""
    reports: tuple[Path, ...] = ()
    quiet: bool = False
    read_sources: bool = True
