# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# causes_any = ["HD109", "HD101"]
# culprits = [0]
# lines = [75, 83, 87, 89]
# branch = ["self.dp_rank != 0", "self.dp_rank == 0", "self.enabled"]
# source = "https://github.com/huggingface/accelerate/issues/3250"
# ///
"""FSDP2 training of a small transformer with a histogram report of the weights every few steps
(the report object is silent on the other processes)."""
import logging
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("report")


@dataclass
class ReportConfig:
    vocab: int = 40
    width: int = 16
    heads: int = 2
    layers: int = 2
    steps: int = 30
    report_every: int = 6
    buckets: int = 8


class Block(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.norm = nn.LayerNorm(cfg.width)
        self.attn = nn.MultiheadAttention(cfg.width, cfg.heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(cfg.width, 2 * cfg.width), nn.GELU(), nn.Linear(2 * cfg.width, cfg.width))

    def forward(self, x):
        h = self.norm(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        return x + self.mlp(x)


class TinyLm(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.width)
        self.blocks = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.head = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, ids):
        x = self.emb(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class WeightReport:
    """Writes a histogram per matrix; on by default for the first data-parallel rank."""

    def __init__(self, model, cfg, mesh):
        self.model, self.cfg = model, cfg
        self.dp_rank = mesh.get_local_rank("dp")
        self.rows = []

    @property
    def enabled(self):
        return self.dp_rank == 0

    def matrices(self):
        for name, weight in self.model.named_parameters():
            if weight.ndim == 2 and "emb" not in name:
                yield name, weight.detach()

    def histogram(self, weight):
        whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
        return torch.histc(whole.float(), bins=self.cfg.buckets).int().tolist()

    def __call__(self, step):
        if not self.enabled or step % self.cfg.report_every:
            return
        row = {name: self.histogram(weight) for name, weight in self.matrices()}
        self.rows.append((step, row))
        log.info("step %d: %d matrices in the report", step, len(row))


class LmTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("dp",))
        torch.manual_seed(1)
        self.model = TinyLm(cfg)
        policy = MixedPrecisionPolicy()
        for block in self.model.blocks:
            fully_shard(block, mesh=mesh["dp"], mp_policy=policy)
        fully_shard(self.model, mesh=mesh["dp"], mp_policy=policy)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.losses = []
        self.hooks = [WeightReport(self.model, cfg, mesh)]

    def fit(self):
        gen = torch.Generator().manual_seed(dist.get_rank())
        for step in range(1, self.cfg.steps + 1):
            ids = torch.randint(0, self.cfg.vocab, (2, 9), generator=gen)
            logits = self.model(ids[:, :-1])
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
            for hook in self.hooks:
                hook(step)
            mean = loss.detach().reshape(1).clone()
            dist.all_reduce(mean, op=dist.ReduceOp.SUM)
            self.losses.append(mean.item() / dist.get_world_size())


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    LmTrainer(ReportConfig()).fit()
    dist.destroy_process_group()
