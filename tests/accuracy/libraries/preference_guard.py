# /// hangdoc
# launch = "python"
# requires = ["accelerate"]
# outcome = "hang"
# causes_any = ["HD103", "HD106", "HD104", "HD101"]
# culprits = [2]
# lines = [81, 82, 101, 114, 115, 117, 118]
# branch = ["except ValueError", "found != expected"]
# source = "https://github.com/huggingface/trl/pull/6862"
# ///
"""Preference tuning (DPO loss) of a small multimodal scorer with accelerate; the trainer agrees on failed forward passes before it goes on."""
import logging
import os
import socket
import tempfile
from collections import defaultdict

import torch
import torch._dynamo  # noqa: F401  (once, before the workers fork)
import torch.multiprocessing as mp
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("dpo")
WORLD = 4
IMAGE_TOKEN = 1


class PreferencePairs(Dataset):
    """Prompt with one picture, a chosen and a rejected answer. Long prompts are cut to `max_length`."""

    def __init__(self, size=96, max_length=24):
        gen = torch.Generator().manual_seed(8)
        self.items = []
        for i in range(size):
            text = torch.randint(2, 90, (int(torch.randint(8, 20, (1,), generator=gen)),), generator=gen)
            patches = 4
            if i == 58:
                text = torch.randint(2, 90, (22,), generator=gen)
            prompt = torch.cat([text, torch.full((patches,), IMAGE_TOKEN)])[:max_length]
            chosen, rejected = torch.randint(2, 90, (2, 6), generator=gen)
            picture = torch.randn(patches, 12, generator=gen)
            self.items.append({"prompt": prompt, "chosen": chosen, "rejected": rejected, "picture": picture})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(items):
    width = max(len(it["prompt"]) + len(it["chosen"]) for it in items)

    def join(kind):
        rows = torch.zeros(len(items), width, dtype=torch.long)
        for r, it in enumerate(items):
            ids = torch.cat([it["prompt"], it[kind]])
            rows[r, :len(ids)] = ids
        return rows

    return {"chosen": join("chosen"), "rejected": join("rejected"),
            "picture": torch.stack([it["picture"] for it in items])}


class Scorer(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(96, width)
        self.vision = nn.Linear(12, width)
        self.mix = nn.Linear(width, width)
        self.out = nn.Linear(width, 96)

    def forward(self, ids, picture):
        x = self.embed(ids)
        slots = ids == IMAGE_TOKEN
        expected, found = picture.shape[0] * picture.shape[1], int(slots.sum())
        if found != expected:
            raise ValueError(f"picture features and picture tokens do not match: tokens {found}, features {expected}")
        x = x.masked_scatter(slots.unsqueeze(-1), self.vision(picture))
        x = torch.tanh(self.mix(x.cumsum(1) / torch.arange(1, ids.shape[1] + 1).view(1, -1, 1)))
        logits = self.out(x[:, :-1])
        return -F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none").sum(1)


class PreferenceTrainer:
    def __init__(self, accelerator, dataset, beta=0.1):
        self.accelerator, self.beta = accelerator, beta
        loader = DataLoader(dataset, batch_size=4, collate_fn=collate)
        model = Scorer()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
        self.model, self.optimizer, self.loader = accelerator.prepare(model, optimizer, loader)
        self.metrics = defaultdict(list)

    def compute_loss(self, batch):
        module = self.accelerator.unwrap_model(self.model)
        with torch.no_grad():
            ref = module(batch["chosen"], batch["picture"]) - module(batch["rejected"], batch["picture"])
        ids = torch.cat([batch["chosen"], batch["rejected"]])
        logps = self.model(ids, batch["picture"].repeat(2, 1, 1))
        chosen, rejected = logps.chunk(2)
        margin = chosen - rejected - ref + 0.05 * (chosen - rejected)
        loss = -F.logsigmoid(self.beta * margin).mean()
        for name, value in (("margin", margin), ("accuracy", (margin > 0).float()), ("logps", chosen)):
            self.metrics[name].append(self.accelerator.gather(value.detach()).mean().item())
        return loss

    def training_step(self, batch):
        failure, loss = None, None
        try:
            loss = self.compute_loss(batch)
        except ValueError as error:
            failure = error
        failed = torch.tensor([float(failure is not None)])
        if self.accelerator.reduce(failed, reduction="sum") > 0:
            if failure is not None:
                raise failure
            raise RuntimeError("the forward pass failed on another rank")
        self.accelerator.backward(loss)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def train(self):
        for step, batch in enumerate(self.loader):
            loss = self.training_step(batch)
            if self.accelerator.is_main_process:
                log.info("step %d loss %.4f margin %.3f", step, loss, self.metrics["margin"][-1])


def worker(local_rank, port):
    os.environ.update(RANK=str(local_rank), LOCAL_RANK=str(local_rank), WORLD_SIZE=str(WORLD),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), ACCELERATE_USE_CPU="true")
    logging.basicConfig(level=logging.INFO, format=f"[{local_rank}] %(message)s")
    set_seed(21)
    accelerator = Accelerator(cpu=True)
    PreferenceTrainer(accelerator, PreferencePairs()).train()
    accelerator.end_training()


def main():
    os.chdir(os.environ.get("TMPDIR", tempfile.gettempdir()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(worker, args=(port,), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
