# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["deepspeed"]
# outcome = "hang"
# cause = "HD109"
# culprits = [0]
# lines = [39, 44, 53, 54]
# branch = ["global_rank == 0", "should_profile", "every"]
# source = "https://github.com/deepspeedai/DeepSpeedExamples/issues/344"
# ///
"""Every few steps the profiler runs the model once more, on the main rank only, to count its FLOPs.
Under ZeRO-3 that forward gathers the partitioned parameters, which takes all ranks."""
import os
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(32, 32, bias=False) for _ in range(3))
        self.head = nn.Linear(32, 32, bias=False)

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


class FlopsProbe:
    def __init__(self, engine, every):
        self.engine, self.every = engine, every

    def should_profile(self, step):
        return step and step % self.every == 0 and self.engine.global_rank == 0

    def measure(self, batch):
        start = time.perf_counter()
        with torch.no_grad():
            self.engine.module(batch)
        return time.perf_counter() - start


class Loop:
    def __init__(self, engine):
        self.engine, self.probe = engine, FlopsProbe(engine, 4)

    def step(self, step, batch):
        if self.probe.should_profile(step):
            print("forward takes", self.probe.measure(batch), flush=True)
        loss = self.engine(batch).square().mean()
        self.engine.backward(loss)
        self.engine.step()

    def run(self, steps):
        for step in range(steps):
            self.step(step, torch.randn(4, 32))


CONFIG = {"train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0, "stage3_max_live_parameters": 0,
                                                                        "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0},
          "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}


def main():
    deepspeed.init_distributed("gloo", verbose=False)
    torch.manual_seed(0)
    net = Net()
    engine, *_ = deepspeed.initialize(model=net, optimizer=torch.optim.SGD(net.parameters(), lr=0.01), config=CONFIG)
    Loop(engine).run(40)


if __name__ == "__main__":
    main()
