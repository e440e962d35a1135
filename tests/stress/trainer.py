"""A small DDP job with every phase of a real one: the same weights every time, told in ``argv[1]``/RANK.json.

``argv[2]``, if given, is a FIFO: after the second epoch rank 1 sits in state D until somebody opens it.
"""

import json
import os
import sys
import time
from pathlib import Path

FOLDER = Path(sys.argv[1])
RANK = int(os.environ["RANK"])


def phase(name):
    temporary = FOLDER / f"{RANK}.phase.new"
    temporary.write_text(name)
    temporary.replace(FOLDER / f"{RANK}.phase")


phase("import")
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

EPOCHS, STEPS = 4, 50


class Numbers(Dataset):
    def __len__(self):
        return STEPS * 8

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(1000 * RANK + index)
        time.sleep(0.004)
        return torch.randn(64, generator=generator)


def uninterruptible(fifo):
    """The parent of a vfork is in state D until the child runs another program; this one opens a FIFO first."""
    phase("uninterruptible")
    os.posix_spawn("/bin/true", ["true"], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 0, fifo, os.O_RDONLY, 0)])
    os.wait()


def checkpoint(model, epoch):
    phase("checkpoint")
    if RANK == 0:
        with (FOLDER / f"{epoch}.pt").open("wb") as file:
            torch.save({"model": model.state_dict(), "padding": torch.zeros(4 << 20)}, file)
            os.fsync(file.fileno())
    dist.barrier()


def train():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.Tanh(), torch.nn.Linear(256, 1))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses, seconds = [], []
    for epoch in range(EPOCHS):
        phase("dataloader")
        for batch in DataLoader(Numbers(), batch_size=8, num_workers=1):
            phase("training")
            began = time.monotonic()
            loss = (model(batch) - batch.sum(1, keepdim=True)).pow(2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item().hex())
            seconds.append(time.monotonic() - began)
        checkpoint(model, epoch)
        if epoch == 1 and RANK == 1 and len(sys.argv) > 2:
            uninterruptible(sys.argv[2])
    weights = [value.hex() for tensor in model.state_dict().values() for value in tensor.flatten().tolist()]
    return {"losses": losses, "weights": weights, "seconds": seconds}


phase("rendezvous")
if RANK == 1:
    time.sleep(1.0)
dist.init_process_group("gloo")
result = train()
phase("shutdown")
if RANK == 1:
    time.sleep(1.0)
dist.barrier()
dist.destroy_process_group()
(FOLDER / f"{RANK}.json").write_text(json.dumps(result))
