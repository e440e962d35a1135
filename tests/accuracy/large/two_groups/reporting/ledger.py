"""A ledger of each rank; that of rank 0 is shown."""

import sys
from collections import Counter, deque

from reporting.shapes import sparkline, thousands


def say(groups, text):
    if groups.rank == 0:
        print(text, file=sys.stderr, flush=True)


class Ledger:
    """Losses of the last steps, and remarks by kind."""

    def __init__(self, config, groups):
        self.config = config
        self.rank = groups.rank
        self.losses = deque(maxlen=config["keep"])
        self.remarks = {}
        self.found = 0
        self.asked = 0
        self.at = 0

    def step(self, step, loss, found, asked):
        self.at = step
        if asked:
            self.losses.append(loss)
        self.found += found
        self.asked += asked

    def add(self, kind, value):
        """A remark: numbers add up, texts are counted."""
        if isinstance(value, (int, float)):
            self.remarks[kind] = self.remarks.get(kind, 0) + value
        else:
            self.remarks.setdefault(kind, Counter())[value] += 1

    def line(self):
        last = list(self.losses)[-4:]
        mean = sum(last) / len(last) if last else float("nan")
        trend = ""
        if len(self.losses) >= 8:
            before = list(self.losses)[-8:-4]
            trend = " falling" if mean < sum(before) / 4 else " not falling"
        return f"step {self.at + 1}: loss {mean:.3f}{trend}"

    def summary(self, score):
        """Lines about the whole run."""
        width = self.config["width"]
        yield "-" * width
        yield f"losses {sparkline(list(self.losses), width - 8)}"
        if self.asked:
            yield f"right  {self.found} of {thousands(self.asked)} tokens while training"
        for kind, value in sorted(self.remarks.items()):
            if isinstance(value, Counter):
                shown = ", ".join(f"{name} {count}" for name, count in value.most_common(3) if count > 1)
                if not shown:
                    continue
            else:
                shown = thousands(value)
            yield f"{kind}: {shown}"[:width]
        for name, value in score.items():
            yield f"{name}: {value:.3f}" if isinstance(value, float) else f"{name}: {value}"
