# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [0]
# lines = [77, 98, 116, 117]
# branch = ["done % self.cfg.eval_every == 0"]
# source = "https://github.com/huggingface/transformers/issues/31532"
# ///
"""accelerate, own loop. When to evaluate is read off the progress bar, which is disabled (and so stays at 0) everywhere but on the main
process; the main process alone gathers for metrics."""
import logging
from dataclasses import dataclass

import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from tqdm.auto import tqdm

logger = logging.getLogger(__name__)


@dataclass
class FinetuneConfig:
    vocab: int = 32
    dim: int = 16
    labels: int = 3
    length: int = 10
    train_size: int = 640
    eval_size: int = 42
    batch_size: int = 4
    epochs: int = 4
    eval_every: int = 12
    lr: float = 5e-3


class Reviews(Dataset):
    def __init__(self, cfg, size, seed):
        gen = torch.Generator().manual_seed(seed)
        self.tokens = torch.randint(1, cfg.vocab, (size, cfg.length), generator=gen)
        self.labels = self.tokens.sum(1) % cfg.labels

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        return {"tokens": self.tokens[i], "labels": self.labels[i]}


class Classifier(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embed = nn.EmbeddingBag(cfg.vocab, cfg.dim)
        self.head = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.GELU(), nn.Linear(cfg.dim, cfg.labels))

    def forward(self, tokens):
        return self.head(self.embed(tokens))


class Progress:
    """The bar and the running mean of the loss."""

    def __init__(self, cfg, accelerator, total):
        self.cfg = cfg
        self.bar = tqdm(total=total, disable=not accelerator.is_local_main_process, mininterval=5)
        self.loss = None

    def advance(self, loss):
        self.loss = loss if self.loss is None else 0.95 * self.loss + 0.05 * loss
        self.bar.update(1)
        self.bar.set_postfix(loss=f"{self.loss:.3f}", refresh=False)

    def time_to_evaluate(self):
        done = self.bar.n
        return done > 0 and done % self.cfg.eval_every == 0


class Finetuner:
    def __init__(self, cfg):
        self.cfg, self.accelerator = cfg, Accelerator(cpu=True)
        set_seed(13)
        model = Classifier(cfg)
        train = DataLoader(Reviews(cfg, cfg.train_size, 0), batch_size=cfg.batch_size, shuffle=True)
        held_out = DataLoader(Reviews(cfg, cfg.eval_size, 1), batch_size=cfg.batch_size)
        optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        self.model, self.optimizer, self.train_loader, self.eval_loader = self.accelerator.prepare(model, optimizer, train, held_out)
        self.progress = Progress(cfg, self.accelerator, cfg.epochs * len(self.train_loader))
        self.criterion = nn.CrossEntropyLoss()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        right = total = 0
        for batch in self.eval_loader:
            guess = self.model(batch["tokens"]).argmax(-1)
            guess, labels = self.accelerator.gather_for_metrics((guess, batch["labels"]))
            right += (guess == labels).sum().item()
            total += len(labels)
        self.model.train()
        return right / total

    def train_step(self, batch):
        loss = self.criterion(self.model(batch["tokens"]), batch["labels"])
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def fit(self):
        self.model.train()
        for epoch in range(self.cfg.epochs):
            for batch in self.train_loader:
                self.progress.advance(self.train_step(batch))
                if self.progress.time_to_evaluate():
                    accuracy = self.evaluate()
                    self.accelerator.print(f"epoch {epoch} accuracy {accuracy:.3f}")
        self.accelerator.wait_for_everyone()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    Finetuner(FinetuneConfig()).fit()


if __name__ == "__main__":
    main()
