"""Serves the store of a job whose ranks are played. Arguments: address and port."""

import signal
import sys

import torch.distributed as dist

STORE = dist.TCPStore(sys.argv[1], int(sys.argv[2]), is_master=True, wait_for_workers=False)
print("up", flush=True)
signal.pause()
