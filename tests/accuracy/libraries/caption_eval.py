# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [71, 74, 82]
# branch = ["self.wants_report(step)", "self.accelerator.is_main_process and step % self.every == 0", "self.accelerator.is_main_process"]
# source = "https://github.com/huggingface/accelerate/issues/2785"
# ///
"""Fine-tune a small image tagger with accelerate and report running accuracy."""
import logging
from collections import deque
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("tagger")


@dataclass
class TaggerConfig:
    epochs: int = 2
    batch_size: int = 4
    lr: float = 5e-3
    n_tags: int = 7
    report_every: int = 9
    samples: int = 480
    width: int = 24


class SyntheticTags(Dataset):
    def __init__(self, cfg: TaggerConfig):
        g = torch.Generator().manual_seed(17)
        self.x = torch.randn(cfg.samples, cfg.width, generator=g)
        self.y = torch.randint(0, cfg.n_tags, (cfg.samples,), generator=g)

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"pixels": self.x[i], "tag": self.y[i]}


class Tagger(nn.Module):
    def __init__(self, cfg: TaggerConfig):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(cfg.width, 48), nn.GELU(), nn.LayerNorm(48))
        self.head = nn.Linear(48, cfg.n_tags)

    def forward(self, pixels):
        return self.head(self.body(pixels))


class RunningAccuracy:
    """Keeps the last predictions and prints the accuracy now and then."""

    def __init__(self, accelerator: Accelerator, every: int):
        self.accelerator = accelerator
        self.every = every
        self.window = deque(maxlen=16)
        self.history = []

    def push(self, logits, target):
        self.window.append((logits.argmax(-1).detach(), target.detach()))

    def wants_report(self, step: int) -> bool:
        return self.accelerator.is_main_process and step % self.every == 0

    def maybe_report(self, step: int, loss: float):
        if self.wants_report(step):
            acc = self.summary()
            self.history.append((step, acc))
            log.info("step %d  loss %.4f  acc %.3f", step, loss, acc)

    def summary(self) -> float:
        preds = torch.cat([p for p, _ in self.window])
        tags = torch.cat([t for _, t in self.window])
        merged = self.accelerator.gather_for_metrics((preds, tags))
        return (merged[0] == merged[1]).float().mean().item()


def train(cfg: TaggerConfig):
    accelerator = Accelerator(cpu=True)
    torch.manual_seed(0)
    model = Tagger(cfg)
    opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
    loader = DataLoader(SyntheticTags(cfg), batch_size=cfg.batch_size, shuffle=True)
    model, opt, loader = accelerator.prepare(model, opt, loader)
    meter = RunningAccuracy(accelerator, cfg.report_every)
    loss_fn = nn.CrossEntropyLoss()
    step = 0
    for epoch in range(cfg.epochs):
        model.train()
        for batch in loader:
            step += 1
            opt.zero_grad()
            logits = model(batch["pixels"])
            loss = loss_fn(logits, batch["tag"])
            accelerator.backward(loss)
            opt.step()
            meter.push(logits, batch["tag"])
            meter.maybe_report(step, loss.item())
        accelerator.print(f"epoch {epoch} done, {step} steps")
    accelerator.end_training()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
    train(TaggerConfig())
