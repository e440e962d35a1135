# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD103", "HD507", "HD508", "HD101"]
# culprits = [0]
# lines = [54, 49, 72, 115, 71, 69, 96, 104, 59]
# source = "https://github.com/genlm/genlm-backend/issues/10"
# ///
"""Tensor-parallel scoring service: an asyncio front end on the first rank feeds an engine that drives all ranks."""
import asyncio
import logging
import random

import torch
import torch.distributed as dist

log = logging.getLogger("service")
VOCAB, WIDTH = 64, 48


class ShardedScorer:
    """Every rank holds a slice of the columns; the sum over the ranks is the score."""

    def __init__(self):
        rank, world = dist.get_rank(), dist.get_world_size()
        gen = torch.Generator().manual_seed(1)
        self.embed = torch.randn(VOCAB, WIDTH, generator=gen)
        self.head = torch.randn(WIDTH, VOCAB, generator=gen)
        self.cols = slice(rank * WIDTH // world, (rank + 1) * WIDTH // world)

    def __call__(self, prompts: list[list[int]]) -> torch.Tensor:
        hidden = torch.stack([self.embed[p].mean(0) for p in prompts])
        out = hidden[:, self.cols] @ self.head[self.cols]
        dist.all_reduce(out)
        return out.log_softmax(-1)


class Engine:
    """Runs on the first rank: collects requests for a moment, then lets all ranks score them."""

    def __init__(self, scorer: ShardedScorer, max_prompt: int = 24, max_batch: int = 8):
        self.scorer, self.max_prompt, self.max_batch = scorer, max_prompt, max_batch
        self.inbox: asyncio.Queue = asyncio.Queue()
        self.closing = False
        self.task = None

    def start(self) -> None:
        self.task = asyncio.create_task(self.run(), name="engine")

    async def score(self, prompt: list[int]) -> torch.Tensor:
        done = asyncio.get_running_loop().create_future()
        await self.inbox.put((prompt, done))
        return await done

    def admit(self, prompt: list[int]) -> list[int]:
        if len(prompt) > self.max_prompt:
            prompt = prompt[-self.max_prompt :]
        return [min(t, VOCAB - 1) for t in prompt]

    async def collect(self) -> list:
        batch = [await self.inbox.get()]
        await asyncio.sleep(0.01)
        while not self.inbox.empty() and len(batch) < self.max_batch:
            batch.append(self.inbox.get_nowait())
        return batch

    async def run(self) -> None:
        while not self.closing:
            batch = await self.collect()
            prompts = [self.admit(prompt) for prompt, _ in batch]
            dist.broadcast_object_list([prompts], src=0)
            for (_, done), row in zip(batch, self.scorer(prompts)):
                done.set_result(row)

    async def stop(self) -> None:
        self.closing = True
        dist.broadcast_object_list([None], src=0)


async def client(name: int, engine: Engine, rng: random.Random, turns: int) -> float:
    total, context = 0.0, [rng.randrange(VOCAB) for _ in range(4)]
    for turn in range(turns):
        row = await engine.score(context)
        context = context + [int(row.argmax())]
        total += float(row.max())
        if rng.random() < 0.08:
            context.append(None)  # the template's separator, not yet resolved
        await asyncio.sleep(rng.random() * 0.02)
    return total


async def front_end(engine: Engine) -> None:
    engine.start()
    rng = random.Random(11)
    totals = await asyncio.gather(*(client(i, engine, rng, turns=40) for i in range(6)))
    log.info("scores: %s", [round(t, 2) for t in totals])
    await engine.stop()


def follow(scorer: ShardedScorer) -> None:
    while True:
        box = [None]
        dist.broadcast_object_list(box, src=0)
        if box[0] is None:
            return
        scorer(box[0])


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    scorer = ShardedScorer()
    if dist.get_rank() == 0:
        asyncio.run(front_end(Engine(scorer)))
    else:
        follow(scorer)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
