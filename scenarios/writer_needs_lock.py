"""The main thread waits for a thread that waits for the main thread's lock.

A writer thread takes metrics from a queue and keeps them in a list, under a lock. To flush them, the main
thread takes the lock and, still holding it, waits until the queue is empty, which the writer cannot make it
without the lock. It happens when a value is still on its way, here on rank 1; rank 0 waits for rank 1.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# watch = "--give-up-after 8"
# outcome = "hang"
# cause = "HD505"
# culprits = [1]
# lines = [49]
# code = ["self.queue.join()"]
# source = "constructed"
# ///

import os
import queue
import threading
import time

import torch
import torch.distributed as dist

FIXED = os.environ.get("FIXED") == "1"


class Metrics:
    def __init__(self):
        self.lock = threading.Lock()
        self.queue = queue.Queue()
        self.values = []
        threading.Thread(target=self.write, name="metrics-writer", daemon=True).start()

    def write(self):
        while True:
            value = float(self.queue.get().sum())
            time.sleep(0.05)  # writes it
            with self.lock:
                self.values.append(value)
            self.queue.task_done()

    def flush(self):
        if FIXED:
            self.queue.join()
        with self.lock:
            self.queue.join()
            self.values.clear()


def train(rank):
    metrics = Metrics()
    for step in range(20):
        loss = torch.ones(4)
        dist.all_reduce(loss)
        metrics.queue.put(loss)
        if rank == 1 and step == 10:
            metrics.flush()
    dist.barrier()


def main():
    dist.init_process_group("gloo")
    train(dist.get_rank())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
