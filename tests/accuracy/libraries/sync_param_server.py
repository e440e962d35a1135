# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD109", "HD508"]
# culprits_any = [[3], [1, 2], [0, 3]]
# lines = [36, 37, 38, 88, 90, 104]
# branch = ["x, y in self.click_log", "len(self.grads) < self.num_trainers", "self.version == seen", "_ in range(rows // self.batch_size)", "rows in self.days"]
# source = "https://github.com/horovod/horovod/issues/3980"
# ///
"""Click model with a synchronous parameter server: rank 0 serves, the other ranks push gradients over RPC."""
import os
import threading

import torch
import torch.distributed.rpc as rpc

NAME = "ps"
_server = None


class ParameterServer:
    """Averages one gradient from each trainer, then applies the update and lets all of them go on."""

    def __init__(self, num_trainers, dim):
        self.num_trainers = num_trainers
        self.weight = torch.zeros(dim)
        self.grads = []
        self.version = 0
        self.updated = threading.Condition()

    def push(self, grad):
        with self.updated:
            seen = self.version
            self.grads.append(grad)
            if len(self.grads) < self.num_trainers:
                while self.version == seen:
                    self.updated.wait()
            else:
                self.weight -= 0.1 * torch.stack(self.grads).mean(dim=0)
                self.grads.clear()
                self.version += 1
                self.updated.notify_all()
            return self.weight.clone()


def host_server(num_trainers, dim):
    global _server
    _server = ParameterServer(num_trainers, dim)


def push_gradient(grad):
    return _server.push(grad)


class ClickLog:
    """Log of the days assigned to a trainer, in batches."""

    DAYS = [224, 224, 224, 224, 224, 184]

    def __init__(self, trainer, num_trainers, batch_size=8):
        self.days = self.DAYS[trainer::num_trainers]
        self.batch_size = batch_size
        self.seed = trainer

    def __iter__(self):
        gen = torch.Generator().manual_seed(self.seed)
        for rows in self.days:
            for _ in range(rows // self.batch_size):
                x = torch.randn(self.batch_size, 12, generator=gen)
                yield x, (x.sum(dim=1) > 0).float()


class Trainer:
    def __init__(self, rank, num_trainers, dim=12):
        self.rank = rank
        self.click_log = ClickLog(rank - 1, num_trainers)
        self.weight = torch.zeros(dim)
        self.rounds = 0

    def gradient(self, x, y):
        w = self.weight.requires_grad_(True)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(x @ w, y)
        (grad,) = torch.autograd.grad(loss, w)
        return grad

    def run(self):
        for x, y in self.click_log:
            grad = self.gradient(x, y)
            self.weight = rpc.rpc_sync(NAME, push_gradient, args=(grad,))
            self.rounds += 1
        print(f"trainer {self.rank}: {self.rounds} rounds", flush=True)


def main():
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    trainers = world - 1
    if rank == 0:
        host_server(trainers, 12)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=16, rpc_timeout=7200, _transports=["uv"])
    rpc.init_rpc(NAME if rank == 0 else f"trainer{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    if rank > 0:
        Trainer(rank, trainers).run()
    rpc.shutdown(timeout=7200)


if __name__ == "__main__":
    main()
