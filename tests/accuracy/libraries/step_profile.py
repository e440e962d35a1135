# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = []
# outcome = "hang"
# causes_any = ["HD112", "HD101"]
# culprits = [2]
# lines = [44, 42, 29, 47, 100, 90, 110]
# branch = ["tokens > self.long_batch"]
# source = "https://github.com/trilinos/Trilinos/pull/6452"
# ///
"""Trains a tiny recurrent model on variable-length batches with a profile of synchronised step times."""
import logging
import time

import torch
import torch.distributed as dist
import torch.nn as nn

log = logging.getLogger("profile")


class Span:
    """A measured stretch of work; it ends when the last reference to it goes."""

    def __init__(self, profile, label):
        self.profile, self.label, self.start = profile, label, time.perf_counter()

    def __del__(self):
        self.profile._close(self)


class Profile:
    def __init__(self, long_batch):
        self.long_batch = long_batch
        self.seconds = {}
        self.outliers = []

    def span(self, label):
        return Span(self, label)

    def note(self, span, tokens):
        if tokens > self.long_batch:
            span.label += f" ({tokens} tokens)"
            self.outliers.append(span)

    def _close(self, span):
        dist.barrier()  # everybody ends a span together, so that times compare
        self.seconds.setdefault(span.label, []).append(time.perf_counter() - span.start)

    def report(self):
        for label, values in sorted(self.seconds.items()):
            log.info("%-24s n=%d mean %.2f ms", label, len(values), 1e3 * sum(values) / len(values))


class Batches:
    """Sequence lengths follow each worker's document mix; worker 2 holds the novels."""

    def __init__(self, rank, steps, rows=8):
        self.g = torch.Generator().manual_seed(rank)
        self.steps, self.rows = steps, rows
        self.lengths = [12, 20, 16, 14] * (steps // 4)
        if rank == 2:
            self.lengths[9] = 160

    def __iter__(self):
        for n in self.lengths[: self.steps]:
            yield torch.randn(self.rows, n, 8, generator=self.g)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(8, 16, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, x):
        return self.head(self.rnn(x)[0][:, -1])


class Trainer:
    def __init__(self, rank, world):
        torch.manual_seed(0)
        self.rank, self.world = rank, world
        self.model = Encoder()
        self.opt = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.profile = Profile(long_batch=8 * 100)

    def reduce_gradients(self):
        flat = torch.cat([p.grad.flatten() for p in self.model.parameters()])
        dist.all_reduce(flat)
        flat /= self.world
        offset = 0
        for p in self.model.parameters():
            p.grad.copy_(flat[offset:offset + p.numel()].view_as(p))
            offset += p.numel()

    def step(self, batch):
        profile = self.profile
        span = profile.span("step")
        profile.note(span, tokens=batch.shape[0] * batch.shape[1])
        loss = (self.model(batch) - batch.mean((1, 2)).unsqueeze(1)).square().mean()
        self.opt.zero_grad()
        loss.backward()
        self.reduce_gradients()
        self.opt.step()
        return loss.item()

    def fit(self, batches):
        for number, batch in enumerate(batches):
            loss = self.step(batch)
            if number % 4 == 0:
                log.info("batch %d loss %.4f", number, loss)
        self.profile.report()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"r{rank} %(message)s")
    Trainer(rank, dist.get_world_size()).fit(Batches(rank, steps=40))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
