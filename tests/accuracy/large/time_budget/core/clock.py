"""Where the time of this rank goes."""

import time
from collections import defaultdict
from contextlib import contextmanager


class Clock:
    def __init__(self):
        self.seconds = defaultdict(float)
        self.longest = {}
        self.open = []

    @contextmanager
    def part(self, name):
        """Time inside of inner parts counts for the inner ones alone."""
        self.open.append([name, time.monotonic(), 0.0])
        try:
            yield
        finally:
            _, begin, inner = self.open.pop()
            whole = time.monotonic() - begin
            own = max(0.0, whole - inner)
            self.seconds[name] += own
            if own > self.longest.get(name, 0.0):
                self.longest[name] = own
            if self.open:
                self.open[-1][2] += whole

    def spent(self, name):
        return self.seconds.get(name, 0.0)

    def shares(self):
        total = sum(self.seconds.values())
        ranked = sorted(self.seconds.items(), key=lambda item: -item[1])
        return [(name, seconds) for name, seconds in ranked if total and seconds > 0.01 * total]
