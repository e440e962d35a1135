from dataclasses import dataclass, field


@dataclass
class State:
    """Where the run is, and what it has measured."""

    epoch: int = 0
    step: int = 0
    history: list = field(default_factory=list)
    reasons: list = field(default_factory=list)

    @property
    def last(self):
        return self.history[-1] if self.history else {}

    def best(self, key, smallest=False):
        values = [entry[key] for entry in self.history if key in entry]
        if not values:
            return None
        return min(values) if smallest else max(values)

    def as_dict(self):
        return {"epoch": self.epoch, "step": self.step, "history": self.history}
