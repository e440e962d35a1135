# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = []
# outcome = "hang"
# causes_any = ["HD503", "HD505"]
# culprits = [2]
# lines = [55, 59, 60, 64, 70, 73, 106, 123, 124]
# source = "https://github.com/bigscience-workshop/Megatron-DeepSpeed/pull/282"
# ///
"""Language model training whose corpus is decoded page by page in the background; a validation loader with workers starts after warm-up."""
import logging
import threading

import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("lm")
PAGE = 64
SEQ = 20
VOCAB = 64


def encode_page(number, stride):
    gen = torch.Generator().manual_seed(number)
    tokens = torch.randint(0, VOCAB, (PAGE * SEQ * stride,), generator=gen).to(torch.uint8)
    return zlib.compress(tokens.numpy().tobytes(), 9)


class PagedCorpus(Dataset):
    """Pages are kept compressed; decoded ones are shared by training and validation under a lock."""

    def __init__(self, sizes):
        self.blobs = [encode_page(i, s) for i, s in enumerate(sizes)]
        self.pages = {}
        self.lock = threading.Lock()
        self.decoder = None

    def __len__(self):
        return len(self.blobs) * PAGE

    def decode(self, page):
        raw = torch.frombuffer(bytearray(zlib.decompress(self.blobs[page])), dtype=torch.uint8)
        merged = raw.view(PAGE, -1, SEQ).long()
        for _ in range(3 * merged.shape[1]):
            merged = (merged.cumsum(1) + merged.flip(1)) % VOCAB
        return merged[:, 0]

    def warm(self, pages):
        with self.lock:
            for page in pages:
                self.pages[page] = self.decode(page)
        missing = [p for p in range(len(self.blobs)) if p not in self.pages]
        if missing:
            self.decoder = threading.Thread(target=self._decode_remaining, args=(missing,), daemon=True)
            self.decoder.start()

    def _decode_remaining(self, missing):
        with self.lock:
            for page in missing:
                self.pages[page] = self.decode(page)

    def __getitem__(self, index):
        page, offset = divmod(index, PAGE)
        with self.lock:
            if page not in self.pages:
                self.pages[page] = self.decode(page)
            return self.pages[page][offset]


class TinyLM(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.out = nn.Linear(width, VOCAB)

    def forward(self, ids):
        return F.cross_entropy(self.out(self.rnn(self.embed(ids[:, :-1]))[0]).flatten(0, 1), ids[:, 1:].flatten())


class Pretrainer:
    """The number of pages differs between ranks as the shards of the corpus have different sizes."""

    SHARDS = {0: [1, 1], 1: [1, 1], 2: [1, 1, 160, 160]}

    def __init__(self):
        self.rank = dist.get_rank()
        self.corpus = PagedCorpus(self.SHARDS[self.rank % len(self.SHARDS)])
        torch.manual_seed(0)
        self.model = DDP(TinyLM())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)

    def loader(self, lo, hi, workers):
        subset = torch.utils.data.Subset(self.corpus, range(lo, hi))
        return DataLoader(subset, 8, num_workers=workers, drop_last=True)

    def validate(self):
        total = torch.zeros(2)
        loader = self.loader(PAGE, 2 * PAGE, workers=1)
        for batch in loader:
            with torch.no_grad():
                total += torch.tensor([self.model.module(batch).item(), 1.0])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def train_epoch(self, epoch):
        for step, ids in enumerate(self.loader(0, PAGE, workers=0)):
            loss = self.model(ids)
            loss.backward()
            self.opt.step()
            self.opt.zero_grad()
        log.info("epoch %d loss %.3f", epoch, loss.item())

    def run(self, epochs):
        first = [0, 1]

        self.corpus.warm(first)
        log.info("validation before training: %.3f", self.validate())
        for epoch in range(epochs):
            self.train_epoch(epoch)
            log.info("epoch %d validation %.3f", epoch, self.validate())


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    Pretrainer().run(3)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
