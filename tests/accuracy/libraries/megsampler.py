# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["megatron.core"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106"]
# culprits_any = [[0, 1], [2, 3]]
# lines = [53, 100, 108, 110]
# branch = ["len(batch) == self.micro_batch_size", "indices in self.sampler", "self.sampler"]
# source = "https://github.com/modelscope/ms-swift/pull/10141"
# ///
"""Tensor and data parallel fine-tuning on Megatron's groups with a sampler that follows consumed samples."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from megatron.core import parallel_state as mpu
from torch import nn

log = logging.getLogger("mcore-sft")


@dataclass
class Args:
    tp: int = 2
    micro_batch_size: int = 2
    samples: int = 44
    epochs: int = 2
    hidden: int = 16
    seed: int = 3


class TailSampler:
    """Deals the shuffled order out to the data parallel ranks and drops what does not fill a micro batch."""

    def __init__(self, total, micro_batch_size, dp_rank, dp_size, seed):
        self.total, self.micro_batch_size = total, micro_batch_size
        self.dp_rank, self.dp_size, self.seed = dp_rank, dp_size, seed
        self.consumed_samples = 0

    @property
    def epoch(self):
        return self.consumed_samples // self.total

    def __iter__(self):
        g = torch.Generator().manual_seed(self.seed + self.epoch)
        order = torch.randperm(self.total, generator=g).tolist()[self.dp_rank::self.dp_size]
        batch = []
        for idx in order:
            batch.append(idx)
            if len(batch) == self.micro_batch_size:
                self.consumed_samples += self.micro_batch_size * self.dp_size
                yield batch
                batch = []


class RowParallel(nn.Module):
    def __init__(self, d_in, d_out, group):
        super().__init__()
        self.group = group
        self.weight = nn.Parameter(torch.randn(d_out, d_in // group.size()) * 0.1)

    def forward(self, x):
        r, n = self.group.rank(), self.weight.shape[1]
        return TPReduce.apply(x[:, r * n:(r + 1) * n] @ self.weight.t(), self.group)


class TPReduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, group):
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, g):
        return g, None


class Finetuner:
    def __init__(self, args):
        self.args = args
        tp, dp = mpu.get_tensor_model_parallel_group(), mpu.get_data_parallel_group()
        torch.manual_seed(args.seed)
        self.data = torch.randn(args.samples, args.hidden)
        self.target = self.data.roll(1, -1)
        self.model = RowParallel(args.hidden, args.hidden, tp)
        self.opt = torch.optim.Adam(self.model.parameters(), 1e-2)
        self.dp = dp
        self.sampler = TailSampler(args.samples - 1, args.micro_batch_size, dp.rank(), dp.size(), args.seed)
        self.iteration = 0

    def train_step(self, indices):
        self.opt.zero_grad()
        loss = nn.functional.mse_loss(self.model(self.data[indices]), self.target[indices])
        loss.backward()
        for p in self.model.parameters():
            dist.all_reduce(p.grad, group=self.dp)
            p.grad /= self.dp.size()
        self.opt.step()
        self.iteration += 1
        return loss.detach()

    def run_epoch(self):
        last = torch.zeros(())
        for indices in self.sampler:
            last = self.train_step(indices)
        dist.barrier()
        return last.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    args = Args(samples=int(os.environ.get("SFT_SAMPLES", "44")))
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    mpu.initialize_model_parallel(tensor_model_parallel_size=args.tp)
    job = Finetuner(args)
    for epoch in range(args.epochs):
        loss = job.run_epoch()
        log.info("epoch %d it %d loss %.4f consumed %d", epoch, job.iteration, loss, job.sampler.consumed_samples)
    mpu.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
