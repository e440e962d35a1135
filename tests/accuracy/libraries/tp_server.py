# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# watch = "--give-up-after 8"
# causes_any = ["HD305", "HD106", "HD101"]
# culprits = [0]
# lines = [48, 102, 124, 125, 129, 156]
# branch = ["self.loop_running", "self.served % self.stats_every"]
# source = "https://github.com/vllm-project/vllm/issues/5531"
# ///
"""Tensor-parallel text server: an asyncio front end on rank 0 steps the engine; workers take commands from the store and stay in an execution loop while tokens are produced."""
import asyncio
import json
import logging
import os
import random
from datetime import timedelta

import torch
import torch.distributed as dist

log = logging.getLogger("server")
WIDTH, VOCAB = 24, 96


class CommandChannel:
    def __init__(self, store):
        self.store = dist.PrefixStore("cmd", store)
        self.sent, self.seen = 0, 0

    def order(self, method, *args):
        self.sent += 1
        self.store.set(f"order/{self.sent}", json.dumps([method, args]))
        return self.sent

    def next_order(self):
        self.seen += 1
        self.store.wait([f"order/{self.seen}"], timedelta(minutes=40))
        method, args = json.loads(self.store.get(f"order/{self.seen}"))
        return self.seen, method, args

    def answer(self, number, rank, value):
        self.store.set(f"answer/{number}/{rank}", json.dumps(value))

    def collect(self, number, ranks):
        keys = [f"answer/{number}/{r}" for r in ranks]
        self.store.wait(keys, timedelta(minutes=40))
        return [json.loads(self.store.get(k)) for k in keys]


class ModelShard:
    def __init__(self, rank, world):
        torch.manual_seed(0)
        self.embed = torch.nn.Embedding(VOCAB, WIDTH)
        self.shard = torch.nn.Linear(WIDTH, VOCAB).weight.detach().chunk(world, 0)[rank]
        self.adapters = ["base"]

    @torch.no_grad()
    def step(self, tokens):
        logits = torch.zeros(len(tokens), VOCAB)
        part = self.embed(tokens) @ self.shard.T
        offset = dist.get_rank() * part.shape[1]
        logits[:, offset:offset + part.shape[1]] = part
        dist.all_reduce(logits)
        return logits.argmax(-1)


def execution_loop(model):
    while True:
        size = torch.zeros(1, dtype=torch.long)
        dist.broadcast(size, src=0)
        if size.item() == 0:
            return "stopped"
        tokens = torch.zeros(size.item(), dtype=torch.long)
        dist.broadcast(tokens, src=0)
        model.step(tokens)


def worker_main(rank, model, channel):
    handlers = {
        "load": lambda name: model.adapters.append(name) or len(model.adapters),
        "adapters": lambda: model.adapters,
        "loop": lambda: execution_loop(model),
    }
    while True:
        number, method, args = channel.next_order()
        if method == "exit":
            return
        channel.answer(number, rank, handlers[method](*args))


class Engine:
    def __init__(self, model, channel, world, stats_every=40):
        self.model, self.channel, self.workers = model, channel, list(range(1, world))
        self.loop_running, self.loop_order = False, None
        self.stats_every, self.served = stats_every, 0
        self.turn = asyncio.Lock()

    async def call(self, method, *args):
        number = self.channel.order(method, *args)
        return await asyncio.get_running_loop().run_in_executor(None, self.channel.collect, number, self.workers)

    async def load_adapter(self, name):
        async with self.turn:
            await self.stop_loop()
            return await self.call("load", name)

    async def stop_loop(self):
        if self.loop_running:
            dist.broadcast(torch.zeros(1, dtype=torch.long), src=0)
            await asyncio.get_running_loop().run_in_executor(None, self.channel.collect, self.loop_order, self.workers)
            self.loop_running = False

    async def step(self, tokens):
        async with self.turn:
            if not self.loop_running:
                self.loop_order = self.channel.order("loop")
                self.loop_running = True
            dist.broadcast(torch.tensor([len(tokens)]), src=0)
            dist.broadcast(tokens, src=0)
            out = self.model.step(tokens)
            self.served += len(tokens)
            if self.served % self.stats_every == 0:
                await self.log_stats()
            return out

    async def log_stats(self):
        adapters = await self.call("adapters")
        log.info("%d tokens served, adapters %s", self.served, adapters[0])


async def client(engine, number):
    rng = random.Random(number)
    tokens = torch.tensor([rng.randrange(VOCAB)])
    for _ in range(60):
        tokens = await engine.step(tokens)
        await asyncio.sleep(rng.random() * 0.02)


async def serve(model, channel, world):
    engine = Engine(model, channel, world)
    log.info("adapter loaded on %s", await engine.load_adapter("sql-lora"))
    await asyncio.gather(*(client(engine, i) for i in range(4)))
    await engine.stop_loop()
    channel.order("exit")


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s tp{rank} %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=40))
    channel = CommandChannel(dist.distributed_c10d._get_default_store())
    model = ModelShard(rank, world)
    if rank == 0:
        asyncio.run(serve(model, channel, world))
    else:
        worker_main(rank, model, channel)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
