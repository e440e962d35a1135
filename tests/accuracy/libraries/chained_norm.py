# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["megatron"]
# outcome = "hang"
# causes_any = ["HD107", "HD106"]
# culprits = [1]
# lines = [61, 80, 79, 83, 108, 75]
# source = "https://github.com/NVIDIA/Megatron-LM/pull/6616"
# ///
"""Pipeline stages with dense and expert layers (megatron-core process groups); gradient norms are taken part by part."""
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from megatron.core import parallel_state as mpu

log = logging.getLogger("norms")
DIM = 16


class Dense(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(DIM, DIM)

    def forward(self, x):
        return x + torch.tanh(self.linear(x))


class Experts(nn.Module):
    def __init__(self, count=2):
        super().__init__()
        self.gate = nn.Linear(DIM, count)
        self.members = nn.ModuleList(nn.Linear(DIM, DIM) for _ in range(count))
        for p in self.members.parameters():
            p.is_expert = True

    def forward(self, x):
        weights = torch.softmax(self.gate(x.detach()), -1)
        return x + sum(w.unsqueeze(-1) * m(x) for w, m in zip(weights.unbind(-1), self.members))


def build_stage(index, count, pattern="DEDEDEDDE"):
    """The layers of this stage, in the order of the pattern."""
    share = len(pattern) // count
    letters = pattern[index * share:(index + 1) * share]
    torch.manual_seed(index)
    return nn.Sequential(*[Dense() if letter == "D" else Experts() for letter in letters])


class Part:
    """Parameters of one kind with the group over which their gradient norm is taken."""

    def __init__(self, kind, params, group):
        self.kind, self.params, self.group = kind, params, group

    def norm(self):
        total = sum(p.grad.square().sum() for p in self.params if p.grad is not None)
        dist.all_reduce(total, group=self.group)
        return total.sqrt().item()

    def step(self, lr, scale):
        with torch.no_grad():
            for p in self.params:
                if p.grad is not None:
                    p -= lr * scale * p.grad


class ChainedOptimizer:
    def __init__(self, module, groups, lr, clip):
        self.lr, self.clip = lr, clip
        kinds = {}
        for name, param in module.named_parameters():
            if not param.requires_grad or "gate" in name:
                continue
            kind = "expert" if getattr(param, "is_expert", False) else "dense"
            kinds.setdefault(kind, []).append(param)
        self.parts = [Part(kind, params, groups[kind]) for kind, params in kinds.items()]

    def step(self):
        norms = [part.norm() for part in self.parts]
        total = sum(n * n for n in norms) ** 0.5
        for part in self.parts:
            part.step(self.lr, min(1.0, self.clip / (total + 1e-6)))
        return total


def main():
    dist.init_process_group("gloo")
    mpu.initialize_model_parallel(tensor_model_parallel_size=1, pipeline_model_parallel_size=dist.get_world_size())
    rank = mpu.get_pipeline_model_parallel_rank()
    logging.basicConfig(level=logging.INFO, format=f"stage {rank}: %(message)s")
    stage = build_stage(rank, mpu.get_pipeline_model_parallel_world_size())
    groups = {"dense": mpu.get_model_parallel_group(), "expert": mpu.get_expert_tensor_model_pipeline_parallel_group()}
    optimizer = ChainedOptimizer(stage, groups, lr=0.05, clip=1.0)
    g = torch.Generator().manual_seed(rank)
    for step in range(30):
        x = torch.randn(8, DIM, generator=g)
        if not mpu.is_pipeline_first_stage():
            dist.recv(x, src=mpu.get_pipeline_model_parallel_prev_rank())
        out = stage(x)
        if not mpu.is_pipeline_last_stage():
            dist.send(out.detach(), dst=mpu.get_pipeline_model_parallel_next_rank())
        stage.zero_grad()
        (out - 1).square().mean().backward()
        norm = optimizer.step()
        if step % 5 == 0:
            log.info("step %d gradient norm %.4f", step, norm)
    mpu.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "1")
    main()
