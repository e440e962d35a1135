# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["megatron.core"]
# outcome = "hang"
# causes_any = ["HD101", "HD107", "HD106"]
# culprits_any = [[2, 3], [0, 1]]
# lines = [87, 89]
# branch = ["loss_mask.sum() > 0"]
# source = "https://github.com/NVIDIA-NeMo/Speech/pull/5424"
# ///
"""Masked LM on tensor-parallel ranks with megatron-core: TP 2, DP 2."""
import logging
import warnings
from dataclasses import dataclass

import torch
import torch.distributed as dist

warnings.filterwarnings("ignore")
from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel.cross_entropy import vocab_parallel_cross_entropy  # noqa: E402
from megatron.core.tensor_parallel.mappings import (  # noqa: E402
    copy_to_tensor_model_parallel_region,
    reduce_from_tensor_model_parallel_region,
)

log = logging.getLogger("mlm")


@dataclass
class MlmConfig:
    tp: int = 2
    vocab: int = 64
    hidden: int = 16
    seq: int = 12
    micro: int = 2
    iters: int = 80
    mask_prob: float = 0.15
    lr: float = 0.05


class SplitMlp(torch.nn.Module):
    """Column-parallel then row-parallel, and a vocabulary-parallel output."""

    def __init__(self, cfg: MlmConfig):
        super().__init__()
        tp = parallel_state.get_tensor_model_parallel_world_size()
        g = torch.Generator().manual_seed(11 + parallel_state.get_tensor_model_parallel_rank())
        self.embed = torch.nn.Parameter(torch.randn(cfg.vocab, cfg.hidden, generator=torch.Generator().manual_seed(1)) * 0.1)
        self.up = torch.nn.Parameter(torch.randn(cfg.hidden * 4 // tp, cfg.hidden, generator=g) * 0.1)
        self.down = torch.nn.Parameter(torch.randn(cfg.hidden, cfg.hidden * 4 // tp, generator=g) * 0.1)
        self.vocab_shard = torch.nn.Parameter(torch.randn(cfg.vocab // tp, cfg.hidden, generator=g) * 0.1)

    def forward(self, tokens):
        h = self.embed[tokens]
        inner = torch.relu(copy_to_tensor_model_parallel_region(h) @ self.up.t())
        h = h + reduce_from_tensor_model_parallel_region(inner @ self.down.t())
        return copy_to_tensor_model_parallel_region(h) @ self.vocab_shard.t()


class MaskedBatches:
    """Documents of this data-parallel replica; packed tails may be padding only."""

    def __init__(self, cfg: MlmConfig):
        self.cfg = cfg
        self.g = torch.Generator().manual_seed(50 + parallel_state.get_data_parallel_rank())

    def __iter__(self):
        c = self.cfg
        for _ in range(c.iters):
            tokens = torch.randint(1, c.vocab, (c.micro, c.seq), generator=self.g)
            lengths = torch.randint(0, c.seq, (c.micro, 1), generator=self.g)
            chosen = torch.rand(c.micro, c.seq, generator=self.g) < c.mask_prob
            yield tokens, (chosen & (torch.arange(c.seq) < lengths)).float()


class Pretrainer:
    def __init__(self, cfg: MlmConfig):
        self.cfg = cfg
        self.model = SplitMlp(cfg)
        self.opt = torch.optim.SGD(self.model.parameters(), lr=cfg.lr)
        self.iteration = 0

    def loss_func(self, loss_mask, per_token):
        """The masked mean over all replicas, as the reports want it, and the local loss."""
        summed = (per_token * loss_mask).sum()
        if loss_mask.sum() > 0:
            totals = torch.stack([summed.detach(), loss_mask.sum()])
            dist.all_reduce(totals, group=parallel_state.get_data_parallel_group())
            return summed / loss_mask.sum(), (totals[0] / totals[1]).item()
        return summed * 0.0, 0.0

    def sync_grads(self):
        group = parallel_state.get_data_parallel_group()
        for p in self.model.parameters():
            gathered = [torch.empty_like(p.grad) for _ in range(dist.get_world_size(group))]
            dist.all_gather(gathered, p.grad, group=group)
            p.grad.copy_(torch.stack(gathered).mean(0))

    def train_step(self, tokens, loss_mask):
        self.opt.zero_grad()
        logits = self.model(tokens).transpose(0, 1).contiguous()
        per_token = vocab_parallel_cross_entropy(logits, tokens.t().contiguous()).t()
        loss, report = self.loss_func(loss_mask, per_token)
        loss.backward()
        self.sync_grads()
        self.opt.step()
        return report

    def train(self):
        for tokens, loss_mask in MaskedBatches(self.cfg):
            report = self.train_step(tokens, loss_mask)
            self.iteration += 1
            if dist.get_rank() == 0:
                log.info("iteration %d lm loss %.4f", self.iteration, report)


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    cfg = MlmConfig()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=cfg.tp)
    Pretrainer(cfg).train()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
