"""A process of another job: it has the port that RANK 0 of this one should listen on. Says so, and stays."""

import os
import time

import torch.distributed as dist

store = dist.TCPStore("localhost", int(os.environ["HELD_PORT"]), is_master=True, wait_for_workers=False)
print("ready", flush=True)
time.sleep(120)
