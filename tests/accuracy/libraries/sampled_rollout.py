# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# outcome = "hang"
# causes_any = ["HD102", "HD109", "HD101"]
# culprits_any = [[0], [1]]
# lines = [46, 59, 60, 63, 78, 79, 101, 104, 105]
# branch = ["tokens.size(1) < self.max_length and not finished.all()"]
# source = "deepspeedai/DeepSpeed#8262, huggingface/transformers#30228"
# ///
"""Policy gradient for a toy language model whose layers are sharded; each rank samples its own rollouts."""
import argparse

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

EOS, PAD = 0, 1


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x):
        h = self.norm(x)
        past = h.cumsum(1) / torch.arange(1, h.size(1) + 1).view(1, -1, 1)
        return x + self.down(torch.relu(self.up(self.mix(past))))


class Policy(nn.Module):
    def __init__(self, vocab, width, depth):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Sampler:
    def __init__(self, policy, rank, max_length, temperature=1.0):
        self.policy, self.max_length, self.temperature = policy, max_length, temperature
        self.generator = torch.Generator().manual_seed(17 + 5 * rank)

    @torch.no_grad()
    def rollout(self, prompts):
        tokens = prompts
        finished = torch.zeros(len(prompts), dtype=torch.bool)
        while tokens.size(1) < self.max_length and not finished.all():
            logits = self.policy(tokens)[:, -1] / self.temperature
            drawn = torch.multinomial(logits.softmax(-1), 1, generator=self.generator).squeeze(1)
            drawn = torch.where(finished, PAD, drawn)
            finished |= drawn == EOS
            tokens = torch.cat([tokens, drawn.unsqueeze(1)], 1)
        return tokens


def reward(tokens):
    return (tokens % 2 == 0).float().mean(1)


def shard(policy, mesh):
    for block in policy.blocks:
        fully_shard(block, mesh=mesh)
    return fully_shard(policy, mesh=mesh)


def update(policy, optimizer, tokens, advantage):
    scores = policy(tokens[:, :-1]).log_softmax(-1)
    chosen = scores.gather(2, tokens[:, 1:].unsqueeze(2)).squeeze(2)
    loss = -(chosen.mean(1) * advantage).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=50)
    parser.add_argument("--rollouts", type=int, default=3)
    parser.add_argument("--max-length", type=int, default=64)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(4)
    policy = shard(Policy(vocab=8, width=16, depth=2), init_device_mesh("cpu", (world,)))
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.05)
    sampler = Sampler(policy, rank, args.max_length)
    for iteration in range(args.iterations):
        prompts = torch.full((args.rollouts, 4), 2 + rank)
        tokens = sampler.rollout(prompts)
        gained = reward(tokens)
        baseline = gained.mean().clone()
        dist.all_reduce(baseline)
        update(policy, optimizer, tokens, gained - baseline / world)
        if rank == 0:
            print(f"iteration {iteration} baseline {baseline.item() / world:.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
