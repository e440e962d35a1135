# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 3"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD101", "HD106", "HD109", "HD102"]
# culprits = [0]
# lines = [85, 90, 92]
# branch = ["loss_mask.sum() == 0"]
# source = "https://github.com/huggingface/trl/pull/5989"
# ///
"""Self-distillation: the student imitates its own EMA on completions that earned a reward."""
import logging
from collections import defaultdict
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import GPT2Config, GPT2LMHeadModel

logger = logging.getLogger("sdpo")


@dataclass
class SDPOConfig:
    steps: int = 48
    batch_size: int = 2
    lr: float = 5e-4
    ema: float = 0.99
    prompt_len: int = 6
    completion_len: int = 8
    vocab: int = 40


class Rollouts(Dataset):
    """Prompts with sampled completions and a verifier's score between 0 and 1."""

    def __init__(self, cfg, n=288):
        g = torch.Generator().manual_seed(17)
        self.ids = torch.randint(1, cfg.vocab, (n, cfg.prompt_len + cfg.completion_len), generator=g)
        self.score = torch.rand(n, generator=g) * 0.4 + 0.6
        hard = torch.arange(n) // cfg.batch_size % 3 == 0
        streak = (torch.arange(n) >= 126) & (torch.arange(n) < 140)
        self.score[hard & streak] = 0.1

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"ids": self.ids[i], "score": self.score[i]}


class EMATeacher:
    def __init__(self, model, decay):
        self.decay = decay
        self.model = GPT2LMHeadModel(model.config).eval().requires_grad_(False)
        self.model.load_state_dict(model.state_dict())

    @torch.no_grad()
    def update(self, model):
        for t, s in zip(self.model.parameters(), model.parameters()):
            t.lerp_(s, 1 - self.decay)


class SDPOTrainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.accelerator = Accelerator(cpu=True)
        model = GPT2LMHeadModel(GPT2Config(vocab_size=cfg.vocab, n_positions=16, n_embd=16, n_layer=1, n_head=2,
                                           bos_token_id=0, eos_token_id=0))
        self.teacher = EMATeacher(model, cfg.ema)
        opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr)
        loader = DataLoader(Rollouts(cfg), batch_size=cfg.batch_size)
        self.model, self.opt, self.loader = self.accelerator.prepare(model, opt, loader)
        self.metrics = defaultdict(list)

    def _mask(self, batch):
        keep = batch["score"] > 0.5
        mask = torch.zeros_like(batch["ids"][:, 1:], dtype=torch.float)
        mask[:, self.cfg.prompt_len - 1:] = 1
        return mask * keep[:, None]

    def _log_metric(self, name, value):
        self.metrics[name].append(self.accelerator.gather(value.detach().reshape(1)).mean().item())

    def self_distillation_loss(self, batch):
        logits = self.model(input_ids=batch["ids"]).logits[:, :-1]
        loss_mask = self._mask(batch)
        if loss_mask.sum() == 0:
            self.metrics["skipped"].append(1.0)
            return logits.sum() * 0.0
        with torch.no_grad():
            target = self.teacher.model(input_ids=batch["ids"]).logits[:, :-1].softmax(-1)
        kl = (target * (target.clamp_min(1e-9).log() - logits.log_softmax(-1))).sum(-1)
        ce = torch.nn.functional.cross_entropy(logits.transpose(1, 2), batch["ids"][:, 1:], reduction="none")
        loss = ((kl + 0.1 * ce) * loss_mask).sum() / loss_mask.sum()
        self._log_metric("mean_distill_loss", loss)
        return loss

    def train(self):
        for step, batch in enumerate(self.loader):
            loss = self.self_distillation_loss(batch)
            self.opt.zero_grad()
            self.accelerator.backward(loss)
            self.opt.step()
            self.teacher.update(self.accelerator.unwrap_model(self.model))
            if step % 10 == 0:
                logger.info("step %d %s", step, {k: round(v[-1], 4) for k, v in self.metrics.items()})
        self.accelerator.wait_for_everyone()


def main():
    logging.basicConfig(level=logging.INFO)
    torch.set_num_threads(1)
    set_seed(9)
    SDPOTrainer(SDPOConfig()).train()


if __name__ == "__main__":
    main()
