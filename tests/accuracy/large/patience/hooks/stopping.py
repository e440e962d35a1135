import logging
import math

from hooks.base import HOOKS, Hook

log = logging.getLogger("stopping")


@HOOKS.register("stopping")
class Stopping(Hook):
    """Ends training when the validation loss has not improved for some epochs."""

    order = 90

    def __init__(self, cfg):
        super().__init__(cfg)
        self.patience = cfg.int("hooks", "patience")
        self.min_delta = cfg.float("hooks", "min_delta", 0.0)
        self.best = math.inf
        self.best_epoch = -1
        self.waited = 0

    def after_epoch(self, trainer, metrics):
        loss = metrics.get("loss")
        if loss is None or math.isnan(loss):
            log.warning("no loss in epoch %d", trainer.state.epoch)
            return
        if loss < self.best - self.min_delta:
            self.best, self.best_epoch, self.waited = loss, trainer.state.epoch, 0
            return
        self.waited += 1
        if self.waited >= self.patience:
            trainer.request_stop(f"no better loss since epoch {self.best_epoch}")

    def after_fit(self, trainer):
        if trainer.state.reasons:
            log.info("stopped: %s", trainer.state.reasons[0])
