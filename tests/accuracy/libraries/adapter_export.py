# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["safetensors"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits_any = [[0], [1]]
# lines = [38, 82, 94, 95]
# branch = ["self.args.should_save", "int(rank) == 0"]
# source = "https://github.com/huggingface/transformers/pull/35234"
# ///
"""Tune LoRA adapters of a sharded encoder and export them now and then."""
import logging
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import save_file
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

log = logging.getLogger("adapters")


@dataclass
class ExportArgs:
    folder: Path
    every: int = 8
    save_on_each_node: bool = False

    @property
    def should_save(self):
        rank = os.environ["LOCAL_RANK"] if self.save_on_each_node else os.environ["RANK"]
        return int(rank) == 0


class LoraLinear(nn.Module):
    def __init__(self, width, rank=4):
        super().__init__()
        self.base = nn.Linear(width, width).requires_grad_(False)
        self.lora_a = nn.Linear(width, rank, bias=False)
        self.lora_b = nn.Linear(rank, width, bias=False)

    def forward(self, h):
        return self.base(h) + self.lora_b(self.lora_a(h))


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.query = LoraLinear(width)
        self.value = LoraLinear(width)

    def forward(self, h):
        return h + torch.tanh(self.query(h)) * self.value(h)


class Encoder(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.layers = nn.ModuleList(Layer(width) for _ in range(depth))
        self.score = nn.Linear(width, 1)

    def forward(self, h):
        for layer in self.layers:
            h = layer(h)
        return self.score(h)


class AdapterExporter:
    def __init__(self, args, group):
        self.args = args
        self.group = group
        args.folder.mkdir(parents=True, exist_ok=True)

    @staticmethod
    def whole(tensor):
        return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor

    def export(self, model, step):
        adapters = {name: t for name, t in model.state_dict().items() if "lora_" in name}
        tensors = {name: self.whole(t).detach().clone() for name, t in adapters.items()}
        target = self.args.folder / f"adapter-{step:05d}.safetensors"
        save_file(tensors, target)
        return target

    def on_step_end(self, model, step):
        if step % self.args.every:
            return
        if self.args.should_save:
            log.info("exported %s", self.export(model, step).name)
        dist.barrier(group=self.group)


def build(mesh):
    torch.manual_seed(0)
    model = Encoder()
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model


def train(model, exporter, steps=40):
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-3)
    g = torch.Generator().manual_seed(dist.get_rank())
    for step in range(1, steps + 1):
        x = torch.randn(8, 16, generator=g)
        loss = nn.functional.mse_loss(model(x), x.mean(-1, keepdim=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        exporter.on_step_end(model, step)
    return float(loss)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    folder = Path(tempfile.gettempdir()) / f"adapters-{os.environ['MASTER_PORT']}"
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    loss = train(build(mesh), AdapterExporter(ExportArgs(folder), dist.new_group(backend="gloo")))
    log.info("final loss %.4f", loss)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
