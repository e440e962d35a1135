# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["megatron"]
# outcome = "hang"
# causes_any = ["HD303"]
# culprits = [2, 3]
# culprits_any = [[0, 1], [3], [0], [0, 3], [0, 1, 2, 3]]
# lines = [57, 54, 58, 59]
# branch = ["self.holds_tied_weights()", "is_pipeline_first_stage"]
# source = "https://github.com/NVIDIA/Megatron-LM/pull/5079"
# ///
"""Sets up Megatron-Core model parallelism (2-way pipeline, 2-way data) plus two groups of the team's own and runs a few tied-weight steps."""
import logging
import os
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from torch import nn

log = logging.getLogger("mcore")


@dataclass(frozen=True)
class Layout:
    tensor: int = 1
    pipeline: int = 2
    vocab: int = 64
    dim: int = 16
    steps: int = 6


class TeamGroups:
    """Groups on top of Megatron's: replicas that share the tied word table, and the one that takes part in exports."""

    def __init__(self, layout):
        self.layout = layout
        self.rank = dist.get_rank()
        self.tied = self.exports = None

    def holds_tied_weights(self):
        return mpu.is_pipeline_first_stage(ignore_virtual=True)

    def tied_ranks(self):
        """First-stage ranks of all replicas: rank 0 and its data-parallel peers."""
        dp = dist.get_process_group_ranks(mpu.get_data_parallel_group())
        return sorted(dp)

    def export_ranks(self):
        return [0, dist.get_world_size() - 1]

    def build(self):
        if self.holds_tied_weights():
            ranks = self.tied_ranks()
            log.info("tied weights live on ranks %s", ranks)
            self.tied = dist.new_group(ranks)
        dist.barrier(group=mpu.get_data_parallel_group())
        self.exports = dist.new_group(self.export_ranks())
        return self


class StageNet(nn.Module):
    def __init__(self, layout, first):
        super().__init__()
        self.words = nn.Embedding(layout.vocab, layout.dim) if first else None
        self.body = nn.Sequential(nn.Linear(layout.dim, layout.dim), nn.GELU())

    def forward(self, x):
        return self.body(self.words(x) if self.words is not None else x)


def reduce_gradients(model, groups):
    dp = mpu.get_data_parallel_group()
    for name, p in model.named_parameters():
        group = groups.tied if name.startswith("words") else dp
        dist.all_reduce(p.grad, group=group)
        p.grad /= dist.get_world_size(group)


def train(layout, groups):
    torch.manual_seed(1)
    first = mpu.is_pipeline_first_stage(ignore_virtual=True)
    model = StageNet(layout, first)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    gen = torch.Generator().manual_seed(groups.rank)
    peer = mpu.get_pipeline_model_parallel_next_rank() if first else mpu.get_pipeline_model_parallel_prev_rank()
    for step in range(layout.steps):
        if first:
            hidden = model(torch.randint(0, layout.vocab, (8,), generator=gen))
            dist.send(hidden.detach(), peer)
            grad = torch.empty_like(hidden)
            dist.recv(grad, peer)
            opt.zero_grad()
            hidden.backward(grad)
        else:
            hidden = torch.empty(8, layout.dim)
            dist.recv(hidden, peer)
            hidden.requires_grad_()
            loss = (model(hidden) ** 2).mean()
            opt.zero_grad()
            loss.backward()
            dist.send(hidden.grad, peer)
            log.info("step %d loss %.4f", step, loss.item())
        reduce_gradients(model, groups)
        opt.step()


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    layout = Layout()
    mpu.initialize_model_parallel(tensor_model_parallel_size=layout.tensor, pipeline_model_parallel_size=layout.pipeline,
                                  create_gloo_process_groups=False, nccl_communicator_config_path=None)
    groups = TeamGroups(layout).build()
    train(layout, groups)
    if groups.rank in groups.export_ranks():
        dist.barrier(group=groups.exports)
    mpu.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
