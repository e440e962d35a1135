"""Checkpoints in shards: the dense part once, each expert by one of its replicas."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist


def shared_folder(name, mesh):
    """One folder for all ranks: the given one, or a temporary one that the first rank makes."""
    chosen = [name]
    if not name:
        chosen = [tempfile.mkdtemp(prefix="sparselab-", dir=Path.cwd()) if mesh.rank == 0 else None]
        dist.broadcast_object_list(chosen, src=0)
    folder = Path(chosen[0])
    if mesh.speaks and not folder.exists():
        folder.mkdir(parents=True)
    return folder


class ShardStore:
    def __init__(self, folder, mesh, keep):
        self.folder = folder
        self.mesh = mesh
        self.keep = keep
        self.temporary = folder.name.startswith("sparselab-")

    def save(self, step, tensors):
        """Whether this rank wrote something."""
        parts = {}
        if self.mesh.speaks:
            parts["dense"] = {name: value for name, value in tensors.items() if not name.startswith("adapter")}
        if self.mesh.keeps:
            mine = {name: value for name, value in tensors.items() if name.startswith("adapter")}
            parts[f"expert-{self.mesh.expert}"] = mine
        for name, part in parts.items():
            path = self.folder / f"{name}.{step:06d}.pt"
            torch.save(part, path.with_suffix(".tmp"))
            path.with_suffix(".tmp").rename(path)
            self.prune(name)
        return bool(parts)

    def prune(self, name):
        present = sorted(self.folder.glob(f"{name}.*.pt"))
        for path in present[: -self.keep] if self.keep else []:
            path.unlink(missing_ok=True)

    def close(self):
        dist.barrier()
        if self.mesh.speaks and self.temporary:
            for path in self.folder.iterdir():
                if path.suffix in (".pt", ".tmp"):
                    path.unlink()
            if not any(self.folder.iterdir()):
                self.folder.rmdir()
