import logging
import math
import time

from hooks.base import HOOKS, Hook
from parallel import comm
from utils.meters import Ema, Meter, Stopwatch

log = logging.getLogger("watching")


@HOOKS.register("throughput")
class Throughput(Hook):
    """How fast this rank is, and how often a step was slow."""

    order = 10

    def __init__(self, cfg):
        super().__init__(cfg)
        self.ratio = cfg.float("hooks", "slow_ratio")
        self.usual = Ema()
        self.watch = Stopwatch()
        self.slow = 0
        self.since = 0.0

    def before_step(self, trainer):
        self.since = time.perf_counter()

    def after_step(self, trainer, loss):
        took = time.perf_counter() - self.since
        if self.usual.value is not None and took > self.ratio * self.usual.value:
            self.slow += 1
        self.usual.update(took)

    def after_epoch(self, trainer, metrics):
        images = trainer.train_loader.images
        if images.hit_rate < 0.5 and trainer.state.epoch == 1:
            log.info("cache hits %.0f %%", 100 * images.hit_rate, extra={"all_ranks": True})
        if self.slow > trainer.state.step // 3:
            log.info("%d slow steps of %d", self.slow, trainer.state.step, extra={"all_ranks": True})


@HOOKS.register("gradients")
class Gradients(Hook):
    """Norm of this rank's own gradients, before they are averaged."""

    def __init__(self, cfg):
        super().__init__(cfg)
        self.norms = Meter()
        self.usual = Ema(0.9)
        self.high = 0

    def after_backward(self, trainer):
        squares = [float(p.grad.pow(2).sum()) for p in trainer.model.parameters() if p.grad is not None]
        norm = math.sqrt(sum(squares))
        if self.usual.value is not None and norm > 1.5 * self.usual.value:
            self.high += 1
        self.usual.update(norm)
        self.norms.update(norm)

    def after_epoch(self, trainer, metrics):
        metrics["gradient"] = self.norms.mean
        if self.norms.useless:
            log.warning("%d gradients were not finite", self.norms.useless)
        if self.norms.most > 3 * self.norms.mean:
            metrics["gradient_peak"] = self.norms.most
        self.norms.reset()


@HOOKS.register("augmentation")
class Augmentation(Hook):
    """Warns when an augmentation with a chance was never used."""

    def after_epoch(self, trainer, metrics):
        augment = trainer.train_loader.augment
        if augment is None:
            return
        unused = [name for name, count in augment.counts.items() if count == 0 and getattr(augment, name) > 0]
        if unused:
            log.warning("never used: %s", ", ".join(unused))
        flips, shifts = augment.counts["flip"], augment.counts["shift"]
        metrics["augmented"] = "flips" if flips > shifts else "shifts" if shifts > flips else "even"

    def after_fit(self, trainer):
        if comm.is_main() and trainer.train_loader.augment is not None:
            log.info("augmented: %s", trainer.train_loader.augment.counts)
