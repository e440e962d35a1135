# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [2]
# lines = [93, 108, 115, 116, 118, 119, 128]
# branch = ["spans", "best > no_answer", "no_answer"]
# source = "https://github.com/huggingface/accelerate/issues/876"
# ///
"""Extractive question answering with Accelerate: training, then an evaluation that gathers predicted spans of all processes."""
import logging
from dataclasses import dataclass

import torch
import torch.nn as nn
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("qa")


@dataclass
class Settings:
    vocab: int = 60
    length: int = 24
    width: int = 32
    batch: int = 4
    train: int = 480
    valid: int = 96
    epochs: int = 2
    seed: int = 13


class SquadLike(Dataset):
    """A context with a marked answer; some questions have none. The validation part is sorted by article."""

    MARK = 5
    UNANSWERABLE_ARTICLES = {5}

    def __init__(self, cfg, size, offset, by_article=False):
        self.items = []
        for i in range(size):
            gen = torch.Generator().manual_seed(offset + i)
            ids = torch.randint(6, cfg.vocab, (cfg.length,), generator=gen)
            unanswerable = (i // cfg.batch) in self.UNANSWERABLE_ARTICLES if by_article else bool(torch.rand((), generator=gen) < 0.25)
            start, end = 0, 0
            if not unanswerable:
                start = int(torch.randint(2, cfg.length - 4, (), generator=gen))
                end = start + int(torch.randint(1, 3, (), generator=gen))
                ids[start - 1] = ids[end + 1] = self.MARK
            ids[0] = 1 if unanswerable else 2
            self.items.append({"ids": ids, "start": start, "end": end, "uid": i})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class Reader(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.width)
        self.encode = nn.GRU(cfg.width, cfg.width, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * cfg.width, 2)
        self.verify = nn.Linear(cfg.width, 1)

    def forward(self, ids):
        x = self.embed(ids)
        logits = self.head(self.encode(x)[0])
        null = self.verify(x[:, 0])
        logits = torch.cat([logits[:, :1] + null[:, None], logits[:, 1:] - null[:, None]], dim=1)
        return logits.unbind(-1)


class QATask:
    def __init__(self, cfg):
        set_seed(cfg.seed)
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True)
        model = Reader(cfg)
        opt = torch.optim.Adam(model.parameters(), lr=1e-2)
        train = DataLoader(SquadLike(cfg, cfg.train, 0), cfg.batch, shuffle=True)
        valid = DataLoader(SquadLike(cfg, cfg.valid, 10_000, by_article=True), cfg.batch)
        self.model, self.opt, self.train_loader, self.valid_loader = self.accelerator.prepare(model, opt, train, valid)

    def train_epoch(self, epoch):
        self.model.train()
        for batch in self.train_loader:
            starts, ends = self.model(batch["ids"])
            loss = F.cross_entropy(starts, batch["start"]) + F.cross_entropy(ends, batch["end"])
            self.accelerator.backward(loss)
            self.opt.step()
            self.opt.zero_grad()
        log.info("epoch %d loss %.3f", epoch, loss.item())

    def decode(self, starts, ends):
        spans = []
        for row, (s, e) in enumerate(zip(starts, ends)):
            no_answer = float(s[0] + e[0])
            pairs = s[1:, None] + e[None, 1:]
            pairs = pairs.masked_fill(torch.ones_like(pairs).tril(-1).bool(), -1e9)
            best = float(pairs.max())
            if best > no_answer:
                first, last = divmod(int(pairs.argmax()), pairs.shape[1])
                spans.append([row, first + 1, last + 1])
        return spans

    def collect(self, starts, ends, batch):
        spans = self.decode(starts, ends)
        if not spans:
            return []
        table = torch.tensor([[int(batch["uid"][r]), a, b, int(a == batch["start"][r] and b == batch["end"][r])] for r, a, b in spans])
        table = self.accelerator.pad_across_processes(table, dim=0, pad_index=-1)
        gathered = self.accelerator.gather(table)
        return [g for g in gathered.tolist() if g[0] >= 0]

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        rows = []
        for batch in self.valid_loader:
            starts, ends = self.accelerator.unwrap_model(self.model)(batch["ids"])
            rows.extend(self.collect(starts, ends, batch))
        return sum(r[3] for r in rows) / max(1, len(rows))

    def run(self):
        for epoch in range(self.cfg.epochs):
            self.train_epoch(epoch)
            log.info("epoch %d exact match %.3f", epoch, self.evaluate())
        self.accelerator.wait_for_everyone()
        self.accelerator.end_training()


def main():
    task = QATask(Settings())
    logging.basicConfig(level=logging.WARNING, format=f"[{task.accelerator.process_index}] %(message)s")
    log.setLevel(logging.INFO)
    task.run()


if __name__ == "__main__":
    main()
