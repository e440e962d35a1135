"""Each rank waits for the other's key, both under a prefix with their own agent's count of restarts: the rank of node b
fails once, and the agent of node a does not count that."""

import os

import torch.distributed as dist

dist.init_process_group("gloo")
rank, attempt = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"]
if os.environ["NODE"] == "b" and attempt == "0":
    raise RuntimeError("the first try of node b fails")
store = dist.PrefixStore(f"attempt-{attempt}", dist.distributed_c10d._get_default_store())
store.set(f"endpoint/{rank}", "here")
store.get(f"endpoint/{1 - rank}")
