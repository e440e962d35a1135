# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109", "HD102"]
# culprits = [2]
# lines = [69, 71, 72, 73]
# branch = ["torch.isinf(loss) or torch.isnan(loss)", "torch.isnan(loss)"]
# source = "https://github.com/pytorch/audio/issues/3749"
# ///
"""HuBERT style pre-training step: masked prediction, gradients scaled by the number of frames of all ranks."""
import logging
import os
import tempfile

import lightning.pytorch as pl
import torch
import torch.nn.functional as F
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


class Utterances(Dataset):
    """Fixed length crops and the cluster ids of their frames; `span` is the share of masked frames."""

    def __init__(self, n=96, frames=20, dim=16, clusters=12):
        g = torch.Generator().manual_seed(11)
        self.feats = torch.randn(n, frames, dim, generator=g)
        self.labels = torch.randint(0, clusters, (n, frames), generator=g)
        self.energy = torch.rand(n, generator=g) * 0.5 + 0.4
        self.energy[[56, 59]] = 0.0

    def __len__(self):
        return len(self.feats)

    def __getitem__(self, i):
        frames = self.feats.shape[1]
        mask = torch.arange(frames) < int(self.energy[i] * frames)
        return self.feats[i], self.labels[i], mask


class HuBERTPretrain(pl.LightningModule):
    def __init__(self, dim=16, clusters=12, lr=1e-3):
        super().__init__()
        self.automatic_optimization = False
        self.save_hyperparameters()
        self.encoder = nn.GRU(dim, 32, batch_first=True)
        self.proj = nn.Linear(32, clusters)
        self.mask_emb = nn.Parameter(torch.randn(dim))
        self.skipped = 0

    def forward(self, x, mask):
        x = torch.where(mask.unsqueeze(-1), self.mask_emb, x)
        return self.proj(self.encoder(x)[0])

    def _step(self, batch):
        x, y, mask = batch
        logits = self(x, mask)
        loss = F.cross_entropy(logits[mask], y[mask])
        return loss * mask.sum(), mask.sum()

    def training_step(self, batch, batch_idx):
        opt = self.optimizers()
        opt.zero_grad()
        loss, num_frame = self._step(batch)
        if torch.isinf(loss) or torch.isnan(loss):
            self.skipped += 1
            return None
        self.manual_backward(loss)
        num_frames = self.all_gather(num_frame)
        for p in self.parameters():
            if p.grad is not None:
                p.grad *= self.trainer.world_size / num_frames.sum()
        opt.step()
        return loss

    def train_dataloader(self):
        ds = Utterances()
        sampler = DistributedSampler(ds, self.trainer.world_size, self.trainer.global_rank, shuffle=False)
        return DataLoader(ds, batch_size=2, sampler=sampler)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


def main():
    pl.seed_everything(3)
    torch.set_num_threads(1)
    root = tempfile.mkdtemp(prefix="hubert_%s_" % os.environ.get("MASTER_PORT", "0"))
    trainer = pl.Trainer(accelerator="cpu", devices=3, strategy=DDPStrategy(process_group_backend="gloo"),
                         max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         default_root_dir=root, enable_model_summary=False, use_distributed_sampler=False)
    trainer.fit(HuBERTPretrain())
    print("done", trainer.global_step, flush=True)


if __name__ == "__main__":
    main()
