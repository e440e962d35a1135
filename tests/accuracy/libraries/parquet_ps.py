# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["pyarrow"]
# outcome = "hang"
# causes_any = ["HD102", "HD702"]
# culprits = [3]
# culprits_any = [[0]]
# lines = [95, 94, 99, 58, 116, 82, 64]
# branch = ["in reader.batches(", "len(self.pending) == self.quorum", "epoch in range(2)"]
# source = "https://github.com/DeepRec-AI/HybridBackend/issues/96"
# ///
"""Synchronous parameter server over RPC: trainers read Parquet parts, the server applies the mean of a round's gradients."""
import logging
import os
import tempfile
import threading
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.distributed.rpc as rpc
from torch import nn

log = logging.getLogger("ps")
FEATURES = 10
ROW_GROUPS = {1: [512, 512, 512], 2: [512, 512, 512], 3: [512, 512, 130]}


class Tower(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.net = nn.Sequential(nn.Linear(FEATURES, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, x):
        return self.net(x).squeeze(-1)


class ParameterServer:
    def __init__(self, quorum: int, lr: float = 0.05):
        self.quorum, self.lr = quorum, lr
        self.model = Tower()
        self.lock = threading.Lock()
        self.pending, self.answer, self.version = [], torch.futures.Future(), 0

    def snapshot(self):
        return [p.detach().clone() for p in self.model.parameters()]

    @staticmethod
    @rpc.functions.async_execution
    def push(ps_ref, trainer, grads):
        self = ps_ref.local_value()
        with self.lock:
            self.pending.append(grads)
            answer = self.answer
            if len(self.pending) == self.quorum:
                with torch.no_grad():
                    for i, p in enumerate(self.model.parameters()):
                        p -= self.lr * sum(g[i] for g in self.pending) / self.quorum
                self.version += 1
                self.pending, self.answer = [], torch.futures.Future()
                answer.set_result((self.version, self.snapshot()))
        return answer


class PartReader:
    def __init__(self, part: Path, batch: int = 256):
        self.file, self.batch = pq.ParquetFile(part), batch

    def batches(self, columns):
        for rec in self.file.iter_batches(batch_size=self.batch, columns=columns):
            x = np.column_stack([rec.column(c).to_numpy() for c in columns[:-1]])
            yield torch.from_numpy(x).float(), torch.from_numpy(rec.column(columns[-1]).to_numpy().copy()).float()


def write_part(folder: Path, trainer: int) -> Path:
    rng = np.random.default_rng(trainer)
    path = folder / f"part-{trainer:05d}.parquet"
    with pq.ParquetWriter(path, pa.schema([(f"f{i}", pa.float64()) for i in range(FEATURES)] + [("label", pa.float64())])) as out:
        for rows in ROW_GROUPS[trainer]:
            cols = {f"f{i}": rng.normal(size=rows) for i in range(FEATURES)}
            cols["label"] = (cols["f0"] > 0).astype(np.float64)
            out.write_table(pa.table(cols))
    return path


def train(trainer: int, ps_ref) -> None:
    folder = Path(tempfile.mkdtemp(prefix="parts-", dir=os.environ.get("TMPDIR")))
    reader = PartReader(write_part(folder, trainer))
    model, loss_fn = Tower(), nn.BCEWithLogitsLoss()
    columns = [f"f{i}" for i in range(FEATURES)] + ["label"]
    for epoch in range(2):
        for x, y in reader.batches(columns):
            model.zero_grad()
            loss_fn(model(x), y).backward()
            grads = [p.grad for p in model.parameters()]
            version, weights = rpc.rpc_sync("ps", ParameterServer.push, args=(ps_ref, trainer, grads))
            with torch.no_grad():
                for p, w in zip(model.parameters(), weights):
                    p.copy_(w)
        log.info("trainer %d: epoch %d done at version %d", trainer, epoch, version)


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    name = "ps" if rank == 0 else f"trainer{rank}"
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=8, rpc_timeout=3600)
    rpc.init_rpc(name, rank=rank, world_size=world, rpc_backend_options=options)
    if name != "ps":
        ps_ref = rpc.remote("ps", ParameterServer, args=(world - 1,)) if rank == 1 else None
        ps_ref = share(ps_ref, rank)
        train(rank, ps_ref)
    rpc.shutdown()


_handle: "torch.futures.Future" = torch.futures.Future()


def _offer(ref) -> None:
    _handle.set_result(ref)


def share(ref, rank: int):
    """The first trainer owns the server's creation and hands the reference on."""
    if ref is None:
        return _handle.wait()
    for other in range(2, int(os.environ["WORLD_SIZE"])):
        rpc.rpc_sync(f"trainer{other}", _offer, args=(ref,))
    return ref


if __name__ == "__main__":
    main()
