# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["monai", "ignite"]
# outcome = "hang"
# causes_any = ["HD303", "HD109"]
# culprits = [0]
# lines = [50, 51, 60, 71, 79]
# branch = ["rank == 0", "get_rank() == 0"]
# source = "https://github.com/Project-MONAI/tutorials/issues/1077"
# ///
"""Following the advice of the tutorials, a MONAI workflow makes its savers on rank 0 only.  CheckpointSaver builds an
ignite Checkpoint, whose constructor makes a process group, which all ranks would have to do; rank 1 starts training."""
import os
import tempfile
import warnings

import torch
import torch.distributed as dist
from monai.data import DataLoader, Dataset
from monai.engines import SupervisedEvaluator, SupervisedTrainer
from monai.handlers import CheckpointSaver, ValidationHandler
from monai.networks.nets import BasicUNet
from monai.losses import DiceLoss
from monai.transforms import AsDiscreted, Compose
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")


def volumes(n, rank):
    gen = torch.Generator().manual_seed(rank)
    items = []
    for _ in range(n):
        image = torch.rand(1, 32, 32, generator=gen)
        items.append({"image": image, "label": (image > 0.5).float()})
    return items


class Workflow:
    def __init__(self, rank, out):
        self.rank, self.out = rank, out
        torch.manual_seed(0)
        self.net = DistributedDataParallel(
            BasicUNet(spatial_dims=2, in_channels=1, out_channels=1, features=(4, 4, 8, 8, 8, 4)))
        self.device = torch.device("cpu")
        self.evaluator = self.make_evaluator()

    def saver_handlers(self):
        handlers = []
        if self.rank == 0:
            handlers.append(CheckpointSaver(save_dir=self.out, save_dict={"net": self.net}, save_key_metric=True))
        return handlers

    def make_evaluator(self):
        return SupervisedEvaluator(
            device=self.device,
            val_data_loader=DataLoader(Dataset(volumes(4, self.rank)), batch_size=2),
            network=self.net.module,
            postprocessing=Compose([AsDiscreted(keys="pred", threshold=0.5)]),
            val_handlers=self.saver_handlers() or None,
        )

    def make_trainer(self, epochs):
        return SupervisedTrainer(
            device=self.device,
            max_epochs=epochs,
            train_data_loader=DataLoader(Dataset(volumes(12, self.rank)), batch_size=2),
            network=self.net,
            optimizer=torch.optim.Adam(self.net.parameters(), 1e-3),
            loss_function=DiceLoss(sigmoid=True),
            train_handlers=[ValidationHandler(validator=self.evaluator, interval=1, epoch_level=True)],
        )


def main():
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    trainer = Workflow(dist.get_rank(), tempfile.mkdtemp()).make_trainer(epochs=4)
    trainer.run()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
