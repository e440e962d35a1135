# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["datasets", "transformers"]
# outcome = "healthy"
# causes_any = []
# culprits = []
# watch = "--give-up-after 10"
# source = "https://github.com/huggingface/datasets/issues/6437"
# ///
"""Rank 0 builds a packed corpus with several worker processes, the others wait for it; then everybody trains on their part of it."""
import logging
import os
import pathlib
import shutil
import tempfile
import time

import torch
import torch.distributed as dist
import torch.nn as nn
from datasets import Dataset, load_from_disk
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, DistributedSampler

log = logging.getLogger("corpus")
VOCAB = 128
SEQ = 32


def documents(count, seed=0):
    gen = torch.Generator().manual_seed(seed)
    for i in range(count):
        n = int(torch.randint(80, 200, (), generator=gen))
        yield {"text": " ".join(str(int(t)) for t in torch.randint(0, VOCAB * 4, (n,), generator=gen))}


def hash_tokens(text, deadline):
    """A slow, purely computational normalisation; it repeats until the time slice of the document is used."""
    words = [int(w) for w in text.split()]
    rounds = 0
    while True:
        words = [(w * 31 + 7 * k) % (VOCAB * 4) for k, w in enumerate(words)]
        rounds += 1
        if time.monotonic() > deadline:
            break
    return [w % VOCAB for w in words], rounds


def tokenize(batch, seconds):
    out = []
    share = seconds / len(batch["text"])
    start = time.monotonic()
    for k, text in enumerate(batch["text"]):
        ids, _ = hash_tokens(text, start + share * (k + 1))
        ids = ids[: len(ids) // SEQ * SEQ]
        out.extend(ids[i : i + SEQ] for i in range(0, len(ids), SEQ))
    return {"input_ids": out}


def build(folder):
    raw = Dataset.from_list(list(documents(160)))
    packed = raw.map(tokenize, batched=True, batch_size=40, remove_columns=["text"], num_proc=2, fn_kwargs={"seconds": 7.0})
    packed.save_to_disk(str(folder) + ".tmp")
    shutil.move(str(folder) + ".tmp", folder)


class TinyLM(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(VOCAB, width), nn.GRU(width, width, batch_first=True), nn.Linear(width, VOCAB)

    def forward(self, ids):
        logits = self.out(self.rnn(self.embed(ids[:, :-1]))[0])
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def train(folder, seconds):
    data = load_from_disk(str(folder)).with_format("torch")
    sampler = DistributedSampler(data)
    loader = DataLoader(data, 8, sampler=sampler)
    torch.manual_seed(0)
    model = DDP(TinyLM())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    stop_at, epoch = time.monotonic() + seconds, 0
    while True:
        sampler.set_epoch(epoch)
        for batch in loader:
            loss = model(batch["input_ids"])
            loss.backward()
            opt.step()
            opt.zero_grad()
        over = torch.tensor([float(time.monotonic() > stop_at)])
        dist.all_reduce(over, op=dist.ReduceOp.MAX)
        log.info("epoch %d loss %.3f", epoch, loss.item())
        epoch += 1
        if over.item():
            return


def main():
    dist.init_process_group("gloo")
    logging.basicConfig(level=logging.INFO, format=f"[{dist.get_rank()}] %(message)s")
    folder = pathlib.Path(os.environ.get("TMPDIR", tempfile.gettempdir())) / f"packed-{os.environ['TORCHELASTIC_RUN_ID'][:8]}"
    if dist.get_rank() == 0:
        build(folder)
        log.info("corpus is ready")
    dist.barrier()
    train(folder, 9)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
