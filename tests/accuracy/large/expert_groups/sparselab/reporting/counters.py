"""Counts and sliding windows of one rank."""

from collections import Counter, defaultdict, deque


class Counters:
    def __init__(self, window):
        self.counts = Counter()
        self.windows = defaultdict(lambda: deque(maxlen=window))

    def count(self, name, number=1):
        self.counts[name] += number

    def add(self, name, value):
        self.windows[name].append(value)

    def mean(self, name):
        window = self.windows.get(name)
        return sum(window) / len(window) if window else None

    def trend(self, name):
        """Difference of the means of the newer and the older half; None where there is too little."""
        window = list(self.windows.get(name, ()))
        if len(window) < 4:
            return None
        half = len(window) // 2
        return sum(window[half:]) / (len(window) - half) - sum(window[:half]) / half

    def summary(self):
        words = [f"{name} {count}" for name, count in sorted(self.counts.items()) if count]
        return ", ".join(words) if words else "nothing to tell"
