# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["megatron.core"]
# outcome = "hang"
# causes_any = ["HD107", "HD106"]
# culprits_any = [[1, 2], [0, 3], [0, 1, 2, 3]]
# lines = [64, 68, 69, 86, 100, 101]
# branch = ["for name in sorted(self.pending, key=self._backlog, reverse=True)", "sorted(self.pending, key=self._backlog, reverse=True)", "name in sorted(self.pending", "len(self.pending[name])", "skewed", "used[expert] <= limit"]
# source = "https://github.com/pytorch/pytorch/issues/130102"
# ///
"""Router statistics of a mixture-of-experts layer, kept per parallel group and flushed at the end of a round."""
import logging
import warnings
from collections import defaultdict
from dataclasses import dataclass

warnings.filterwarnings("ignore")

import torch
import torch.distributed as dist
from megatron.core import parallel_state

log = logging.getLogger("router")


@dataclass
class RouterConfig:
    experts: int = 8
    hidden: int = 6
    tokens: int = 40
    rounds: int = 30
    drift_from: int = 9


class Router(torch.nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.gate = torch.nn.Linear(cfg.hidden, cfg.experts, bias=False)

    def forward(self, x):
        return torch.softmax(self.gate(x), dim=-1)


class GroupStatistics:
    """Counters by scope: tensor-parallel peers share the dropped tokens, data-parallel peers the expert loads."""

    def __init__(self, experts):
        self.experts = experts
        self.groups = {
            "dropped": parallel_state.get_tensor_model_parallel_group(),
            "loads": parallel_state.get_data_parallel_group(),
        }
        self.pending = defaultdict(list)
        self.totals = {}

    def record(self, name, expert):
        self.pending[name].append(expert)

    def _backlog(self, name):
        return len(self.pending[name])

    def _reduce(self, name):
        counts = torch.bincount(torch.tensor(self.pending[name], dtype=torch.int64), minlength=self.experts)
        dist.all_reduce(counts, group=self.groups[name])
        return counts

    def flush(self):
        for name in sorted(self.pending, key=self._backlog, reverse=True):
            self.totals[name] = self._reduce(name)
            self.pending[name].clear()
        return self.totals


class Layer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.tp = parallel_state.get_tensor_model_parallel_rank()
        self.dp = parallel_state.get_data_parallel_rank()
        torch.manual_seed(3)
        self.router = Router(cfg)
        self.stats = GroupStatistics(cfg.experts)

    def capacity(self, round_):
        """Tokens that an expert may take; the data of half of the ranks gets harder after a while."""
        skewed = round_ >= self.cfg.drift_from and (self.tp + self.dp) % 2 == 1
        return 1 if skewed else self.cfg.tokens

    def tokens(self, round_):
        gen = torch.Generator().manual_seed(100 * round_ + 10 * self.dp + self.tp)
        return torch.randn(self.cfg.tokens, self.cfg.hidden, generator=gen)

    def forward(self, round_):
        limit, used = self.capacity(round_), defaultdict(int)
        self.stats.record("loads", 0)
        self.stats.record("dropped", 0)
        with torch.no_grad():
            choice = self.router(self.tokens(round_)).argmax(dim=-1).tolist()
        for expert in choice:
            used[expert] += 1
            self.stats.record("loads" if used[expert] <= limit else "dropped", expert)
        return self.stats.flush()


def main():
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("gloo")
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
    cfg = RouterConfig()
    layer = Layer(cfg)
    dist.barrier()
    for round_ in range(cfg.rounds):
        totals = layer.forward(round_)
        if dist.get_rank() == 0:
            log.info("round %d loads %s", round_, totals["loads"].tolist())
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
