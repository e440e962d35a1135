# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [0]
# lines = [54, 92, 98, 100, 101, 104]
# branch = ["tokens in batches", "> self.budget", "batches"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/2223"
# ///
"""BERT-like pre-training with DeepSpeed ZeRO: every rank reads its own shard files and cuts batches by a token budget."""
import logging
import os

os.environ.setdefault("DS_ACCELERATOR", "cpu")
import deepspeed
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

log = logging.getLogger("pretrain")
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # there is no compiler in the image
DS_CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 1,
    "zero_optimization": {"stage": 2, "overlap_comm": False, "contiguous_gradients": False, "reduce_bucket_size": 2000},
    "zero_allow_untested_optimizer": True,
    "steps_per_print": 1000000,
}


class ShardReader:
    """A shard is a list of sentences whose length depends on the book it was cut from."""

    def __init__(self, rank, world, sentences=60, vocab=100):
        self.rank, self.world, self.sentences, self.vocab = rank, world, sentences, vocab

    def shard(self, number):
        book = number * self.world + self.rank
        gen = torch.Generator().manual_seed(book)
        style = 6 + (book * 5) % 11
        return [torch.randint(2, self.vocab, (style + int(torch.randint(0, 6, (), generator=gen)),), generator=gen) for _ in range(self.sentences)]


class TokenBudget:
    def __init__(self, sentences, budget):
        self.sentences, self.budget = sentences, budget

    def __iter__(self):
        chunk, longest = [], 0
        for sentence in sorted(self.sentences, key=len):
            longest = max(longest, len(sentence))
            if (longest * (len(chunk) + 1) > self.budget) and chunk:
                yield self.pad(chunk)
                chunk, longest = [], len(sentence)
            chunk.append(sentence)
        yield self.pad(chunk)

    @staticmethod
    def pad(chunk):
        return nn.utils.rnn.pad_sequence(chunk, batch_first=True)


class MaskedLM(nn.Module):
    def __init__(self, vocab=100, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.body = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, width))
        self.head = nn.Linear(width, vocab)

    def forward(self, tokens):
        mask = torch.rand(tokens.shape) < 0.15
        mask[:, 0] = True
        hidden = self.embed(tokens.masked_fill(mask, 1))
        context = hidden.cumsum(1) / torch.arange(1, tokens.shape[1] + 1).view(1, -1, 1)
        return F.cross_entropy(self.head(self.body(context + hidden))[mask], tokens[mask])


class Pretraining:
    def __init__(self, budget=96):
        torch.manual_seed(0)
        model = MaskedLM()
        opt = torch.optim.Adam(model.parameters(), lr=1e-3)
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=opt, config=DS_CONFIG)
        self.reader = ShardReader(dist.get_rank(), dist.get_world_size())
        self.budget = budget
        self.sync = dist.new_group(backend="gloo")
        self.seen = 0

    def finish_shard(self, number, steps, loss):
        dist.barrier(self.sync)
        log.info("shard %d done after %d steps, loss %.3f, %d tokens", number, steps, loss, self.seen)

    def run_shard(self, number):
        batches = TokenBudget(self.reader.shard(number), self.budget)
        steps, loss = 0, torch.zeros(())
        for tokens in batches:
            loss = self.engine(tokens)
            self.engine.backward(loss)
            self.engine.step()
            steps += 1
            self.seen += tokens.numel()
        self.finish_shard(number, steps, loss.item())

    def run(self, shards):
        for number in range(shards):
            self.run_shard(number)


def main():
    deepspeed.init_distributed("gloo")
    logging.basicConfig(level=logging.WARNING, format=f"[{dist.get_rank()}] %(message)s")
    log.setLevel(logging.INFO)
    Pretraining().run(4)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
