"""Two ranks train that were forked, or spawned, by a process which has a store and has recorded steps of its own."""

import multiprocessing
import socket
import sys

import torch
import torch.distributed as dist


def work(rank, port):
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    model = torch.nn.Linear(4, 1)
    steps = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        steps.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        for each in model.parameters():
            dist.all_reduce(each.grad)
        steps.step()
    dist.barrier()
    dist.destroy_process_group()


def main():
    store = dist.TCPStore("127.0.0.1", 0, 1, True)
    weight = torch.ones(1, requires_grad=True)
    weight.grad = torch.ones(1)
    for _ in range(5):
        torch.optim.SGD([weight], lr=0.01).step()
    context = multiprocessing.get_context(sys.argv[1])
    port = free_port()
    ranks = [context.Process(target=work, args=(rank, port)) for rank in range(2)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join()
    del store
    return max(rank.exitcode != 0 for rank in ranks)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    sys.exit(main())
