# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD106"]
# culprits_any = [[1], [0, 2]]
# lines = [72, 73]
# branch = ["task, values in sorted(self.scores.items())", "sorted(self.scores.items())"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/pull/21434"
# ///
"""Multi-task probe: every sample belongs to one task, accuracies are logged per task."""
import os
import tempfile
from collections import defaultdict

import lightning.pytorch as pl
import torch
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

TASKS = ("cola", "mrpc", "qnli", "rte")


class Mixture(Dataset):
    def __init__(self, n, seed, rare_every=0):
        g = torch.Generator().manual_seed(seed)
        self.x = torch.randn(n, 12, generator=g)
        self.task = [TASKS[(i // 3) % 3] for i in range(n)]
        if rare_every:
            for i in range(1, n, rare_every):
                self.task[i] = "rte"
        self.y = (self.x[:, :3].sum(1) > 0).long()

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i], self.task[i]


class MixtureData(pl.LightningDataModule):
    def _loader(self, ds, shuffle):
        sampler = DistributedSampler(ds, num_replicas=self.trainer.world_size, rank=self.trainer.global_rank,
                                     shuffle=shuffle)
        return DataLoader(ds, batch_size=6, sampler=sampler)

    def train_dataloader(self):
        return self._loader(Mixture(108, 0), True)

    def val_dataloader(self):
        return self._loader(Mixture(72, 1, rare_every=24), False)


class Probe(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 2))
        self.scores = defaultdict(list)

    def training_step(self, batch, batch_idx):
        x, y, _ = batch
        return nn.functional.cross_entropy(self.body(x), y)

    def validation_step(self, batch, batch_idx):
        x, y, tasks = batch
        hit = (self.body(x).argmax(-1) == y).float()
        for t, h in zip(tasks, hit):
            self.scores[t].append(h)

    def on_validation_epoch_end(self):
        for task, values in sorted(self.scores.items()):
            self.log(f"val/{task}", torch.stack(values).mean(), sync_dist=True)
        self.scores.clear()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.05)


def main():
    pl.seed_everything(1)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="probe_%s_" % os.environ.get("MASTER_PORT", "0"))
    trainer = pl.Trainer(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"),
                         max_epochs=4, num_sanity_val_steps=0, check_val_every_n_epoch=2, logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                         use_distributed_sampler=False, default_root_dir=root)
    trainer.fit(Probe(), datamodule=MixtureData())
    print(trainer.callback_metrics, flush=True)


if __name__ == "__main__":
    main()
