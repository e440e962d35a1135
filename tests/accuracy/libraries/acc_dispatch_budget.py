# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD102"]
# culprits = [3]
# lines = [58, 91, 93, 94, 96]
# branch = ["self.scored >= self.budget", "meter.spent", "self.meter.spent"]
# source = "https://github.com/huggingface/accelerate/issues/2258"
# ///
"""Perplexity over a streamed corpus: accelerate reads on the main process and dispatches batches, the evaluation ends
when enough tokens were scored."""
import logging
import math
from dataclasses import dataclass
from datetime import timedelta

import torch
from accelerate import Accelerator, DataLoaderConfiguration, InitProcessGroupKwargs
from datasets import Dataset as HfDataset
from torch import nn
from torch.utils.data import DataLoader

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("ppl")


@dataclass
class EvalConfig:
    vocab: int = 40
    width: int = 12
    length: int = 16
    documents: int = 400
    batch_size: int = 2
    token_budget: int = 300


class Bigram(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.width)
        self.out = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, ids):
        return self.out(self.emb(ids))


class TokenMeter:
    def __init__(self, budget):
        self.budget, self.scored, self.nll = budget, 0, 0.0

    def add(self, nll, count):
        self.nll += nll
        self.scored += count

    @property
    def spent(self):
        return self.scored >= self.budget


def corpus(cfg):
    """Documents of different length, padded with 0; every eighth pair comes from the long-form part."""
    def rows():
        for i in range(cfg.documents):
            gen = torch.Generator().manual_seed(i)
            n = cfg.length if i % 8 in (6, 7) else 7
            ids = torch.randint(1, cfg.vocab, (n,), generator=gen).tolist()
            yield {"ids": ids + [0] * (cfg.length - n)}
    return HfDataset.from_list(list(rows())).to_iterable_dataset().with_format("torch")


class PerplexityEval:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches=True, split_batches=False),
                                       kwargs_handlers=[InitProcessGroupKwargs(backend="gloo", timeout=timedelta(minutes=30))])
        torch.manual_seed(0)
        loader = DataLoader(corpus(cfg), batch_size=cfg.batch_size)
        self.model, self.loader = self.accelerator.prepare(Bigram(cfg), loader)
        self.meter = TokenMeter(cfg.token_budget)

    @torch.no_grad()
    def score(self, ids):
        logits = self.model(ids[:, :-1])
        target = ids[:, 1:]
        keep = target != 0
        return nn.functional.cross_entropy(logits[keep], target[keep], reduction="sum").item(), int(keep.sum())

    def run(self):
        self.model.eval()
        for batch in self.loader:
            self.meter.add(*self.score(batch["ids"]))
            if self.meter.spent:
                break
        totals = torch.tensor([[self.meter.nll, float(self.meter.scored)]])
        totals = self.accelerator.gather(totals).sum(0)
        return math.exp(totals[0].item() / totals[1].item())


def main():
    torch.set_num_threads(1)
    evaluation = PerplexityEval(EvalConfig())
    for shard in ("news", "forum"):
        evaluation.meter = TokenMeter(evaluation.cfg.token_budget)
        value = evaluation.run()
        evaluation.accelerator.print(f"{shard}: perplexity {value:.2f}")
    evaluation.accelerator.end_training()


if __name__ == "__main__":
    main()
