"""Where a rank keeps its caches: on its own disk, or on shared storage where that is too small."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from cluster.world import World
from feed.stations import StationFile
from settings.ini import Configuration
from storage.workspace import Workspace

LOG = logging.getLogger("forecast.storage")


@dataclass(frozen=True)
class Place:
    folder: Path
    kind: str
    """``local`` or ``shared``."""
    takes_over: bool
    """Whether a lock whose owner is gone may be taken over: only where its process number is of this machine."""


def choose_place(stations: StationFile, workspace: Workspace, configuration: Configuration, world: World) -> Place:
    quota = configuration.number("storage", "quota")
    kind = "shared" if stations.bytes > quota else "local"
    if kind == "shared":
        LOG.info("%d bytes of stations go to shared storage", stations.bytes)
    folder = workspace.folder(kind, f"rank-{world.rank}")
    return Place(folder, kind, takes_over=kind == "local")
