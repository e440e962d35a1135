"""A rank waits for a store key that is spelt in another way.

Rank 0 publishes the address of its parameter server in the store, the other ranks read it from there. The
reader builds the key from its own rank, the writer from 0: ranks 1 and 2 wait for keys that nobody sets,
and rank 0 waits for them in a barrier.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD305"
# culprits = [1, 2]
# lines = [32]
# code = ["return store.get(f\"server/{rank}\").decode()"]
# source = "constructed"
# ///

import os

import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


def find_server(store, rank):
    if rank == 0:
        store.set("server/0", "127.0.0.1:4000")
    if FIXED:
        return store.get("server/0").decode()
    if rank > 0:
        return store.get(f"server/{rank}").decode()
    return "127.0.0.1:4000"


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, wait_for_workers=False
    )
    find_server(dist.PrefixStore("servers", store), rank)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
