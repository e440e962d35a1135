# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["transformers"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [2]
# lines = [69, 76, 77, 80, 81, 114, 115]
# branch = ["token.item() in self.cfg.turn_ids", "self.finished(token)"]
# source = "https://github.com/huggingface/transformers/pull/33483"
# ///
"""Periodic sample generation from a GPT-2 sharded with fully_shard (FSDP2); generation stops early at an end-of-turn
token, the mean length is reduced over processes afterwards."""
import logging
import os
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import GPT2Config, GPT2LMHeadModel

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("sampler")


@dataclass
class LmConfig:
    vocab: int = 48
    width: int = 16
    steps: int = 30
    sample_every: int = 5
    max_new_tokens: int = 20
    turn_ids: tuple = (3,)
    seed: int = 5


class TopP:
    """Nucleus sampling of one token."""

    def __init__(self, p, temperature):
        self.p, self.temperature = p, temperature

    def __call__(self, logits):
        probs, order = (logits / self.temperature).softmax(-1).sort(descending=True)
        keep = probs.cumsum(-1) - probs < self.p
        return order[torch.multinomial(probs * keep, 1)]


class Prompts:
    """One prompt per process and round, from the held-out part."""

    def __init__(self, rank, cfg):
        self.rank, self.cfg = rank, cfg

    def __getitem__(self, round_):
        gen = torch.Generator().manual_seed(1000 * round_ + self.rank)
        return torch.randint(2, self.cfg.vocab, (1, 5), generator=gen)


class SampledText:
    def __init__(self, model, cfg, rank):
        self.model, self.cfg, self.prompts = model, cfg, Prompts(rank, cfg)
        self.rank, self.round = rank, 0
        self.choose = TopP(0.95, 1.0)

    def finished(self, token):
        return token.item() in self.cfg.turn_ids

    @torch.no_grad()
    def run(self):
        self.model.eval()
        ids = self.prompts[self.round]
        start = ids.shape[1]
        while ids.shape[1] < start + self.cfg.max_new_tokens:
            logits = self.model(input_ids=ids, use_cache=False).logits[0, -1]
            token = self.choose(logits)
            ids = torch.cat([ids, token[None]], dim=1)
            if self.finished(token):
                break
        self.model.train()
        self.round += 1
        return ids.shape[1] - start


class LmTraining:
    def __init__(self, cfg):
        self.cfg, self.rank = cfg, dist.get_rank()
        torch.manual_seed(cfg.seed)
        self.model = GPT2LMHeadModel(GPT2Config(vocab_size=cfg.vocab, n_positions=64, n_embd=cfg.width, n_layer=2, n_head=2,
                                                bos_token_id=1, eos_token_id=1, tie_word_embeddings=False))
        mesh = init_device_mesh("cpu", (dist.get_world_size(),), mesh_dim_names=("shard",))
        for block in self.model.transformer.h:
            fully_shard(block, mesh=mesh)
        fully_shard(self.model, mesh=mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.sampler = SampledText(self.model, cfg, self.rank)

    def step(self, gen):
        ids = torch.randint(2, self.cfg.vocab, (2, 12), generator=gen)
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def fit(self):
        gen = torch.Generator().manual_seed(self.rank)
        torch.manual_seed(self.cfg.seed + 17 * self.rank)
        for step in range(1, self.cfg.steps + 1):
            loss = self.step(gen)
            if step % self.cfg.sample_every == 0:
                length = torch.tensor([float(self.sampler.run())])
                dist.all_reduce(length, op=dist.ReduceOp.SUM)
                if self.rank == 0:
                    log.info("step %d loss %.3f mean sample %.1f tokens", step, loss, length.item() / dist.get_world_size())


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=30))
    LmTraining(LmConfig()).fit()
    dist.destroy_process_group()
