# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["filelock"]
# outcome = "hang"
# causes_any = ["HD504"]
# culprits = [0]
# lines = [62, 67, 68, 74, 116]
# watch = "--give-up-after 8"
# source = "https://github.com/huggingface/datasets/issues/1672"
# ///
"""Builds a vocabulary index once per host, publishes its fingerprint to all ranks and trains a bag-of-words model on it."""
import collections
import hashlib
import json
import logging
import os
import random
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from filelock import FileLock

logger = logging.getLogger(__name__)


class Corpus:
    def __init__(self, rank, world, documents=30000):
        self.rank, self.world, self.documents = rank, world, documents

    def texts(self, shard=None):
        rng = random.Random(4)
        for i in range(self.documents):
            words = [f"w{int(rng.paretovariate(0.9)) % 5000}" for _ in range(60)]
            if shard is None or i % self.world == shard:
                yield words


class VocabStore:
    """Index file plus a lock beside it, shared by the processes of a host."""

    def __init__(self, folder, corpus, size):
        self.folder, self.corpus, self.size = folder, corpus, size
        self.index_file = folder / "vocab.json"
        self.guard = FileLock(str(folder / "vocab.lock"))
        self.leader = int(os.environ["LOCAL_RANK"]) == 0
        self.token_ids = None

    def _count(self):
        counts = collections.Counter()
        for words in self.corpus.texts():
            counts.update(words)
        return {w: i for i, (w, _) in enumerate(counts.most_common(self.size))}

    def _fingerprint(self):
        return hashlib.sha1(self.index_file.read_bytes()).hexdigest()

    def _agree(self, mine):
        prints = [None] * dist.get_world_size()
        dist.all_gather_object(prints, mine)
        if len(set(prints)) != 1:
            raise RuntimeError(f"hosts built different vocabularies: {prints}")

    def prepare(self):
        with self.guard:
            if not self.index_file.exists():
                logger.info("building vocabulary")
                draft = self.index_file.with_suffix(".tmp")
                draft.write_text(json.dumps(self._count()))
                draft.rename(self.index_file)
            self.token_ids = json.loads(self.index_file.read_text())
            self._agree(self._fingerprint())
        return self


class BagOfWords(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.emb = torch.nn.EmbeddingBag(size + 1, 16)
        self.head = torch.nn.Linear(16, 2)

    def forward(self, ids):
        return self.head(self.emb(ids))


def local_statistics(corpus):
    lengths = [len(set(words)) for words in corpus.texts(corpus.rank)]
    return sum(lengths) / len(lengths)


def train(vocab, corpus, steps=20):
    model = BagOfWords(vocab.size)
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    for step, words in zip(range(steps), corpus.texts(corpus.rank)):
        ids = torch.tensor([[vocab.token_ids.get(w, vocab.size) for w in words]])
        loss = torch.nn.functional.cross_entropy(model(ids), torch.tensor([step % 2]))
        opt.zero_grad()
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad)
        opt.step()


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(process)d %(message)s")
    dist.init_process_group("gloo", timeout=timedelta(minutes=20))
    rank, world = dist.get_rank(), dist.get_world_size()
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "bow_cache"
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(rank, world)
    vocab = VocabStore(folder, corpus, size=2000)
    if not vocab.leader:
        logger.info("distinct words a document: %.1f", local_statistics(corpus))
    vocab.prepare()
    train(vocab, corpus)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
