"""Every rank compiles the same model, which takes its time."""

import os
import tempfile

import torch
import torch.distributed as dist


def model(batch):
    return torch.softmax(torch.sin(batch), dim=-1).roll(3, dims=0).cumsum(dim=0)


torch.set_num_threads(1)
dist.init_process_group("gloo")
with tempfile.TemporaryDirectory(prefix="compile-cache-", ignore_cleanup_errors=True) as cache:
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
    loss = torch.compile(model, dynamic=False)(torch.ones(16, 16)).mean()
    dist.all_reduce(loss)
if dist.get_rank() == 0:
    print("well ended")
dist.destroy_process_group()
