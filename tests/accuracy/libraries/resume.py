# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["torchdata"]
# outcome = "hang"
# causes_any = ["HD102", "HD103", "HD101", "HD106"]
# culprits_any = [[1], [0, 2]]
# lines = [59, 94, 115]
# branch = ["batch in self.loader", "self.loader", "except (EOFError, RuntimeError, pickle.UnpicklingError)", "(EOFError, RuntimeError, pickle.UnpicklingError)"]
# source = "https://github.com/KempnerInstitute/KempnerForge/issues/57"
# ///
"""Pre-training that survives preemption: model in one file, the loader's position in one file per rank."""
import logging
import os
import pickle
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import Dataset, DistributedSampler
from torchdata.stateful_dataloader import StatefulDataLoader

log = logging.getLogger("forge")


class Tokens(Dataset):
    def __init__(self, n=360, length=16, vocab=48):
        self.ids = torch.randint(0, vocab, (n, length), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


class StateStore:
    """Directory `step_N` per checkpoint, newest first when reading."""

    def __init__(self, root, rank):
        self.root, self.rank = Path(root), rank

    def path(self, step):
        return self.root / f"step_{step:05d}" / f"loader_{self.rank}.pt"

    def save(self, step, state, quota=None):
        path = self.path(step)
        path.parent.mkdir(parents=True, exist_ok=True)
        blob = pickle.dumps(state)
        path.write_bytes(blob if quota is None else blob[:quota])

    def latest(self):
        for path in sorted(self.root.glob(f"step_*/loader_{self.rank}.pt"), reverse=True):
            try:
                return pickle.loads(path.read_bytes())
            except (EOFError, RuntimeError, pickle.UnpicklingError):
                log.warning("%s is unreadable, trying an older one", path)
        return None


def make_loader(rank, world):
    ds = Tokens()
    sampler = DistributedSampler(ds, world, rank, shuffle=False)
    return StatefulDataLoader(ds, batch_size=4, sampler=sampler, num_workers=0)


def earlier_run(store, rank, world, every=6, stop=13):
    """What the preempted job left behind: it was cut off while the last states were being written."""
    loader = make_loader(rank, world)
    for step, _ in enumerate(loader, 1):
        if step % every == 0:
            full = step + every > stop and rank % 3 == 1
            store.save(step, {"loader": loader.state_dict(), "step": step}, quota=40 if full else None)
        if step == stop:
            break


class Pretrain:
    def __init__(self, rank, world, store, vocab=48):
        torch.manual_seed(0)
        self.net = DDP(nn.Sequential(nn.Embedding(vocab, 16), nn.Linear(16, vocab)))
        self.opt = torch.optim.AdamW(self.net.parameters(), 1e-3)
        self.loader = make_loader(rank, world)
        self.seen = 0
        state = store.latest()
        if state is not None:
            self.loader.load_state_dict(state["loader"])
            self.seen = state["step"]

    def finish_epoch(self):
        for batch in self.loader:
            logits = self.net(batch[:, :-1])
            loss = nn.functional.cross_entropy(logits.transpose(1, 2), batch[:, 1:])
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            self.seen += 1
        return loss.item()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(hours=1))
    rank, world = dist.get_rank(), dist.get_world_size()
    box = [tempfile.mkdtemp(prefix="forge_%s_" % os.environ["MASTER_PORT"]) if rank == 0 else None]
    dist.broadcast_object_list(box)
    store = StateStore(box[0], rank)
    earlier_run(store, rank, world)
    job = Pretrain(rank, world, store)
    loss = job.finish_epoch()
    dist.barrier()
    log.info("[%d] epoch done after %d batches, loss %.4f", rank, job.seen, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
