import json
import logging
from pathlib import Path

from hooks.base import HOOKS, Hook
from parallel import comm

log = logging.getLogger("writing")


@HOOKS.register("logging")
class Logging(Hook):
    order = 80

    def before_fit(self, trainer):
        if comm.is_main():
            count = sum(p.numel() for p in trainer.model.parameters() if p.requires_grad)
            log.info("%d parameters, %d steps an epoch", count, len(trainer.train_loader))

    def after_epoch(self, trainer, metrics):
        line = f"epoch {trainer.state.epoch}: " + ", ".join(
            f"{name} {value:.4f}" for name, value in metrics.items() if isinstance(value, float)
        )
        if comm.is_main():
            log.info(line)
        elif metrics["accuracy"] < 0.2 and trainer.state.epoch > 2:
            log.warning("accuracy is low: %s", line)


@HOOKS.register("besttable")
class BestTable(Hook):
    """A table of this rank's hardest classes, written where the rank has a folder of its own."""

    order = 85

    def __init__(self, cfg):
        super().__init__(cfg)
        self.folder = Path(cfg.get("run", "folder")) / f"rank-{comm.rank()}"
        self.rows = []

    def after_epoch(self, trainer, metrics):
        own = trainer.validator.own_by_class
        if not own:
            return
        worst = min(own, key=lambda label: own[label])
        if not self.rows or self.rows[-1]["worst"] != worst:
            self.rows.append({"epoch": trainer.state.epoch, "worst": worst, "accuracy": own[worst]})

    def after_fit(self, trainer):
        if len(self.rows) > 1:
            self.folder.mkdir(parents=True, exist_ok=True)
            (self.folder / "hardest.json").write_text(json.dumps(self.rows))
