from __future__ import annotations

from dataclasses import dataclass

import torch.distributed as dist

from mesh.layout import Place


@dataclass(frozen=True)
class Mesh:
    here: Place
    pipeline: dist.ProcessGroup
    sisters: dist.ProcessGroup

    @classmethod
    def build(cls, stages: int, replicas: int) -> Mesh:
        """All ranks make all groups, in one order."""
        size = dist.get_world_size()
        if size != stages * replicas:
            raise RuntimeError(f"{size} ranks for {replicas} replicas of {stages} stages")
        here = Place.of(dist.get_rank(), stages, replicas)
        pipeline = sisters = None
        for replica in range(replicas):
            members = Place(0, replica, stages, replicas).pipeline()
            group = dist.new_group(members)
            if replica == here.replica:
                pipeline = group
        for stage in range(stages):
            group = dist.new_group(Place(stage, 0, stages, replicas).sisters())
            if stage == here.stage:
                sisters = group
        assert pipeline is not None and sisters is not None
        return cls(here, pipeline, sisters)

    @property
    def speaks(self) -> bool:
        """One rank a stage, in the first replica."""
        return self.here.replica == 0
