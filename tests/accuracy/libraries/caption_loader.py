# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [1]
# lines = [55, 104, 50, 74]
# source = "https://github.com/allenai/allennlp/issues/4330"
# ///
"""Fine-tunes a bag-of-words captioner; word codes are kept in a cache that is warmed up in the background."""
import hashlib
import logging
import os
import tempfile
import threading
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("captions")
BUCKETS = 512


class Lexicon:
    """Stable word codes. Computing one is slow on purpose (key stretching), hence the cache."""

    def __init__(self, rounds):
        self._rounds = rounds
        self._codes = {}
        self._lock = threading.Lock()
        self._warmer = None

    def _stretch(self, word):
        raw = hashlib.pbkdf2_hmac("sha1", word.encode(), b"lexicon", self._rounds)
        return int.from_bytes(raw[:4], "big") % BUCKETS

    def _fill(self, words):
        with self._lock:
            for w in words:
                if w not in self._codes:
                    self._codes[w] = self._stretch(w)

    def warm_up(self, words, patience):
        self._warmer = threading.Thread(target=self._fill, args=(words,), name="lexicon-warmer", daemon=True)
        self._warmer.start()
        self._warmer.join(timeout=patience)
        if self._warmer.is_alive():
            log.info("lexicon still warming, the loader will compute what is missing")

    def code(self, word):
        with self._lock:  # lookups come from several threads
            if word not in self._codes:
                self._codes[word] = self._stretch(word)
            return self._codes[word]


class Captions(Dataset):
    def __init__(self, path, lexicon):
        self.lines = path.read_text().splitlines()
        self.lexicon = lexicon

    def vocabulary(self):
        return sorted({w for line in self.lines for w in line.split()})

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        words = self.lines[i].split()
        ids = [self.lexicon.code(w) for w in words]
        return torch.tensor(ids), torch.tensor(len(words[0]) % 4)


def write_split(folder, rank, captions=64, words=6):
    """Split 1 is the scraped one: hardly any word occurs twice in it."""
    distinct = {0: 4, 1: 350, 2: 5}[rank % 3]
    g = torch.Generator().manual_seed(rank)
    rows = []
    for i in range(captions):
        picks = torch.randint(0, distinct, (words,), generator=g).tolist()
        rows.append(" ".join(f"w{rank}x{p}" for p in picks))
    path = folder / f"split{rank}.txt"
    path.write_text("\n".join(rows))
    return path


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    logging.basicConfig(level=logging.INFO, format=f"[rank {rank}] %(message)s")
    folder = Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / "captions"
    folder.mkdir(exist_ok=True, parents=True)
    lexicon = Lexicon(rounds=60_000)
    data = Captions(write_split(folder, rank), lexicon)
    model = DDP(nn.EmbeddingBag(BUCKETS, 4))
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(data, batch_size=8, num_workers=1, drop_last=True)
    lexicon.warm_up(data.vocabulary(), patience=3.0)
    for epoch in range(20):
        for ids, target in loader:
            loss = nn.functional.cross_entropy(model(ids), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
        log.info("epoch %d loss %.3f", epoch, loss.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
