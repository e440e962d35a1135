# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["datasets"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits_any = [[0], [1, 2]]
# lines = [96, 54, 56]
# branch = ["for step, (x, y) in enumerate(self.stream)", "step, (x, y) in enumerate(self.stream)", "enumerate(self.stream)", "for record in self.records", "record in self.records", "while len(buffer) > self.seq_len", "len(buffer) > self.seq_len"]
# source = "https://github.com/pytorch/torchtitan/issues/1618"
# ///
"""Pretraining loop for a tiny language model with a validation pass now and then."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from datasets import Dataset
from datasets.distributed import split_dataset_by_node
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

log = logging.getLogger("pretrain")


@dataclass
class JobConfig:
    seq_len: int = 32
    steps: int = 45
    val_every: int = 15
    val_documents: int = 120
    vocab: int = 64
    width: int = 32


def documents(count, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    for _ in range(count):
        length = int(torch.randint(5, 90, (1,), generator=g))
        yield {"tokens": torch.randint(0, vocab, (length,), generator=g).tolist()}


class TokenStream:
    """Concatenates the documents of this rank and cuts them into rows of equal length."""

    def __init__(self, records, seq_len, infinite):
        self.records = records
        self.seq_len = seq_len
        self.infinite = infinite

    def __iter__(self):
        buffer = []
        while True:
            for record in self.records:
                buffer.extend(record["tokens"])
                while len(buffer) > self.seq_len:
                    row = torch.tensor(buffer[: self.seq_len + 1])
                    buffer = buffer[self.seq_len:]
                    yield row[:-1].unsqueeze(0), row[1:].unsqueeze(0)
            if not self.infinite:
                return


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, h):
        return h + self.down(torch.relu(self.up(h)))


class TinyLM(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.layers = nn.Sequential(*[Layer(cfg.width) for _ in range(3)])
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, tokens):
        return self.head(self.layers(self.embed(tokens)))


def token_loss(model, x, y):
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


class Validator:
    def __init__(self, stream):
        self.stream = stream

    @torch.no_grad()
    def __call__(self, model):
        losses = []
        for step, (x, y) in enumerate(self.stream):
            losses.append(token_loss(model, x, y))
        total = torch.stack([torch.stack(losses).sum(), torch.tensor(float(len(losses)))])
        dist.all_reduce(total)
        return float(total[0] / total[1])


def loader(cfg, count, seed, infinite):
    table = Dataset.from_list(list(documents(count, cfg.vocab, seed)))
    mine = split_dataset_by_node(table, rank=dist.get_rank(), world_size=dist.get_world_size())
    return TokenStream(mine, cfg.seq_len, infinite)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = JobConfig()
    torch.manual_seed(2)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    model = TinyLM(cfg)
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    validate = Validator(loader(cfg, cfg.val_documents, 8, infinite=False))
    batches = iter(loader(cfg, 400, 9, infinite=True))
    for step in range(1, cfg.steps + 1):
        loss = token_loss(model, *next(batches))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % cfg.val_every == 0:
            log.info("step %d train %.3f validation %.3f", step, float(loss), validate(model))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
