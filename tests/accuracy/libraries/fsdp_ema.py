# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [3]
# lines = [48, 50, 77]
# branch = ["self.keeper", "keeper", "global_rank != self.keeper", "world - 1"]
# source = "https://github.com/pytorch/pytorch/issues/143536"
# ///
"""FSDP1 with an exponential moving average that lives on the last rank, which is thought to have the most memory to spare.
Only that rank asks for the full parameters."""
import copy
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


@dataclass
class TrainConfig:
    dim: int = 24
    decay: float = 0.99
    max_steps: int = 40
    ema_every: int = 5


class Callback:
    def on_train_batch_end(self, trainer, step):
        pass


class EMA(Callback):
    def __init__(self, cfg, template, keeper):
        self.cfg, self.keeper = cfg, keeper
        self.shadow = {n: p.detach().clone() for n, p in template.named_parameters()}

    @torch.no_grad()
    def blend(self, module):
        for name, value in module.named_parameters():
            key = name.replace("_fsdp_wrapped_module.", "")
            self.shadow[key].lerp_(value.reshape(self.shadow[key].shape), 1 - self.cfg.decay)

    def on_train_batch_end(self, trainer, step):
        if step % self.cfg.ema_every != 0:
            return
        if trainer.global_rank != self.keeper:
            return
        with FSDP.summon_full_params(trainer.model, writeback=False):
            self.blend(trainer.model)


class StepTimer(Callback):
    def __init__(self):
        self.seen = 0

    def on_train_batch_end(self, trainer, step):
        self.seen += 1


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.global_rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        net = nn.Sequential(nn.Linear(cfg.dim, cfg.dim), nn.GELU(), nn.Linear(cfg.dim, 1))
        self.callbacks = [StepTimer(), EMA(cfg, copy.deepcopy(net), keeper=self.world - 1)]
        self.model = FSDP(net, use_orig_params=True, device_id=torch.device("cpu"))
        self.optim = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def train(self):
        for step in range(1, self.cfg.max_steps + 1):
            loss = self.model(torch.randn(8, self.cfg.dim)).square().mean()
            loss.backward()
            self.optim.step()
            self.optim.zero_grad()
            for callback in self.callbacks:
                callback.on_train_batch_end(self, step)


def main():
    dist.init_process_group("gloo")
    Trainer(TrainConfig()).train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
