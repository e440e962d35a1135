# /// hangdoc
# launch = "python"
# requires = ["transformers", "accelerate"]
# outcome = "hang"
# causes_any = ["HD102", "HD109"]
# culprits = [0]
# culprits_any = [[1, 2], [0, 1, 2]]
# lines = [55, 59, 77, 78, 80, 90, 93]
# branch = ["last is not None", "resume_from_checkpoint", "should_training_stop", "should_epoch_stop", "max_steps", "global_step"]
# source = "https://github.com/huggingface/transformers/issues/28270"
# ///
"""Language-model training with the Hugging Face Trainer in two sessions: a short first one, then a longer one from the newest checkpoint."""
import logging
import os
import secrets
import socket
import tempfile
from datetime import datetime
from pathlib import Path

import torch
import torch._dynamo  # noqa: F401  (once, before the workers fork)
import torch.multiprocessing as mp
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.trainer_utils import get_last_checkpoint

log = logging.getLogger("session")
WORLD = 3


class Lines(Dataset):
    def __init__(self, count=120, length=16, vocab=64):
        gen = torch.Generator().manual_seed(6)
        self.ids = torch.randint(1, vocab, (count, length), generator=gen)

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.ids[i]}


class StepLog(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step % 2 == 0:
            log.info("step %d of %d", state.global_step, state.max_steps)


class RunFolder:
    """Name of the experiment, minute of its start and a short tag, so that runs started together do not collide."""

    def __init__(self, root, experiment):
        stamp = datetime.now().strftime("%Y%m%d-%H%M")
        self.path = Path(root) / f"{experiment}-{stamp}-{secrets.token_hex(3)}"
        self.path.mkdir(parents=True)

    def newest_checkpoint(self):
        return get_last_checkpoint(str(self.path))


def tiny_model():
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=24, n_layer=1, n_head=2,
                                      bos_token_id=0, eos_token_id=0, use_cache=False))


class Session:
    def __init__(self, folder, data, steps):
        self.folder, self.steps = folder, steps
        arguments = TrainingArguments(output_dir=str(folder.path), max_steps=steps, per_device_train_batch_size=4,
                                      learning_rate=1e-3, optim="sgd", save_strategy="steps", save_steps=4,
                                      save_only_model=True, logging_strategy="no", report_to=[], use_cpu=True, average_tokens_across_devices=False,
                                      disable_tqdm=True, ddp_find_unused_parameters=False, seed=3)
        self.trainer = Trainer(model=tiny_model(), args=arguments, train_dataset=data, callbacks=[StepLog()])

    def run(self):
        last = self.folder.newest_checkpoint()
        if last is not None:
            log.info("continuing from %s", Path(last).name)
        result = self.trainer.train(resume_from_checkpoint=last)
        log.info("session over after step %d, loss %.3f", result.global_step, result.training_loss)


def worker(rank, root, port):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_WORLD_SIZE=str(WORLD),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    logging.basicConfig(level=logging.WARNING, format=f"[{rank}] %(message)s")
    log.setLevel(logging.INFO)
    set_seed(3)
    folder = RunFolder(root, "tinystories")
    data = Lines()
    for steps in (4, 10):
        Session(folder, data, steps).run()
    torch.distributed.destroy_process_group()


def main():
    root = tempfile.mkdtemp(prefix="sessions-", dir=os.environ.get("TMPDIR", tempfile.gettempdir()))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    mp.start_processes(worker, args=(root, port), nprocs=WORLD, start_method="fork")


if __name__ == "__main__":
    main()
