# /// hangdoc
# launch = "python"
# requires = ["torch"]
# watch = "--give-up-after 8"
# outcome = "hang"
# causes_any = ["HD201", "HD202", "HD101", "HD505"]
# culprits = [0]
# lines = [62, 63, 67, 69]
# source = "https://github.com/pytorch/pytorch/issues/44169"
# ///
"""A master drives two workers over RPC and asks them one after the other, with rpc_sync, to run an epoch.  The epoch
averages gradients between the workers, so the first request cannot end before the second is sent."""
import socket

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn

STATE = {}


class Replica:
    def __init__(self, seed):
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1))
        self.optimizer = torch.optim.SGD(self.net.parameters(), 0.05)
        self.gen = torch.Generator().manual_seed(seed)

    def average_gradients(self):
        group = STATE["workers"]
        for p in self.net.parameters():
            dist.all_reduce(p.grad, group=group)
            p.grad /= dist.get_world_size(group)

    def epoch(self, steps):
        for _ in range(steps):
            x = torch.randn(16, 10, generator=self.gen)
            loss = (self.net(x) - x.sum(1, keepdim=True)).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.average_gradients()
            self.optimizer.step()
        return loss.item()


def setup(seed):
    STATE["replica"] = Replica(seed)
    return True


def run_epoch(steps):
    return STATE["replica"].epoch(steps)


class Master:
    def __init__(self, workers):
        self.workers = workers

    def broadcast(self, fn, *args):
        answers = []
        for worker in self.workers:
            answers.append(rpc.rpc_sync(worker, fn, args=args))
        return answers

    def train(self, epochs):
        self.broadcast(setup, 7)
        for epoch in range(epochs):
            losses = self.broadcast(run_epoch, 25)
            print(f"epoch {epoch}: {losses}")


def free_ports(n):
    sockets = [socket.socket() for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def run_worker(rank, world, ports):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{ports[0]}", rank=rank, world_size=world)
    STATE["workers"] = dist.new_group(list(range(1, world)))
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"tcp://127.0.0.1:{ports[1]}", rpc_timeout=1800)
    rpc.init_rpc("master" if rank == 0 else f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    if rank == 0:
        Master([f"worker{r}" for r in range(1, world)]).train(3)
    rpc.shutdown()
    dist.destroy_process_group()


def main():
    mp.spawn(run_worker, args=(3, free_ports(2)), nprocs=3)


if __name__ == "__main__":
    main()
