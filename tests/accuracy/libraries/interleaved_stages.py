# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD201", "HD202"]
# culprits_any = [[1, 2], [1], [2], [0, 1, 2]]
# lines = [37, 68, 69, 72, 73, 80, 81]
# source = "pytorch/pytorch#172668"
# ///
"""Pipeline training on three stages: one forward, one backward in the steady state, with plain sends and receives."""
import argparse
import logging
import os

import torch
import torch.distributed as dist

log = logging.getLogger("pipeline")


class Link:
    """Messages between neighbours; a stage without a neighbour on a side says nothing there."""

    def __init__(self, rank, world, shape):
        self.previous = rank - 1 if rank > 0 else None
        self.next = rank + 1 if rank < world - 1 else None
        self.shape = shape

    def receive(self, peer):
        if peer is None:
            return None
        buffer = torch.empty(self.shape)
        dist.recv(buffer, src=peer)
        return buffer

    def send(self, tensor, peer):
        if peer is not None:
            dist.send(tensor.contiguous(), dst=peer)


class Stage:
    def __init__(self, width):
        torch.manual_seed(width)
        self.block = torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.Tanh())
        self.kept = []

    def forward(self, inputs, batch):
        inputs = batch if inputs is None else inputs
        inputs = inputs.detach().requires_grad_()
        outputs = self.block(inputs)
        self.kept.append((inputs, outputs))
        return outputs.detach()

    def backward(self, gradient):
        inputs, outputs = self.kept.pop(0)
        if gradient is None:
            outputs.square().mean().backward()
        else:
            outputs.backward(gradient)
        return inputs.grad


class Schedule:
    def __init__(self, stage, link, rank, world):
        self.stage, self.link = stage, link
        self.warmup = world - 1 - rank

    def forward_step(self, batch):
        outputs = self.stage.forward(self.link.receive(self.link.previous), batch)
        self.link.send(outputs, self.link.next)

    def backward_step(self):
        gradient = self.stage.backward(self.link.receive(self.link.next))
        self.link.send(gradient, self.link.previous)

    def run(self, batches):
        warmup = min(self.warmup, len(batches))
        for batch in batches[:warmup]:
            self.forward_step(batch)
        for batch in batches[warmup:]:
            self.forward_step(batch)
            self.backward_step()
        for _ in range(warmup):
            self.backward_step()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--full", type=int, default=4, help="micro-batches of a step once the ramp is over")
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format=f"[{os.environ['RANK']}] %(message)s")
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    stage = Stage(args.width)
    schedule = Schedule(stage, Link(rank, world, (8, args.width)), rank, world)
    optimizer = torch.optim.SGD(stage.block.parameters(), lr=0.01)
    for step in range(args.steps):
        ramp = 1 if step < 5 else args.full
        generator = torch.Generator().manual_seed(step)
        batches = [torch.randn(8, args.width, generator=generator) for _ in range(ramp)]
        schedule.run(batches)
        optimizer.step()
        optimizer.zero_grad()
        if step % 5 == 4:
            log.info("step %d", step)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
