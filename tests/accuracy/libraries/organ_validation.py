# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["monai"]
# outcome = "hang"
# causes_any = ["HD102", "HD109", "HD101"]
# culprits_any = [[2], [0, 1]]
# lines = [54, 80, 83]
# branch = ["enumerate(loader)", "loader"]
# source = "https://github.com/Project-MONAI/MONAI/issues/5357"
# ///
"""Validate an organ segmenter with MONAI, one partition of the cases per process."""
import logging
import os
import tempfile
from dataclasses import dataclass

import torch
import torch.distributed as dist
from monai.data import DataLoader, Dataset, partition_dataset
from monai.metrics import DiceMetric
from monai.networks.nets import BasicUNet
from monai.transforms import Compose, EnsureTyped, Lambdad

log = logging.getLogger("organ")


@dataclass
class ValidationConfig:
    list_file: str
    classes: int = 2
    print_every: int = 1


def write_case_list(path: str, n: int = 11) -> None:
    tmp = path + f".{os.getpid()}"
    with open(tmp, "w") as f:
        for i in range(n):
            f.write(f"case_{i:03d} {1000 + i * 7}\n")
    os.replace(tmp, path)


def load_case(seed: int) -> torch.Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randn(1, 32, 32, generator=g)


class CaseList:
    def __init__(self, path: str):
        with open(path) as f:
            rows = [line.split() for line in f if line.strip()]
        self.items = [{"name": n, "image": int(s), "label": int(s)} for n, s in rows]

    def shard(self, rank: int, world: int):
        return partition_dataset(self.items, num_partitions=world, shuffle=False, even_divisible=False)[rank]


class Validator:
    def __init__(self, cfg: ValidationConfig, net):
        self.cfg = cfg
        self.net = net
        self.dice = DiceMetric(include_background=True, reduction="mean")
        self.trail = []

    def loader(self):
        shard = CaseList(self.cfg.list_file).shard(dist.get_rank(), dist.get_world_size())
        chain = Compose([
            Lambdad(keys="image", func=load_case),
            Lambdad(keys="label", func=lambda s: (load_case(s) > 0).float()),
            EnsureTyped(keys=["image", "label"]),
        ])
        return DataLoader(Dataset(shard, transform=chain), batch_size=1, num_workers=0)

    def predict(self, image):
        with torch.no_grad():
            return (self.net(image).argmax(1, keepdim=True) > 0).float()

    def run(self) -> float:
        self.net.eval()
        loader = self.loader()
        for index, case in enumerate(loader):
            self.dice(y_pred=self.predict(case["image"]), y=case["label"])
            if index % self.cfg.print_every == 0:
                running = self.dice.aggregate().item()
                self.trail.append(running)
                log.info("rank %d case %s running dice %.4f", dist.get_rank(), case["name"][0], running)
        return self.finish()

    def finish(self) -> float:
        mean = torch.tensor(sum(self.trail) / max(len(self.trail), 1))
        dist.reduce(mean, dst=0)
        self.dice.reset()
        return mean.item() / dist.get_world_size()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    folder = os.path.join(tempfile.gettempdir(), "organ_" + os.environ.get("MASTER_PORT", "0"))
    os.makedirs(folder, exist_ok=True)
    cfg = ValidationConfig(list_file=os.path.join(folder, "cases.txt"))
    if dist.get_rank() == 0:
        write_case_list(cfg.list_file)
    dist.barrier()
    torch.manual_seed(2)
    net = BasicUNet(spatial_dims=2, in_channels=1, out_channels=cfg.classes, features=(4, 4, 8, 8, 8, 4))
    score = Validator(cfg, net).run()
    if dist.get_rank() == 0:
        log.info("mean dice %.4f", score)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
