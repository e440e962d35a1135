from dataclasses import dataclass, field

from evals.confusion import Confusion, most_confused, per_class
from parallel import comm


@dataclass
class FinalReport:
    epochs: int
    accuracy: float
    by_class: list = field(default_factory=list)
    confused: tuple = None
    weak_sites: list = field(default_factory=list)

    def lines(self):
        yield f"{self.epochs} epochs, accuracy {self.accuracy:.3f}"
        for label, (precision, recall) in enumerate(self.by_class):
            mark = " (weak)" if precision < 0.5 or recall < 0.5 else ""
            yield f"  class {label}: precision {precision:.2f}, recall {recall:.2f}{mark}"
        if self.confused is not None:
            yield f"  most often taken for another: {self.confused[0]} for {self.confused[1]}"
        if self.weak_sites:
            yield f"  sites below the mean: {', '.join(map(str, self.weak_sites))}"


def share_right(table):
    count = int(table.sum())
    return int(table.diagonal().sum()) / count if count else 0.0


def final_report(trainer):
    confusion = Confusion(trainer.validator.classes)
    for images, labels in trainer.valid_loader:
        confusion.update(labels, trainer.predict(images).argmax(1))
    tables = confusion.of_all_ranks()
    whole = sum(tables)
    accuracy = share_right(whole)
    weak = [site for site, table in enumerate(tables) if share_right(table) < accuracy - 0.1]
    if comm.rank() in weak:
        trainer.state.reasons.append("this site is weak")
    return FinalReport(trainer.state.epoch, accuracy, per_class(whole), most_confused(whole), weak)
