"""The folder of a run."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from cluster.world import World
from settings.ini import Configuration


class Workspace:
    def __init__(self, root: Path, world: World, *, temporary: bool) -> None:
        self.root = root
        self.world = world
        self.temporary = temporary

    @classmethod
    def shared(cls, configuration: Configuration, world: World) -> Workspace:
        """One folder for all ranks, a new temporary one where none is configured."""
        name = configuration.text("run", "folder")
        if not name:
            made = tempfile.mkdtemp(prefix="forecast-", dir=Path.cwd()) if world.leads else None
            return cls(Path(world.tell(made)), world, temporary=True)
        root = Path(name)
        if world.leads and not root.is_dir():
            root.mkdir(parents=True)
        world.meet()
        return cls(root, world, temporary=False)

    def folder(self, *parts: str) -> Path:
        path = self.root.joinpath(*parts)
        path.mkdir(parents=True, exist_ok=True)
        return path

    def remove(self) -> None:
        if self.temporary and self.world.leads:
            shutil.rmtree(self.root, ignore_errors=True)
