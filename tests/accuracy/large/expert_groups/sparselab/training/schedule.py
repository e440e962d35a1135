"""Learning rates as functions of the step."""

import math


def make_schedule(options):
    steps, warmup = max(1, options["steps"]), options["warmup"] or 0

    def warming(step):
        return min(1.0, (step + 1) / warmup) if warmup else 1.0

    def remaining(step):
        return max(0.0, 1 - max(0, step - warmup) / max(1, steps - warmup))

    match options["decay"]:
        case "cosine":
            return lambda step: warming(step) * (0.1 + 0.9 * (1 - math.cos(math.pi * remaining(step))) / 2)
        case "linear":
            return lambda step: warming(step) * (0.1 + 0.9 * remaining(step))
        case _:
            return warming
