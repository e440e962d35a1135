"""Each of three ranks sets a key of its own in each round and waits for those of all; rank 1 leaves its third one out.

Run under torchrun.
"""

from __future__ import annotations

import datetime

import torch.distributed as dist


def publish(store: dist.Store, step: int, rank: int, text: str | None) -> None:
    if text is None:
        return
    store.set(f"{step}/{rank}", text)


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    store = dist.PrefixStore("lists", dist.distributed_c10d._get_default_store())
    for step in range(5):
        publish(store, step, rank, None if (step, rank) == (2, 1) else "ready")
        store.wait([f"{step}/{peer}" for peer in range(world)], datetime.timedelta(minutes=30))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
