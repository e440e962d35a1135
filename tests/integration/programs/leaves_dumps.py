"""A job whose recorders leave their dumps in files, as NCCL's watchdog does; rank 1 skips a call.

gloo has no such watchdog, so a thread of each rank writes the file, once the main thread has long been waiting. With
ABORT=1 it then ends the process, as the watchdog does after a time-out: the main threads have issued all calls by then,
and wait for none.
"""

import os
import threading
import time
from datetime import timedelta

import torch
import torch.distributed as dist

ABORT = os.environ.get("ABORT") == "1"


def write_dump(rank):
    """What PyTorch's DebugInfoWriter does after a time-out."""
    time.sleep(float(os.environ["DUMP_AFTER"]))
    dump = torch._C._distributed_c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
    with open(f"{os.environ['TORCH_FR_DUMP_TEMP_FILE']}{rank}", "wb") as file:
        file.write(dump)
    if ABORT:
        time.sleep(3)  # gloo takes a call that timed out for completed, which NCCL does not
        os.abort()


def train(rank):
    """Step 3 has a call more on rank 0."""
    for step in range(6):
        loss = torch.ones(4)
        if step != 3 or rank == 0:
            dist.all_reduce(loss, async_op=ABORT)
    dist.barrier(async_op=ABORT)
    threading.Event().wait()


def main():
    """Run a rank to its hang."""
    dist.init_process_group("gloo", timeout=timedelta(seconds=4) if ABORT else None)
    torch._C._distributed_c10d._dump_fr_trace(includeCollectives=True, includeStackTraces=True, onlyActive=False)
    threading.Thread(target=write_dump, args=(dist.get_rank(),), daemon=True).start()
    train(dist.get_rank())


main()
