# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 2"
# requires = ["transformers", "accelerate", "datasets"]
# outcome = "hang"
# causes_any = ["HD102", "HD101", "HD106", "HD109"]
# culprits_any = [[1], [0]]
# lines = [42, 44, 80, 98, 101]
# branch = ["self.elapsed() > self.limit"]
# source = "https://github.com/IBM/ado/pull/41"
# ///
import logging
import os
import tempfile
import time
import warnings

warnings.filterwarnings("ignore")
os.environ["CUDA_VISIBLE_DEVICES"] = ""
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
import torch.nn as nn  # noqa: E402
from transformers import Trainer, TrainerCallback, TrainingArguments  # noqa: E402

logging.basicConfig(level=logging.INFO, format="%(asctime)s [r" + os.environ["RANK"] + "] %(message)s")
log = logging.getLogger("sft")
PAGES = {0: 60, 1: 300}


class StopAfterSeconds(TrainerCallback):
    """Ends a measured run when its time, loading included, is used up."""

    def __init__(self, limit, spent):
        self.limit, self.spent, self.started = limit, spent, None

    def on_train_begin(self, args, state, control, **kwargs):
        self.started = time.monotonic() - self.spent

    def elapsed(self):
        return time.monotonic() - self.started

    def on_step_end(self, args, state, control, **kwargs):
        if self.elapsed() > self.limit:
            log.info("time is up at step %d", state.global_step)
            control.should_training_stop = True
        return control


class Tagger(nn.Module):
    def __init__(self, vocab=64, dim=16):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, input_ids=None, labels=None):
        logits = self.out(self.emb(input_ids))
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits}


class PageCache:
    """Tokenizes the pages that this rank's node has not cached yet."""

    def __init__(self, rank, width=12):
        self.rank, self.width = rank, width

    def _tokenize(self, page):
        time.sleep(0.01)
        gen = torch.Generator().manual_seed(page)
        return torch.randint(0, 64, (self.width,), generator=gen)

    def load(self, size=4096):
        fresh = [self._tokenize(p) for p in range(PAGES[self.rank % len(PAGES)])]
        rows = [fresh[i % len(fresh)] for i in range(size)]
        return [{"input_ids": r, "labels": r.roll(-1)} for r in rows]


class MeasuredTrainer(Trainer):
    def training_step(self, *args, **kwargs):
        time.sleep(0.05)
        return super().training_step(*args, **kwargs)


def build_trainer(out):
    torch.manual_seed(0)
    begin = time.monotonic()
    rows = PageCache(int(os.environ["RANK"])).load()
    timer = StopAfterSeconds(limit=5.0, spent=time.monotonic() - begin)
    args = TrainingArguments(
        output_dir=out, use_cpu=True, per_device_train_batch_size=8, max_steps=4000, logging_steps=25,
        report_to=[], save_strategy="no", disable_tqdm=True, dataloader_num_workers=0,
    )
    return MeasuredTrainer(model=Tagger(), args=args, train_dataset=rows, callbacks=[timer])


def main():
    out = os.path.join(tempfile.gettempdir(), "sft_" + os.environ["MASTER_PORT"])
    trainer = build_trainer(out)
    result = trainer.train()
    speed = torch.tensor([result.metrics["train_steps_per_second"]])
    every = [None] * dist.get_world_size()
    dist.all_gather_object(every, speed.item())
    log.info("steps per second: %s", every)
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
