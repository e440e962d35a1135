import math
import time


class Meter:
    """A mean, with the extremes and how often the value was of no use."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.total = 0.0
        self.count = 0
        self.least = math.inf
        self.most = -math.inf
        self.useless = 0

    def update(self, value, count=1):
        if math.isnan(value) or math.isinf(value):
            self.useless += count
            return
        self.total += value * count
        self.count += count
        self.least = min(self.least, value)
        self.most = max(self.most, value)

    @property
    def mean(self):
        return self.total / self.count if self.count else math.nan


class Ema:
    def __init__(self, decay=0.8):
        self.decay = decay
        self.value = None

    def update(self, new):
        self.value = new if self.value is None else self.decay * self.value + (1 - self.decay) * new
        return self.value


class Stopwatch:
    def __init__(self):
        self.started = None
        self.total = 0.0
        self.laps = 0

    def __enter__(self):
        self.started = time.perf_counter()
        return self

    def __exit__(self, *_):
        self.total += time.perf_counter() - self.started
        self.laps += 1

    @property
    def mean(self):
        return self.total / self.laps if self.laps else 0.0
