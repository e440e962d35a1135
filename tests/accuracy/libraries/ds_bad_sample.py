# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# requires = ["deepspeed"]
# outcome = "hang"
# causes_any = ["HD103", "HD102"]
# culprits = [3]
# lines = [88, 89, 104, 105, 106, 113]
# branch = ["keep.sum() == 0", "except BadSample", "raise BadSample", "except BadSample as err"]
# source = "https://github.com/pytorch/pytorch/issues/44353"
# ///
"""DeepSpeed ZeRO-1 training on ragged documents; samples that cannot be used raise BadSample, are counted and skipped."""
import logging
import os
import tempfile
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

os.environ.setdefault("DS_ACCELERATOR", "cpu")
os.environ.setdefault("DS_SKIP_CUDA_CHECK", "1")

import deepspeed
import torch
import torch.distributed as dist
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("ragged")


class BadSample(ValueError):
    pass


@dataclass
class RaggedConfig:
    vocab: int = 40
    width: int = 16
    docs: int = 24
    max_len: int = 10
    epochs: int = 2


class MaskedModel(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.emb = nn.Embedding(cfg.vocab, cfg.width)
        self.mix = nn.Linear(cfg.width, cfg.width)
        self.out = nn.Linear(cfg.width, cfg.vocab)

    def forward(self, ids):
        return self.out(torch.tanh(self.mix(self.emb(ids))))


class DocumentShard:
    """Documents of this process; -100 marks tokens without a target. One scan in the archive came out blank."""

    def __init__(self, cfg, rank, blank=((3, 9),)):
        self.cfg, self.rank, self.blank = cfg, rank, set(blank)

    def __len__(self):
        return self.cfg.docs

    def __getitem__(self, i):
        gen = torch.Generator().manual_seed(self.rank * 1000 + i)
        ids = torch.randint(1, self.cfg.vocab, (1, self.cfg.max_len), generator=gen)
        target = torch.where(torch.rand(ids.shape, generator=gen) < 0.4, ids, torch.full_like(ids, -100))
        target[0, 0] = ids[0, 0]
        if (self.rank, i) in self.blank:
            target[:] = -100
        return ids, target


class RaggedTraining:
    def __init__(self, cfg):
        self.cfg = cfg
        torch.manual_seed(0)
        model = MaskedModel(cfg)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        ds_config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 1},
                     "zero_allow_untested_optimizer": True, "gradient_clipping": 1.0, "steps_per_print": 1000}
        self.engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=ds_config, dist_init_required=False)
        self.shard = DocumentShard(cfg, dist.get_rank())
        self.skipped = Counter()

    def loss(self, ids, target):
        keep = target != -100
        if keep.sum() == 0:
            raise BadSample("no target token")
        logits = self.engine(ids)
        return nn.functional.cross_entropy(logits[keep], target[keep])

    def one(self, i):
        ids, target = self.shard[i]
        loss = self.loss(ids, target)
        self.engine.backward(loss)
        self.engine.step()
        return loss.item()

    def epoch(self, number):
        total = 0.0
        for i in range(len(self.shard)):
            try:
                total += self.one(i)
            except BadSample as err:
                self.skipped[str(err)] += 1
                log.warning("rank %d epoch %d: document %d skipped: %s", dist.get_rank(), number, i, err)
        return total / len(self.shard)

    def fit(self, folder):
        for number in range(self.cfg.epochs):
            mean = self.epoch(number)
            self.engine.save_checkpoint(folder, tag=f"epoch{number}")
            if dist.get_rank() == 0:
                log.info("epoch %d loss %.3f", number, mean)


def main():
    torch.set_num_threads(1)
    deepspeed.init_distributed(dist_backend="gloo", timeout=timedelta(minutes=30))
    RaggedTraining(RaggedConfig()).fit(os.path.join(tempfile.gettempdir(), "ragged"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
