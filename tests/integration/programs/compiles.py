"""Every rank compiles the same model, with a backend that takes its time, and a third of a processor."""

import os
import time

import torch
import torch.distributed as dist

SECONDS = float(os.environ.get("PAUSE", "9"))


def model(batch):
    return torch.softmax(torch.sin(batch), dim=-1).roll(3, dims=0).cumsum(dim=0)


def thorough(graph, _):
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        for _ in range(400):
            graph.graph.lint()
        time.sleep(0.004)
    return graph.forward


dist.init_process_group("gloo")
loss = torch.compile(model, dynamic=False, backend=thorough)(torch.ones(16, 16)).mean()
dist.all_reduce(loss)
if dist.get_rank() == 0:
    print("well ended")
dist.destroy_process_group()
