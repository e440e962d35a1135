import time
from collections.abc import Iterator, Sequence


def median(values: Sequence[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0.0
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def paces() -> Iterator[tuple[float, bool]]:
    """Seconds since the last time it was asked, and whether that was unusually long."""
    recent: list[float] = []
    before = time.monotonic()
    while True:
        now = time.monotonic()
        took, before = now - before, now
        usual = median(recent)
        recent = [*recent[-15:], took]
        yield took, len(recent) > 8 and usual > 0 and took > 2.5 * usual
