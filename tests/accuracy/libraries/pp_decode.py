# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 6"
# outcome = "hang"
# causes_any = ["HD202", "HD102"]
# culprits = [5]
# lines = [60, 73, 74, 75, 77, 88]
# branch = ["eos", "token == self.cfg.eos"]
# source = "https://github.com/deepspeedai/DeepSpeed/issues/8262"
# ///
"""Generation through a pipeline of six stages. The last stage samples the token and sends it back to the first; when it samples the
end of the sentence it returns at once and the first stage still waits for the token."""
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass
class DecodeConfig:
    hidden: int = 8
    vocab: int = 50
    eos: int = 0
    max_new: int = 20


class Stage(nn.Module):
    def __init__(self, cfg, first, last):
        super().__init__()
        self.embed = nn.Embedding(cfg.vocab, cfg.hidden) if first else None
        self.body = nn.Linear(cfg.hidden, cfg.hidden)
        self.head = nn.Linear(cfg.hidden, cfg.vocab) if last else None


class Sampler:
    def __init__(self, cfg):
        self.cfg, self.count = cfg, 0

    def __call__(self, logits):
        self.count += 1
        return self.cfg.eos if self.count == 9 else 1 + int(logits.argmax()) % (self.cfg.vocab - 1)


class Decoder:
    def __init__(self, cfg):
        self.cfg, self.rank, self.world = cfg, dist.get_rank(), dist.get_world_size()
        self.first, self.last = self.rank == 0, self.rank == self.world - 1
        self.stage, self.sampler = Stage(cfg, self.first, self.last), Sampler(cfg)
        self.tokens = []

    def receive(self, token):
        if self.first:
            return self.stage.embed(torch.tensor([token]))
        h = torch.empty(1, self.cfg.hidden)
        dist.recv(h, src=self.rank - 1)
        return h

    def next_token(self):
        token = torch.zeros(1, dtype=torch.long)
        dist.recv(token, src=self.world - 1)
        return int(token)

    @torch.no_grad()
    def generate(self):
        token = 1
        for _ in range(self.cfg.max_new):
            h = torch.relu(self.stage.body(self.receive(token)))
            if not self.last:
                dist.send(h, dst=self.rank + 1)
            else:
                token = self.sampler(self.stage.head(h))
                self.tokens.append(token)
                if token == self.cfg.eos:
                    return self.tokens
                dist.send(torch.tensor([token]), dst=0)
            if self.first:
                token = self.next_token()
                self.tokens.append(token)
                if token == self.cfg.eos:
                    break
        return self.tokens


def main():
    dist.init_process_group("gloo")
    decoder = Decoder(DecodeConfig())
    decoder.generate()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
