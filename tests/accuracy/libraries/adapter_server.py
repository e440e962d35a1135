# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD103", "HD101"]
# culprits_any = [[2]]
# lines = [50, 83, 99, 103, 105, 107]
# branch = ["except KeyError", "self.adapters[request.adapter]", "path.exists()"]
# source = "https://github.com/vllm-project/vllm/issues/5531"
# ///
"""Tensor-parallel serving with LoRA adapters: rank 0 takes requests from a queue and broadcasts them, every rank runs its slice.
One worker's copy of an adapter is missing, it answers the request with a logged KeyError and goes back to the command loop."""
import logging
import queue
import threading
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("server")


@dataclass
class Request:
    uid: int
    adapter: str
    tokens: list
    op: str = "generate"


@dataclass
class ServerConfig:
    hidden: int = 24
    vocab: int = 64
    max_new: int = 4
    adapter_root: str = "adapters"
    adapters: tuple = ("base", "support-v1", "legal-v2")


class AdapterStore(dict):
    @classmethod
    def from_disk(cls, cfg: ServerConfig, rank: int):
        store = cls()
        for name in cfg.adapters:
            path = Path(cfg.adapter_root) / f"shard{rank}" / f"{name}.pt"
            if path.exists():
                store[name] = torch.load(path)
        return store


def publish_adapters(cfg: ServerConfig, world: int):
    """What the training side left behind: shard files, one folder a tensor-parallel rank."""
    complete = {"base": range(world), "support-v1": range(world), "legal-v2": [r for r in range(world) if r % 4 != 2]}
    for name, ranks in complete.items():
        for r in ranks:
            folder = Path(cfg.adapter_root) / f"shard{r}"
            folder.mkdir(parents=True, exist_ok=True)
            torch.save(torch.randn(cfg.hidden, cfg.hidden) * 0.01, folder / f"{name}.pt")


class Worker:
    def __init__(self, cfg: ServerConfig):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        torch.manual_seed(1)
        self.embed = nn.Embedding(cfg.vocab, cfg.hidden)
        self.head = nn.Linear(cfg.hidden, cfg.vocab // self.world, bias=False)
        self.adapters = AdapterStore.from_disk(cfg, self.rank)
        self.ops = {"generate": self.generate, "embed": self.embed_only}

    def _logits(self, hidden, delta):
        local = self.head(hidden + hidden @ delta)
        full = torch.zeros(self.cfg.vocab)
        full[self.rank * local.numel():(self.rank + 1) * local.numel()] = local
        dist.all_reduce(full)
        return full

    @torch.no_grad()
    def generate(self, request: Request):
        delta = self.adapters[request.adapter]
        out = list(request.tokens)
        for _ in range(self.cfg.max_new):
            hidden = self.embed(torch.tensor(out)).mean(0)
            out.append(int(self._logits(hidden, delta).argmax()))
        return out[len(request.tokens):]

    @torch.no_grad()
    def embed_only(self, request: Request):
        pooled = self.embed(torch.tensor(request.tokens)).mean(0)
        dist.all_reduce(pooled)
        return (pooled / self.world).tolist()

    def serve(self, inbox):
        while True:
            command = [inbox.get() if inbox is not None else None]
            dist.broadcast_object_list(command, src=0)
            request = command[0]
            if request.op == "shutdown":
                return
            try:
                answer = self.ops[request.op](request)
            except KeyError as missing:
                log.warning("[rank %d] request %d failed: unknown %s", self.rank, request.uid, missing)
                continue
            if self.rank == 0:
                log.info("request %d (%s) -> %s", request.uid, request.adapter, answer)


def client(inbox: queue.Queue):
    traffic = ["base", "support-v1", "base", "support-v1", "legal-v2", "base"]
    for uid, adapter in enumerate(traffic):
        time.sleep(0.3)
        inbox.put(Request(uid, adapter, [uid + 1, uid + 5, 7]))


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    cfg = ServerConfig()
    if dist.get_rank() == 0:
        publish_adapters(cfg, dist.get_world_size())
    dist.barrier()
    inbox = None
    if dist.get_rank() == 0:
        inbox = queue.Queue()
        threading.Thread(target=client, args=(inbox,), daemon=True).start()
    Worker(cfg).serve(inbox)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
