# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD509", "HD402"]
# culprits = [2]
# lines = [67, 37, 66, 100, 51]
# source = "https://github.com/lenskit/lkpy/issues/290"
# ///
"""Each rank learns byte-pair merges for its own documents in a small process pool, then all ranks train on the ids."""
import collections
import logging
import multiprocessing as mp
import random
import resource

import torch
import torch.distributed as dist
from torch import nn

log = logging.getLogger("tok")
BUCKETS = 97
SOURCES = {0: "wiki", 1: "forum", 2: "minutes"}


def documents(source: str, count: int = 16) -> list[str]:
    rng = random.Random(source)
    words = ["".join(rng.choices("abcdefghij", k=rng.randint(2, 8))) for _ in range(200)]
    docs = [" ".join(rng.choices(words, k=120)) for _ in range(count)]
    if source == "minutes":  # the archive keeps one year of minutes as a single text
        docs[5] = " ".join(rng.choices(words, k=600_000))
    return docs


def be_modest(cpu_seconds: int = 3) -> None:
    """Pool initializer: the cluster's rule is that helpers must not hog the login cores."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds))


def learn_merges(text: str, merges: int = 30) -> list[int]:
    """Plain byte-pair encoding over one document, answered as hashed piece ids."""
    pieces = list(text)
    for _ in range(merges):
        if len(pieces) < 2:
            break
        pairs = collections.Counter(zip(pieces, pieces[1:]))
        best = pairs.most_common(1)[0][0]
        out, i = [], 0
        while i < len(pieces):
            if i + 1 < len(pieces) and (pieces[i], pieces[i + 1]) == best:
                out.append(pieces[i] + pieces[i + 1])
                i += 2
            else:
                out.append(pieces[i])
                i += 1
        pieces = out
    return [sum(map(ord, p)) % BUCKETS for p in pieces[:512]]


class Corpus:
    def __init__(self, source: str, helpers: int = 2):
        self.source, self.helpers = source, helpers

    def tokenise(self) -> torch.Tensor:
        docs = documents(self.source)
        with mp.get_context("fork").Pool(self.helpers, initializer=be_modest) as pool:
            rows = pool.map(learn_merges, docs, chunksize=1)
        width = min(len(r) for r in rows)
        return torch.tensor([r[:width] for r in rows])


class Bigram(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(BUCKETS, BUCKETS)

    def forward(self, ids):
        logits = self.table(ids[:, :-1])
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(ids: torch.Tensor, steps: int = 30) -> None:
    model = Bigram()
    for step in range(steps):
        loss = model(ids)
        model.zero_grad()
        loss.backward()
        dist.all_reduce(model.table.weight.grad)
        with torch.no_grad():
            model.table.weight -= 0.5 * model.table.weight.grad / dist.get_world_size()
        if step % 10 == 0:
            log.info("rank %d step %d loss %.3f", dist.get_rank(), step, loss.item())


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    corpus = Corpus(SOURCES[dist.get_rank()])
    ids = corpus.tokenise()
    log.info("rank %d: %s gives %s", dist.get_rank(), corpus.source, tuple(ids.shape))
    train(ids)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
