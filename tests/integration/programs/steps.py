"""Compiled training steps and some messages. At the very end it says whether torch has its own functions back."""

import atexit


def tell():
    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader

    where = [torch.autograd.backward.__code__, dataloader._BaseDataLoaderIter.__next__.__code__]
    hooks = len(optimizer._global_optimizer_pre_hooks) + len(optimizer._global_optimizer_post_hooks)
    clean = hooks == 0 and not any("hangdoc" in code.co_filename for code in where)
    print("clean\n" if clean else "hooked\n", end="", flush=True)


def main():
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, TensorDataset

    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    compiled = torch.compile(model, backend="eager")
    steps = torch.optim.SGD(model.parameters(), lr=0.01)
    for x, y in DataLoader(TensorDataset(torch.randn(12, 4), torch.randn(12, 1)), batch_size=1):
        steps.zero_grad()
        torch.nn.functional.mse_loss(compiled(x), y).backward()
        steps.step()
    if dist.get_rank() == 0:
        dist.send(torch.ones(1), 1)
    else:
        dist.recv(torch.ones(1), 0)
    dist.barrier()
    dist.destroy_process_group()


atexit.register(tell)  # before anything of torch is imported, so called last of all
main()
