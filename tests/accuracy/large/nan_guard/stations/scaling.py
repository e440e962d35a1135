"""Each window is scaled by its own median and spread, so that stations of all climates look alike."""

from __future__ import annotations


def spread(values):
    """Median absolute deviation of each channel of (hours, channels)."""
    middle = values.median(dim=0).values
    return (values - middle).abs().median(dim=0).values


class WindowScaler:
    """Scales windows, and their forecasts back."""

    def __init__(self, clip=8.0, factor=1.4826):
        self.clip = clip
        self.factor = factor
        self.clipped = 0

    def fit(self, context):
        """(median, spread) of a context (hours, channels)."""
        return context.median(dim=0).values, spread(context) * self.factor

    def scale(self, values, fitted):
        middle, width = fitted
        scaled = (values - middle) / width
        beyond = scaled.abs() > self.clip
        if bool(beyond.any()):
            self.clipped += int(beyond.sum())
            scaled = scaled.clamp(-self.clip, self.clip)
        return scaled

    def back(self, scaled, fitted):
        middle, width = fitted
        return scaled * width + middle
