# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD102"]
# culprits_any = [[1], [0, 2]]
# lines = [69, 70, 104]
# branch = ["present.any()"]
# source = "Lightning-AI/pytorch-lightning#21409"
# ///
"""Segmentation of rare structures with Lightning; the error on foreground is logged beside the overall one."""
import lightning as L
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Slices(Dataset):
    """Synthetic slices; a structure appears in those that the table names."""

    def __init__(self, count, positive, seed):
        generator = torch.Generator().manual_seed(seed)
        self.images = torch.randn(count, 1, 16, 16, generator=generator)
        self.masks = torch.zeros(count, 1, 16, 16)
        for index in positive:
            self.masks[index, :, 4:9, 5:11] = 1
        self.images += 2 * self.masks

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.masks[index]


class DiceLoss(nn.Module):
    def forward(self, logits, masks):
        p = logits.sigmoid()
        overlap = 2 * (p * masks).sum() + 1
        return 1 - overlap / (p.sum() + masks.sum() + 1)


class Segmenter(L.LightningModule):
    def __init__(self, width=6, lr=3e-3):
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Conv2d(width, 1, 1),
        )
        self.bce, self.dice = nn.BCEWithLogitsLoss(), DiceLoss()

    def forward(self, images):
        return self.network(images)

    def training_step(self, batch, batch_idx):
        images, masks = batch
        logits = self(images)
        loss = self.bce(logits, masks) + 0.5 * self.dice(logits, masks)
        self.log("train_loss", loss, on_step=False, on_epoch=True)
        return loss

    def validation_step(self, batch, batch_idx):
        images, masks = batch
        logits = self(images)
        self.log("val_loss", self.bce(logits, masks), sync_dist=True)
        present = masks.flatten(1).any(1)
        if present.any():
            self.log("val_dice", self.dice(logits[present], masks[present]), sync_dist=True)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)


class Study(L.LightningDataModule):
    def __init__(self, batch_size):
        super().__init__()
        self.batch_size = batch_size

    def setup(self, stage):
        self.train = Slices(72, range(0, 72, 5), seed=1)
        self.valid = Slices(24, (0, 2, 3, 8, 12, 14, 21), seed=2)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch_size, shuffle=True)

    def val_dataloader(self):
        return DataLoader(self.valid, self.batch_size)


class Printer(L.Callback):
    def on_train_epoch_end(self, trainer, module):
        if trainer.is_global_zero:
            print(f"epoch {trainer.current_epoch} done", flush=True)


def main():
    L.seed_everything(7)
    trainer = L.Trainer(
        accelerator="cpu", devices=3, strategy="ddp", max_epochs=8, num_sanity_val_steps=0, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=[Printer()],
    )
    trainer.fit(Segmenter(), datamodule=Study(batch_size=4))


if __name__ == "__main__":
    main()
