# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD102", "HD109", "HD111", "HD106"]
# culprits = [2]
# lines = [78, 51, 52]
# branch = ["batch is None", "not kept", "sample.std() > self.floor"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/6430"
# ///
"""Train an earthquake phase classifier on waveforms of several stations with Lightning."""
import logging
import os
import tempfile

import lightning as L
import torch
from lightning.pytorch.plugins.environments import TorchElasticEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset, DistributedSampler

log = logging.getLogger("phases")


class Waveforms(Dataset):
    """Records of all stations; a station that lost its sensor sends a flat line."""

    def __init__(self, records=768, samples=64):
        g = torch.Generator().manual_seed(12)
        self.waves = torch.randn(records, samples, generator=g)
        self.phase = torch.randint(0, 3, (records,), generator=g)
        self.waves += self.phase.unsqueeze(-1) * torch.linspace(0, 1, samples)
        outage = torch.arange(records)
        self.waves[(outage >= 380) & (outage < 460) & (outage % 3 == 2)] = 0.25

    def __len__(self):
        return len(self.waves)

    def __getitem__(self, i):
        return self.waves[i], self.phase[i]


class LiveRecords:
    """Collates the records that carry a signal."""

    def __init__(self, floor):
        self.floor = floor

    def __call__(self, rows):
        kept = [(sample, phase) for sample, phase in rows if sample.std() > self.floor]
        if not kept:
            return None
        return torch.stack([sample for sample, _ in kept]), torch.stack([phase for _, phase in kept])


class PhaseData(L.LightningDataModule):
    def __init__(self, batch=8):
        super().__init__()
        self.batch = batch

    def setup(self, stage):
        self.waveforms = Waveforms()

    def train_dataloader(self):
        sampler = DistributedSampler(self.waveforms, num_replicas=self.trainer.world_size,
                                     rank=self.trainer.global_rank, shuffle=False)
        return DataLoader(self.waveforms, batch_size=self.batch, sampler=sampler, collate_fn=LiveRecords(0.05))


class PhaseNet(L.LightningModule):
    def __init__(self, samples=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(samples, 32), nn.ReLU(), nn.Linear(32, 3))
        self.dropped = 0

    def training_step(self, batch, batch_idx):
        if batch is None:
            self.dropped += 1
            return None
        waves, phase = batch
        loss = nn.functional.cross_entropy(self.net(waves), phase)
        self.log("train_loss", loss)
        return loss

    def on_train_epoch_end(self):
        log.info("epoch %d done, %d batches without signal", self.current_epoch, self.dropped)
        self.dropped = 0

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    logging.basicConfig(level=logging.INFO)
    L.seed_everything(7)
    root = os.path.join(tempfile.gettempdir(), f"phases-{os.environ['MASTER_PORT']}")
    trainer = L.Trainer(
        max_epochs=3, accelerator="cpu", devices=int(os.environ["LOCAL_WORLD_SIZE"]), default_root_dir=root,
        strategy=DDPStrategy(process_group_backend="gloo"), plugins=[TorchElasticEnvironment()], logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False)
    trainer.fit(PhaseNet(), datamodule=PhaseData())
    trainer.strategy.barrier()
    log.info("finished after %d steps", trainer.global_step)


if __name__ == "__main__":
    main()
