# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "healthy"
# source = "https://github.com/huggingface/trl/pull/3106"
# ///
"""datasets.map with two processes under accelerate's main_process_first: rank 0 maps for half a minute, the others wait and then read its cache."""
import tempfile
import time
import warnings
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from datasets import Dataset, disable_progress_bars, load_from_disk

warnings.filterwarnings("ignore")
disable_progress_bars()


@dataclass
class Prep:
    rows: int = 40
    seconds: float = 1.2
    workers: int = 2


def features(row, seconds):
    end, value = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        value = (value * 31 + row["x"]) % 10007
    return {"feature": value}


class Preparation:
    def __init__(self, prep, accelerator):
        self.prep, self.accelerator = prep, accelerator

    def build(self, folder):
        data = Dataset.from_dict({"x": list(range(self.prep.rows))})
        data.map(features, fn_kwargs={"seconds": self.prep.seconds}, num_proc=self.prep.workers).save_to_disk(folder)

    def load(self, folder):
        with self.accelerator.main_process_first():
            if self.accelerator.is_main_process:
                self.build(folder)
            return load_from_disk(folder)


def main():
    accelerator = Accelerator(cpu=True)
    name = [tempfile.mkdtemp() + "/prepared"]
    torch.distributed.broadcast_object_list(name, src=0)
    data = Preparation(Prep(), accelerator).load(name[0])
    total = accelerator.gather(torch.tensor([len(data)]))
    assert total.sum() == 4 * Prep().rows
    accelerator.end_training()


if __name__ == "__main__":
    main()
