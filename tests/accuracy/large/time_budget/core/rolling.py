"""Rolling numbers of one rank."""

from collections import deque


class Rolling:
    def __init__(self, size):
        self.values = deque(maxlen=size)
        self.peaks = 0

    def add(self, value):
        usual = self.mean()
        if usual is not None and value > 1.4 * usual:
            self.peaks += 1
        self.values.append(value)

    def mean(self):
        return sum(self.values) / len(self.values) if self.values else None

    def falls(self):
        half = len(self.values) // 2
        if half < 2:
            return None
        old, new = list(self.values)[:half], list(self.values)[half:]
        return sum(new) / len(new) < sum(old) / len(old)
