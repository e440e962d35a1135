"""Images from eight sites, classified by one network; training stops when it no longer helps.

Eight ranks hold one site each, for training and for validation. The stopping hook is given the validation loss, and
that was never averaged: each rank sees the loss of its own site. The labels of site 5 are mostly wrong, so there the
loss grows while the network learns. After three epochs rank 5 asks to stop, leaves the loop of the trainer and gathers
the confusion matrix of the final evaluation. The others train on, and wait for its gradients.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 8"
# outcome = "hang"
# cause = "HD102"
# culprits = [5]
# file = "confusion.py"
# lines = [22]
# code = ["dist.all_gather(tables, self.table)"]
# branch = ["self.waited >= self.patience"]
# source = "constructed"
# watch = "--stall-after 8"
# ///

import logging
import sys
from pathlib import Path

import torch

from conf.experiment import Experiment
from engine.builder import build_trainer
from evals.final import final_report
from parallel import comm
from utils.logs import setup_logging

log = logging.getLogger("main")


def main(argv):
    cfg = Experiment.load(Path(__file__).with_name("experiment.ini"), argv)
    torch.set_num_threads(cfg.int("run", "threads", 1))
    comm.start(cfg.get("run", "backend", "gloo"))
    try:
        setup_logging(comm.rank(), cfg.get("run", "log_level", "INFO"))
        trainer = build_trainer(cfg)
        trainer.fit()
        report = final_report(trainer)
        if comm.rank() == 0:
            for line in report.lines():
                log.info(line)
    finally:
        comm.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
