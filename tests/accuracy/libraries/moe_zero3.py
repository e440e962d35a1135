# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD109", "HD101", "HD106"]
# culprits = [1]
# lines = [48, 50, 116, 117]
# branch = ["not len(rows)"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/4808"
# ///
"""DeepSpeed ZeRO-3 training of a small mixture-of-experts block with routing by topic."""
import logging
import os
import warnings

import deepspeed
import torch
import torch.nn as nn

warnings.filterwarnings("ignore")
log = logging.getLogger("moe")
TOPICS = 4


class Expert(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.up = nn.Linear(dim, 2 * dim)
        self.down = nn.Linear(2 * dim, dim)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


class SparseBlock(nn.Module):
    """One expert a topic; tokens go to the expert of their topic."""

    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.experts = nn.ModuleList(Expert(dim) for _ in range(TOPICS))

    def forward(self, x, topic):
        h = self.norm(x)
        out = torch.zeros_like(h)
        for k, expert in enumerate(self.experts):
            rows = (topic == k).nonzero().flatten()
            if not len(rows):
                continue
            out[rows] = expert(h[rows])
        return x + out


class TopicModel(nn.Module):
    def __init__(self, dim=32, depth=1):
        super().__init__()
        self.inlet = nn.Linear(10, dim)
        self.blocks = nn.ModuleList(SparseBlock(dim) for _ in range(depth))
        self.head = nn.Linear(dim, 1)

    def forward(self, x, topic, target):
        h = self.inlet(x)
        for block in self.blocks:
            h = block(h, topic)
        return (self.head(h).squeeze(1) - target).square().mean()


class Articles:
    """Articles of a desk by day, and a held-out week; some desks have days without sports (topic 3)."""

    def __init__(self, rank, batch=24):
        self.g = torch.Generator().manual_seed(rank)
        self.batch = batch
        self.quiet_days = {0: [], 1: [4]}[rank % 2]

    def day(self, number, held_out=False):
        x = torch.randn(self.batch, 10, generator=self.g)
        topic = torch.arange(self.batch) % TOPICS
        if held_out and number in self.quiet_days:
            topic = topic.clamp(max=TOPICS - 2)
        return x, topic, x[:, 0] * (topic + 1)


@torch.no_grad()
def score(engine, articles, days=5):
    engine.eval()
    losses = [engine(*articles.day(number, held_out=True)) for number in range(days)]
    engine.train()
    return torch.stack(losses).mean().item()


CONFIG = {
    "train_micro_batch_size_per_gpu": 24,
    "zero_allow_untested_optimizer": True,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 600, "stage3_prefetch_bucket_size": 0,
                          "stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0},
}


def main():
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # no compiler on the nodes
    deepspeed.init_distributed(dist_backend="gloo", verbose=False)
    rank = int(os.environ["RANK"])
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    logging.basicConfig(level=logging.INFO, format=f"rank {rank}: %(message)s")
    torch.manual_seed(0)
    model = TopicModel()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=CONFIG)
    articles = Articles(rank)
    for week in range(4):
        for number in range(5):
            loss = engine(*articles.day(number))
            engine.backward(loss)
            engine.step()
        held_out = score(engine, articles)
        deepspeed.comm.barrier()
        log.info("week %d: loss %.4f, held out %.4f", week, loss.item(), held_out)


if __name__ == "__main__":
    main()
