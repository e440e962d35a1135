"""An asyncio pipeline whose producer ends early on one rank.

A coroutine puts shards into a queue, another takes them out and reduces them. The producer of rank 1 skips the
shards that it holds for broken, so its consumer waits for one that nobody will put: a suspended coroutine, of
which no thread's stack shows anything.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# watch = "--give-up-after 8"
# outcome = "hang"
# culprits = [1]
# lines = [44, 45]
# code = ["shard = await self.shards.get()", "dist.all_reduce(shard)"]
# source = "constructed"
# ///

import asyncio
import os

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"
SHARDS = 6


class Pipeline:
    def __init__(self, rank):
        self.broken = {4, 5} if rank == 1 else set()
        self.shards = asyncio.Queue()

    async def produce(self):
        for number in range(SHARDS):
            await asyncio.sleep(0.01)
            if number in self.broken:
                if FIXED:
                    await self.shards.put(torch.zeros(8))
                continue
            await self.shards.put(torch.full((8,), float(number)))

    async def consume(self):
        for _ in range(SHARDS):
            shard = await self.shards.get()
            dist.all_reduce(shard)


async def pulse(done):
    while not done.is_set():
        await asyncio.sleep(0.2)


async def work(rank):
    done, pipeline = asyncio.Event(), Pipeline(rank)
    beating = asyncio.create_task(pulse(done))
    await asyncio.gather(pipeline.produce(), pipeline.consume())
    done.set()
    await beating


def main():
    dist.init_process_group("gloo")
    asyncio.run(work(dist.get_rank()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
