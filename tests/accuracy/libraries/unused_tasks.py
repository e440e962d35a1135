# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD111"]
# culprits = [2]
# lines = [28, 30, 54, 55, 57]
# branch = ["kind == \"asr\""]
# source = "https://github.com/pytorch/pytorch/issues/41101"
# ///
"""Three datasets are mixed; the head of a batch is chosen by the kind of its samples, and DDP knows nothing of unused parameters.
At step 6 rank 2 alone draws a batch for the other head, whose parameters the other ranks never fill."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP


class MultiTask(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(12, 256)
        self.asr = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
        self.tag = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, x, kind):
        h = torch.relu(self.encoder(x))
        if kind == "asr":
            return self.asr(h) + 0.0 * sum(p.sum() for p in self.tag.parameters())
        return self.tag(h)


class Mixer:
    """Draws the kind of the next batch."""

    def __init__(self, rank):
        self.rank, self.step = rank, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.step == 12:
            raise StopIteration
        self.step += 1
        kind = "tag" if (self.rank, self.step) == (2, 6) else "asr"
        return torch.randn(4, 12), kind


def train(model, batches, stats):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for x, kind in batches:
        optimizer.zero_grad()
        loss = model(x, kind).square().mean()
        loss.backward()
        total = loss.detach().clone()
        dist.all_reduce(total, group=stats)
        optimizer.step()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DDP(MultiTask(), bucket_cap_mb=0.5)
    train(model, Mixer(dist.get_rank()), dist.new_group(group_desc="stats"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
