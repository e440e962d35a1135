# /// hangdoc
# launch = "python"
# requires = ["ray"]
# outcome = "hang"
# causes_any = ["HD101", "HD109"]
# culprits = [0]
# lines = [39, 40, 62]
# branch = ["get_world_rank() == 0"]
# source = "https://github.com/ray-project/ray/issues/33042"
# ///
"""Only the worker of rank 0 computes the metric and calls ray.train.report, which is a barrier of all workers.
The other workers go on to the next epoch and wait in backward()."""
import os
import tempfile

os.environ.setdefault("RAY_TRAIN_V2_ENABLED", "1")
os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer, prepare_model
from torch import nn


class Reporter:
    """Keeps the losses and tells Ray about them."""

    def __init__(self):
        self.losses = []

    def add(self, loss):
        self.losses.append(loss)

    def epoch_end(self, epoch):
        context = ray.train.get_context()
        mean = sum(self.losses) / len(self.losses)
        self.losses.clear()
        if context.get_world_rank() == 0:
            ray.train.report({"loss": mean, "epoch": epoch})


class Loop:
    def __init__(self, config):
        self.config = config
        self.model = prepare_model(nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 1)))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])
        self.reporter = Reporter()

    def step(self):
        x = torch.randn(8, 16)
        loss = (self.model(x) - x.mean(1, keepdim=True)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def run(self):
        for epoch in range(self.config["epochs"]):
            for _ in range(self.config["steps"]):
                self.reporter.add(self.step())
            self.reporter.epoch_end(epoch)


def train_loop_per_worker(config):
    torch.manual_seed(ray.train.get_context().get_world_rank())
    Loop(config).run()


def main():
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    trainer = TorchTrainer(
        train_loop_per_worker,
        train_loop_config={"lr": 0.01, "epochs": 4, "steps": 10},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=2),
        run_config=RunConfig(name="metrics", storage_path=tempfile.mkdtemp(prefix="raytrain-")),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
