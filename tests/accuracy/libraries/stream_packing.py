# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["datasets"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD103", "HD106"]
# culprits = [2]
# culprits_any = [[2], [0, 1, 3]]
# lines = [65, 83, 92, 93, 94, 99, 109, 120]
# branch = ["except StopIteration", "next(self._it)", "block is None", "not feed.drained and done < cfg.max_blocks"]
# source = "https://github.com/huggingface/datasets/pull/7854"
# ///
"""Stream documents with datasets, split over the ranks, pack them into blocks and train."""
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Iterator

import torch
import torch.distributed as dist
from datasets import IterableDataset
from datasets.distributed import split_dataset_by_node

log = logging.getLogger("pack")


@dataclass
class Config:
    num_shards: int = 8
    block: int = 32
    vocab: int = 97
    max_blocks: int = 400


def documents(shards):
    for shard in shards:
        count = 14 if shard % 4 != 2 else 9
        for doc in range(count):
            length = 40 + (shard * 7 + doc * 3) % 5
            yield {"ids": [(shard * 31 + doc * 17 + k) % 97 for k in range(length)]}


class Packer:
    """Concatenates documents and cuts blocks of equal length."""

    def __init__(self, source, block: int):
        self.source, self.block = source, block

    def __iter__(self) -> Iterator[torch.Tensor]:
        pool = []
        for doc in self.source:
            pool.extend(doc["ids"])
            while len(pool) > self.block:
                head, pool = pool[: self.block + 1], pool[self.block:]
                yield torch.tensor(head)


class Feed:
    def __init__(self, packer: Packer):
        self._it = iter(packer)
        self.drained = False

    def next_block(self):
        try:
            return next(self._it)
        except StopIteration:
            self.drained = True
            return None


class TinyLM(torch.nn.Module):
    def __init__(self, vocab: int):
        super().__init__()
        self.emb = torch.nn.Embedding(vocab, 8)
        self.out = torch.nn.Linear(8, vocab)

    def forward(self, ids):
        return torch.nn.functional.cross_entropy(self.out(self.emb(ids[:-1])), ids[1:])


def average_gradients(model: torch.nn.Module) -> None:
    world = dist.get_world_size()
    for p in model.parameters():
        dist.all_reduce(p.grad)
        p.grad /= world


def train(cfg: Config, feed: Feed) -> int:
    torch.manual_seed(0)
    model = TinyLM(cfg.vocab)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    done = 0
    while not feed.drained and done < cfg.max_blocks:
        block = feed.next_block()
        if block is None:
            break
        opt.zero_grad()
        loss = model(block)
        loss.backward()
        average_gradients(model)
        opt.step()
        done += 1
        if done % 10 == 0:
            log.info("rank %d block %d loss %.3f", dist.get_rank(), done, loss.item())
    return done


def collect(done: int) -> torch.Tensor:
    counts = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(counts, torch.tensor([done]))
    return torch.cat(counts)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    dist.init_process_group("gloo", timeout=timedelta(hours=2))
    cfg = Config()
    stream = IterableDataset.from_generator(documents, gen_kwargs={"shards": list(range(cfg.num_shards))})
    mine = split_dataset_by_node(stream, rank=dist.get_rank(), world_size=dist.get_world_size())
    done = train(cfg, Feed(Packer(mine, cfg.block)))
    log.info("blocks per rank: %s", collect(done).tolist())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
