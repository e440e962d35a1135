# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["lightning", "torchmetrics"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [50, 51, 52, 56, 58]
# branch = ["rank_zero_only", "is_global_zero"]
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/19604"
# ///
"""At the end of a training epoch a callback prints the confusion matrix, on rank 0 only since it is decorated with
rank_zero_only.  MulticlassConfusionMatrix.compute() gathers its state from all ranks; the others go on to the next
epoch."""
import os
import warnings

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics.classification import MulticlassConfusionMatrix

warnings.filterwarnings("ignore")
CLASSES = 5


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, CLASSES))
        self.confusion = MulticlassConfusionMatrix(CLASSES)

    def training_step(self, batch, batch_idx):
        x, y = batch
        logits = self.net(x)
        self.confusion.update(logits.argmax(-1), y)
        return nn.functional.cross_entropy(logits, y)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), 1e-3)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


class ConfusionPrinter(L.Callback):
    def __init__(self, every=2):
        self.every = every
        self.pages = []

    @rank_zero_only
    def render(self, pl_module):
        matrix = pl_module.confusion.compute()
        rows = [" ".join(f"{int(v):4d}" for v in row) for row in matrix]
        self.pages.append("\n".join(rows))

    def on_train_epoch_end(self, trainer, pl_module):
        if (trainer.current_epoch + 1) % self.every == 0:
            self.render(pl_module)
            pl_module.confusion.reset()


class Data(L.LightningDataModule):
    def train_dataloader(self):
        torch.manual_seed(1)
        return DataLoader(TensorDataset(torch.randn(360, 16), torch.randint(0, CLASSES, (360,))), batch_size=12)


def main():
    printer = ConfusionPrinter()
    trainer = L.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=6, logger=False,
        callbacks=[printer], enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    trainer.fit(Classifier(), datamodule=Data())
    print(*printer.pages, sep="\n\n")


if __name__ == "__main__":
    main()
