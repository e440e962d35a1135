# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["torch"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD509", "HD507"]
# culprits = [0]
# lines = [22, 42, 63, 83]
# source = "https://github.com/vllm-project/vllm/pull/22371"
# ///
"""Rank 0 tokenises the corpus in child processes and joins them before it reads their queue.  A child's result is larger
than a pipe, so the child cannot end before it is read, and rank 1 waits for the broadcast of the corpus."""
import multiprocessing as mp

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def tokenize(part, texts, results):
    rows = [[sum(map(ord, word)) % 512 for word in text.split()] for text in texts]
    results.put((part, rows))


class TokenizerPool:
    def __init__(self, texts, workers):
        self.context = mp.get_context("fork")
        self.results = self.context.Queue()
        per = len(texts) // workers
        self.workers = [
            self.context.Process(target=tokenize, args=(i, texts[i * per:(i + 1) * per], self.results), daemon=True)
            for i in range(workers)
        ]

    def start(self):
        for worker in self.workers:
            worker.start()
        return self

    def collect(self):
        for worker in self.workers:
            worker.join()
        parts = [self.results.get() for _ in self.workers]
        return [row for _, rows in sorted(parts) for row in rows]


class Corpus:
    def __init__(self, rows):
        self.rows = rows

    def batches(self, size, rank, world):
        for i in range(rank * size, len(self.rows) - size, size * world):
            yield torch.tensor(self.rows[i:i + size])


def read_texts(n):
    return [" ".join(f"token{(i * j) % 991}" for j in range(32)) for i in range(n)]


def prepare(rank):
    box = [None]
    if rank == 0:
        box[0] = TokenizerPool(read_texts(3000), workers=2).start().collect()
    dist.broadcast_object_list(box, src=0)
    return Corpus(box[0])


def train(corpus, rank, world):
    model = DistributedDataParallel(nn.Sequential(nn.Embedding(512, 16), nn.Flatten(), nn.Linear(16 * 32, 512)))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for ids in corpus.batches(16, rank, world):
        loss = nn.functional.cross_entropy(model(ids), ids[:, 0])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, world = dist.get_rank(), dist.get_world_size()
    corpus = prepare(rank)
    print(train(corpus, rank, world))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
