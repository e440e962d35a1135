# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD505"]
# culprits = [0]
# lines = [38, 45, 53, 58, 77]
# source = "https://github.com/pytorch/pytorch/pull/26313"
# ///
"""A parameter server under RPC. publish() holds the server's lock while it asks every trainer to acknowledge the new version, and the
trainers acknowledge by calling report(), which takes the same lock."""
import threading
from dataclasses import dataclass, field

import torch
import torch.distributed.rpc as rpc

SERVER = None
NAMES = ["ps", "trainer1", "trainer2", "trainer3"]


@dataclass
class State:
    version: int = 0
    weights: torch.Tensor = field(default_factory=lambda: torch.zeros(4))
    reports: dict = field(default_factory=dict)


class ParameterServer:
    def __init__(self):
        self.lock, self.state = threading.Lock(), State()

    def push(self, gradient):
        with self.lock:
            self.state.weights -= 0.1 * gradient
            return self.state.version

    def report(self, name, version):
        with self.lock:
            self.state.reports[name] = version

    def publish(self):
        with self.lock:
            self.state.version += 1
            for name in NAMES[1:]:
                rpc.rpc_sync(name, on_publish, args=(self.state.version, self.state.weights), timeout=0)


def server_push(gradient):
    return SERVER.push(gradient)


def server_report(name, version):
    return SERVER.report(name, version)


def on_publish(version, weights):
    me = rpc.get_worker_info().name
    rpc.rpc_sync("ps", server_report, args=(me, version), timeout=0)


def trainer(steps):
    for _ in range(steps):
        rpc.rpc_sync("ps", server_push, args=(torch.randn(4),), timeout=0)


def main():
    global SERVER
    import os

    rank = int(os.environ["RANK"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=1800)
    if rank == 0:
        SERVER = ParameterServer()
    rpc.init_rpc(NAMES[rank], rank=rank, world_size=4, rpc_backend_options=options)
    if rank == 0:
        for _ in range(3):
            SERVER.publish()
    else:
        trainer(20)
    rpc.shutdown()


if __name__ == "__main__":
    main()
