# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [2]
# lines = [46, 53, 69, 75]
# branch = ["patience", "should_terminate", "self.counter"]
# source = "https://github.com/Project-MONAI/MONAI/issues/6989"
# ///
"""MONAI's EarlyStopHandler with a score that is not reduced over the ranks: the rank whose own volumes got no better terminates
its trainer, the others train on."""
import logging
import warnings

import torch
import torch.distributed as dist
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import EarlyStopHandler, ValidationHandler
from torch import nn
from torch.utils.data import DataLoader, Dataset

warnings.filterwarnings("ignore")
logging.disable(logging.CRITICAL)


class Volumes(Dataset):
    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"image": torch.randn(1, 4, generator=g), "label": torch.randn(1, 2, generator=g)}


class Score:
    """Stands for a Dice on the rank's own validation volumes."""

    def __init__(self, rank):
        self.rank, self.epoch = rank, 0

    def __call__(self, engine):
        self.epoch += 1
        return 0.5 if self.rank == 2 else 0.5 + 0.01 * self.epoch


class Segmenter:
    def __init__(self):
        self.rank, self.device = dist.get_rank(), torch.device("cpu")
        self.network = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.PReLU(), nn.Linear(8, 2)))
        self.stopper = EarlyStopHandler(patience=3, score_function=Score(self.rank), min_delta=1e-4)

    def evaluator(self):
        return SupervisedEvaluator(device=self.device, val_data_loader=DataLoader(Volumes(4), batch_size=2),
                                   network=self.network.module, epoch_length=2, val_handlers=[self.stopper])

    def trainer(self, evaluator):
        optimizer = torch.optim.Novograd(self.network.parameters()) if hasattr(torch.optim, "Novograd") else torch.optim.Adam(self.network.parameters())
        return SupervisedTrainer(device=self.device, max_epochs=30, train_data_loader=DataLoader(Volumes(12), batch_size=4),
                                 network=self.network, optimizer=optimizer, loss_function=nn.MSELoss(),
                                 train_handlers=[ValidationHandler(validator=evaluator, interval=1, epoch_level=True)])

    def run(self):
        evaluator = self.evaluator()
        trainer = self.trainer(evaluator)
        self.stopper.set_trainer(trainer)
        trainer.run()


def main():
    dist.init_process_group("gloo")
    Segmenter().run()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
