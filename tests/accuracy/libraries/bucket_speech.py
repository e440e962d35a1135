# /// hangdoc
# launch = "python"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [2]
# lines = [61, 62, 67, 87, 90, 103, 106, 125, 138]
# branch = ["total + frames > self.max_frames", "bucket in buckets", "i in bucket", "done"]
# source = "https://github.com/pytorch/audio/pull/3068"
# ///
"""Lightning pre-training of a small speech encoder; utterances are bucketed by duration and batched by a frame budget."""
import logging
import math
import os
import random
import tempfile

import lightning.pytorch as pl
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, Sampler

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
log = logging.getLogger("pretrain")

FEATURES = 8
WORKERS = 3


class Utterances(Dataset):
    """A manifest of recordings with their number of frames; features are made when asked for."""

    def __init__(self, size=240, seed=17):
        rng = random.Random(seed)
        self.frames = [int(20 + 180 * rng.betavariate(1.5, 3.0)) for _ in range(size)]

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(i)
        return torch.randn(self.frames[i], FEATURES, generator=gen)


class BucketizeBatchSampler(Sampler):
    """Groups utterances of similar length and fills batches up to `max_frames`."""

    def __init__(self, lengths, num_buckets, max_frames, shuffle, rng):
        self.lengths, self.max_frames, self.shuffle, self.rng = lengths, max_frames, shuffle, rng
        lo, hi = min(lengths), max(lengths) + 1
        width = math.ceil((hi - lo) / num_buckets)
        self.buckets = [[] for _ in range(num_buckets)]
        for i, n in enumerate(lengths):
            self.buckets[(n - lo) // width].append(i)
        self.batches = self.assemble()

    def assemble(self):
        buckets = [list(b) for b in self.buckets]
        if self.shuffle:
            for bucket in buckets:
                self.rng.shuffle(bucket)
            self.rng.shuffle(buckets)
        batches, batch, total = [], [], 0
        for bucket in buckets:
            for i in bucket:
                frames = self.lengths[i]
                if batch and total + frames > self.max_frames:
                    batches.append(batch)
                    batch, total = [], 0
                batch.append(i)
                total += frames
        batches.append(batch)
        return batches

    def __iter__(self):
        return iter(self.batches)

    def __len__(self):
        return len(self.batches)


class ShardedBatches(Sampler):
    """Gives every replica each n-th batch and leaves the incomplete last round out."""

    def __init__(self, batches, replicas, rank):
        full = len(batches) // replicas * replicas
        self.mine = list(batches)[:full][rank::replicas]

    def __iter__(self):
        return iter(self.mine)

    def __len__(self):
        return len(self.mine)


class SpeechData(pl.LightningDataModule):
    def __init__(self, max_frames=640, num_buckets=6):
        super().__init__()
        self.max_frames, self.num_buckets = max_frames, num_buckets

    def setup(self, stage):
        self.train = Utterances()
        self.rng = random.Random(f"{self.trainer.global_rank}-{self.max_frames}")

    def train_dataloader(self):
        batches = BucketizeBatchSampler(self.train.frames, self.num_buckets, self.max_frames, True, self.rng)
        sharded = ShardedBatches(batches, self.trainer.world_size, self.trainer.global_rank)
        print(f"[{self.trainer.global_rank}] {len(sharded)} batches", flush=True)
        return DataLoader(self.train, batch_sampler=sharded, collate_fn=self.collate)

    @staticmethod
    def collate(items):
        return nn.utils.rnn.pad_sequence(items, batch_first=True)


class SpeechEncoder(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(FEATURES, 16, batch_first=True)
        self.head = nn.Linear(16, FEATURES)

    def training_step(self, batch, batch_idx):
        hidden, _ = self.encoder(batch[:, :-1])
        loss = nn.functional.mse_loss(self.head(hidden), batch[:, 1:])
        self.log("train_loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-2)


def main():
    run_dir = tempfile.mkdtemp(prefix="speech-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    trainer = pl.Trainer(accelerator="cpu", devices=WORKERS, strategy="ddp_fork", max_epochs=4, logger=False,
                         enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
                         use_distributed_sampler=False, default_root_dir=run_dir,
                         reload_dataloaders_every_n_epochs=1)
    trainer.fit(SpeechEncoder(), datamodule=SpeechData())


if __name__ == "__main__":
    main()
