# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 5"
# outcome = "hang"
# causes_any = ["HD103"]
# culprits = [3]
# lines = [41, 71, 72, 78]
# source = "https://github.com/pytorch/pytorch/issues/44353"
# ///
"""ASR training with CTC where a decorator makes a step survive data errors; one utterance on one rank has a transcript with a
symbol outside the vocabulary."""
import functools
import logging
from dataclasses import dataclass

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP

log = logging.getLogger("asr")


@dataclass
class AsrConfig:
    mel: int = 8
    hidden: int = 16
    frames: int = 20
    batch: int = 3
    batches: int = 14
    epochs: int = 2


ALPHABET = "_abcdefgh "
SYMBOLS = {c: i for i, c in enumerate(ALPHABET)}
SPEAKERS = ["abe", "bea", "cab", "deb", "gab"]


class Tokenizer:
    def encode(self, text):
        return torch.tensor([SYMBOLS[c] for c in text])


def transcript(speaker, index):
    if speaker == "deb" and index == 25:
        return "caf\u00e9"
    return "".join("abcdefgh"[(index * k + len(speaker)) % 8] for k in range(1, 5))


class Speech:
    def __init__(self, cfg, speaker):
        self.cfg, self.speaker, self.tokenizer = cfg, speaker, Tokenizer()

    def batches(self):
        for b in range(self.cfg.batches):
            indices = range(b * self.cfg.batch, (b + 1) * self.cfg.batch)
            g = torch.Generator().manual_seed(b)
            yield {"mel": torch.randn(self.cfg.frames, self.cfg.batch, self.cfg.mel, generator=g),
                   "text": [transcript(self.speaker, i) for i in indices]}

    def targets(self, texts):
        encoded = [self.tokenizer.encode(t) for t in texts]
        return torch.cat(encoded), torch.tensor([len(e) for e in encoded])


def tolerate(*errors, limit=10):
    def wrap(function):
        @functools.wraps(function)
        def run(self, *args, **kwargs):
            try:
                return function(self, *args, **kwargs)
            except errors as error:
                self.failed += 1
                log.warning("batch dropped: %r", error)
                if self.failed > limit:
                    raise
                self.optimizer.zero_grad()
                return None
        return run
    return wrap


class Recognizer(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.rnn = nn.LSTM(cfg.mel, cfg.hidden)
        self.out = nn.Linear(cfg.hidden, len(ALPHABET))

    def forward(self, mel):
        return self.out(self.rnn(mel)[0]).log_softmax(-1)


class Trainer:
    def __init__(self, cfg, speech):
        self.cfg, self.speech, self.failed = cfg, speech, 0
        self.model = DDP(Recognizer(cfg))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)

    @tolerate(KeyError, ValueError)
    def step(self, batch):
        scores = self.model(batch["mel"])
        targets, lengths = self.speech.targets(batch["text"])
        loss = F.ctc_loss(scores, targets, torch.full((self.cfg.batch,), self.cfg.frames), lengths)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def epoch(self):
        losses = [self.step(batch) for batch in self.speech.batches()]
        kept = [v for v in losses if v is not None]
        dist.barrier()
        return sum(kept) / len(kept)


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    cfg, rank = AsrConfig(), dist.get_rank()
    trainer = Trainer(cfg, Speech(cfg, SPEAKERS[rank % len(SPEAKERS)]))
    for epoch in range(cfg.epochs):
        loss = trainer.epoch()
        if rank == 0:
            log.info("epoch %d loss %.3f", epoch, loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
