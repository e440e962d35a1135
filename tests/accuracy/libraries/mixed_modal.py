# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD111", "HD101", "HD109"]
# culprits = [1]
# lines = [41, 55, 57, 71, 72, 82, 86, 101, 104]
# branch = ["pictures is not None", "where else None"]
# source = "huggingface/trl#6617"
# ///
"""A captioning model trained on samples with and without a picture."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Samples(Dataset):
    def __init__(self, count, seed=3):
        generator = torch.Generator().manual_seed(seed)
        self.pictures = torch.randn(count, 3, 8, 8, generator=generator)
        self.tokens = torch.randint(0, 50, (count, 6), generator=generator)
        self.has_picture = torch.ones(count, dtype=torch.bool)
        self.has_picture[4::9] = False
        self.has_picture[[count - 2, count - 5]] = False

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, index):
        picture = self.pictures[index] if self.has_picture[index] else None
        return picture, self.tokens[index]


def collate(rows):
    tokens = torch.stack([t for _, t in rows])
    where = [i for i, (p, _) in enumerate(rows) if p is not None]
    pictures = torch.stack([rows[i][0] for i in where]) if where else None
    return pictures, torch.tensor(where, dtype=torch.long), tokens


class Captioner(nn.Module):
    def __init__(self, vocab=50, width=24):
        super().__init__()
        self.vision = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128, width))
        self.embed = nn.Embedding(vocab, width)
        self.mixer = nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocab)

    def forward(self, pictures, where, tokens):
        x = self.embed(tokens)
        if pictures is not None:
            offset = torch.zeros(len(tokens), x.size(2))
            x = x + offset.index_copy(0, where, self.vision(pictures)).unsqueeze(1)
        hidden, _ = self.mixer(x)
        return self.head(hidden)


class Scores:
    def __init__(self):
        self.right = self.seen = 0

    def add(self, logits, target):
        self.right += int((logits.argmax(-1) == target).sum())
        self.seen += target.numel()

    def collect(self):
        rows = [None] * dist.get_world_size()
        dist.all_gather_object(rows, (self.right, self.seen))
        return sum(r for r, _ in rows) / sum(s for _, s in rows)


def run_epoch(model, loader, optimizer):
    scores = Scores()
    for pictures, where, tokens in loader:
        logits = model(pictures, where, tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_([p for p in model.parameters() if p.grad is not None], 1.0)
        optimizer.step()
        scores.add(logits, tokens[:, 1:])
    return scores.collect()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--batch-size", type=int, default=2)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    data = Samples(args.count)
    sampler = DistributedSampler(data, world, rank, shuffle=False)
    loader = DataLoader(data, args.batch_size, sampler=sampler, collate_fn=collate)
    model = DDP(Captioner())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for epoch in range(args.epochs):
        share = run_epoch(model, loader, optimizer)
        if rank == 0:
            print(f"epoch {epoch} right {share:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
