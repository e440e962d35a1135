# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["lightning"]
# watch = "--give-up-after 10"
# outcome = "healthy"
# source = "https://github.com/Lightning-AI/pytorch-lightning/issues/19045"
# ///
"""After an epoch, rank 0 of a Lightning job runs an external evaluation script with subprocess.run for 30 seconds in a
callback, and all ranks meet in strategy.barrier() afterwards."""
import os
import subprocess
import sys
import tempfile
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

warnings.filterwarnings("ignore")
SCRIPT = """
import sys, time
end, n = time.time() + float(sys.argv[1]), 0
while time.time() < end:
    n += sum(i * i for i in range(2000)) % 7
print(n)
"""


class ExternalEvaluation(L.Callback):
    def __init__(self, seconds):
        self.seconds = seconds

    def on_train_epoch_end(self, trainer, pl_module):
        if trainer.is_global_zero and trainer.current_epoch == 0:
            path = os.path.join(tempfile.mkdtemp(), "evaluate.py")
            with open(path, "w") as f:
                f.write(SCRIPT)
            subprocess.run([sys.executable, path, str(self.seconds)], check=True, stdout=subprocess.PIPE)
        trainer.strategy.barrier()


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(8, 8)

    def training_step(self, batch, batch_idx):
        return (self.net(batch[0]) - batch[0]).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


def main():
    trainer = L.Trainer(
        accelerator="cpu", devices=int(os.environ["WORLD_SIZE"]), strategy="ddp", max_epochs=2, logger=False,
        callbacks=[ExternalEvaluation(30)], enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False)
    trainer.fit(Model(), DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8))
    print("done")


if __name__ == "__main__":
    main()
