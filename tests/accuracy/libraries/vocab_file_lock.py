# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# outcome = "hang"
# causes_any = ["HD504", "HD101"]
# culprits_any = [[0], [1, 2], [0, 1, 2]]
# lines = [36, 55, 60, 65, 95]
# source = "modelscope/ms-swift#5763 and huggingface/datasets#547 (file locks and collectives while data is prepared)"
# ///
"""Text classification; the vocabulary is built once and kept in a folder that jobs share."""
import argparse
import collections
import contextlib
import fcntl
import json
import os
import pathlib
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP

WORDS = "the quick brown fox jumps over a lazy dog while seven small birds sing in old trees".split()


class Folder:
    def __init__(self, root):
        self.root = root
        root.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def locked(self, name):
        with open(self.root / f"{name}.lock", "w") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            try:
                yield self.root / name
            finally:
                fcntl.flock(handle, fcntl.LOCK_UN)


class Vocabulary:
    def __init__(self, words):
        self.index = {word: number for number, word in enumerate(["<unk>", *words])}

    def __len__(self):
        return len(self.index)

    def encode(self, text):
        return torch.tensor([self.index.get(word, 0) for word in text.split()])

    @classmethod
    def load(cls, folder, texts, least=1):
        with folder.locked("vocabulary.json") as path:
            if not path.exists():
                counts = collections.Counter(word for text in texts for word in text.split())
                path.write_text(json.dumps(sorted(w for w, n in counts.items() if n >= least)))
            vocabulary = cls(json.loads(path.read_text()))
            vocabulary.verify()
        return vocabulary

    def verify(self):
        sizes = torch.tensor([len(self), -len(self)])
        dist.all_reduce(sizes, op=dist.ReduceOp.MAX)
        if sizes.sum() != 0:
            raise ValueError("the vocabularies differ")


def read_texts(rank, count=60):
    generator = torch.Generator().manual_seed(rank)
    time.sleep(0.4 * rank)
    rows = torch.randint(0, len(WORDS), (count, 8), generator=generator)
    return [" ".join(WORDS[i] for i in row) for row in rows.tolist()]


class Classifier(nn.Module):
    def __init__(self, size, width=16):
        super().__init__()
        self.embed = nn.EmbeddingBag(size, width)
        self.out = nn.Linear(width, 2)

    def forward(self, tokens):
        return self.out(self.embed(tokens))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    folder = Folder(pathlib.Path(tempfile.gettempdir()) / f"texts-{os.environ['MASTER_PORT']}")
    texts = read_texts(rank)
    vocabulary = Vocabulary.load(folder, texts)
    model = DDP(Classifier(len(vocabulary)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(args.epochs):
        for text in texts:
            tokens = vocabulary.encode(text).unsqueeze(0)
            label = torch.tensor([int("fox" in text)])
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens), label).backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
