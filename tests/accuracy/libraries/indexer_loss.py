# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["megatron.core"]
# outcome = "hang"
# causes_any = ["HD101", "HD109", "HD106"]
# culprits = [0]
# lines = [53, 72, 75]
# branch = ["\"values\" not in tracker", "self.indexer is not None", "if ratio"]
# source = "https://github.com/NVIDIA/Megatron-LM/issues/4745"
# ///
"""Layer-wise auxiliary losses collected over the pipeline stages of a sparse-attention model."""
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from torch import nn

log = logging.getLogger("pretrain")


@dataclass
class ModelConfig:
    pipeline: int = 4
    layers: int = 8
    width: int = 12
    compress_ratios: tuple = (0, 0, 128, 0, 4, 0, 4, 128)
    indexer_coeff: float = 0.01
    iterations: int = 30
    log_interval: int = 10


class LossTracker:
    """Keeps the indexer losses of the layers of this stage, by layer number."""

    _values: dict = {}

    @classmethod
    def tracker(cls):
        return cls._values

    @classmethod
    def record(cls, loss, layer, layers):
        tracker = cls.tracker()
        if "values" not in tracker:
            tracker["values"] = torch.zeros(layers)
        tracker["values"][layer] += loss.detach()

    @classmethod
    def reduce(cls):
        tracker = cls.tracker()
        if "values" not in tracker:
            return
        dist.all_reduce(tracker["values"], group=parallel_state.get_pipeline_model_parallel_group())

    @classmethod
    def flush(cls, iteration):
        cls.reduce()
        tracker = cls.tracker()
        if "values" in tracker and parallel_state.is_pipeline_last_stage():
            log.info("iteration %d indexer losses %s", iteration, [round(v, 5) for v in tracker["values"].tolist()])
        tracker.clear()


class Attention(nn.Module):
    def __init__(self, cfg, number, ratio):
        super().__init__()
        self.cfg = cfg
        self.number = number
        self.project = nn.Linear(cfg.width, cfg.width)
        self.indexer = nn.Linear(cfg.width, 1) if ratio else None

    def forward(self, h):
        if self.indexer is not None:
            score = self.indexer(h).squeeze(-1).softmax(-1)
            loss = self.cfg.indexer_coeff * -(score * score.clamp_min(1e-9).log()).sum(-1).mean()
            LossTracker.record(loss, self.number, self.cfg.layers)
            h = h * score.unsqueeze(-1)
        return h + torch.tanh(self.project(h))


class Stage(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        per_stage = cfg.layers // cfg.pipeline
        first = parallel_state.get_pipeline_model_parallel_rank() * per_stage
        self.layers = nn.ModuleList(
            Attention(cfg, n, cfg.compress_ratios[n]) for n in range(first, first + per_stage))

    def forward(self, h):
        for layer in self.layers:
            h = layer(h)
        return h


def forward_pass(stage, cfg, generator):
    """Activations travel down the pipeline; only the forward part is needed for the probe."""
    shape = (2, 6, cfg.width)
    if parallel_state.is_pipeline_first_stage():
        h = torch.randn(shape, generator=generator)
    else:
        h = torch.empty(shape)
        dist.recv(h, parallel_state.get_pipeline_model_parallel_prev_rank())
    h = stage(h)
    if not parallel_state.is_pipeline_last_stage():
        dist.send(h.detach(), parallel_state.get_pipeline_model_parallel_next_rank())
    return h


def main():
    logging.basicConfig(level=logging.INFO)
    cfg = ModelConfig()
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(pipeline_model_parallel_size=cfg.pipeline)
    torch.manual_seed(dist.get_rank())
    stage = Stage(cfg)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for iteration in range(1, cfg.iterations + 1):
            forward_pass(stage, cfg, generator)
            if iteration % cfg.log_interval == 0:
                LossTracker.flush(iteration)
    dist.barrier()
    parallel_state.destroy_model_parallel()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
