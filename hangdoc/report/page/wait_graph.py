"""Who waits for whom, as lines between boxes: ranks that do and wait alike are one box.

The boxes stand on a circle, culprits at the top, so that a cycle is seen as one.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.process import Frame
from hangdoc.model.wording import fold_ranks, single_spaced

_MOST_BOXES = 14
_WIDTH, _HEIGHT = 190, 46
"""A box, in the picture's own units, which are pixels where the page is wide enough."""


class Box(NamedTuple):
    """Ranks that do the same thing; ``x`` and ``y`` are the middle."""

    x: float
    y: float
    title: str
    text: str
    guilty: bool


class Arrow(NamedTuple):
    """From a box's edge to another's."""

    x1: float
    y1: float
    x2: float
    y2: float


class Drawing(NamedTuple):
    """The picture. ``left_out``: ranks that have no box."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    arrows: tuple[Arrow, ...]
    left_out: int


# Its branches are comprehensions over boxes and arrows.
def draw(diagnosis: Diagnosis) -> Drawing | None:
    """The picture; None where nobody waits, or all ranks are one box."""
    groups = _groups(diagnosis)
    if len(groups) < 2:
        return None
    shown = groups[:_MOST_BOXES]
    radius = max(110.0, len(shown) * 42.0)
    middles = [
        (radius * 1.5 * math.sin(2 * math.pi * n / len(shown)), -radius * math.cos(2 * math.pi * n / len(shown)))
        for n in range(len(shown))
    ]
    left, top = min(x for x, _ in middles), min(y for _, y in middles)
    width = max(x for x, _ in middles) - left + _WIDTH + 20
    height = max(y for _, y in middles) - top + _HEIGHT + 20
    middles = [(x - left + _WIDTH / 2 + 10, y - top + _HEIGHT / 2 + 10) for x, y in middles]
    box_of = {rank: number for number, (ranks, _, _) in enumerate(shown) for rank in ranks}
    pairs = {
        (box_of[w.waiter], box_of[on]) for w in diagnosis.waits if w.waiter in box_of for on in w.on if on in box_of
    }
    arrows = [_arrow(middles[a], middles[b]) for a, b in sorted(pairs) if a != b]
    boxes = [
        Box(x, y, f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(ranks)}", text, guilty)
        for (x, y), (ranks, text, guilty) in zip(middles, shown, strict=True)
    ]
    return Drawing(width, height, tuple(boxes), tuple(arrows), sum(len(ranks) for ranks, _, _ in groups[_MOST_BOXES:]))


def _groups(diagnosis: Diagnosis) -> list[tuple[tuple[int, ...], str, bool]]:
    """(ranks, what they do, are they culprits), the culprits first. Ranks are alike if they do the same, outside of
    whom they wait for in their own box."""
    culprits = frozenset(diagnosis.culprits)
    waits: dict[int, set[int]] = {}
    for wait in diagnosis.waits:
        waits.setdefault(wait.waiter, set()).update(wait.on)
    doing = {activity.rank: (activity.text, _place(activity.where)) for activity in diagnosis.ranks}
    found: dict[object, list[int]] = {}
    for rank, what in doing.items():
        awaited = frozenset(other for other in waits.get(rank, ()) if doing.get(other) != what)
        found.setdefault((rank in culprits, what, awaited), []).append(rank)
    texts = {activity.rank: single_spaced(activity.text) for activity in diagnosis.ranks}
    if not any(waits.values()):
        return []
    groups = [(tuple(ranks), texts[ranks[0]], ranks[0] in culprits) for ranks in found.values()]
    return sorted(groups, key=lambda group: (not group[2], group[0]))


def _place(frame: Frame | None) -> tuple[str, int] | None:
    return (frame.file, frame.line) if frame is not None else None


def _arrow(start: tuple[float, float], end: tuple[float, float]) -> Arrow:
    (x1, y1), (x2, y2) = start, end
    return Arrow(*_edge(x1, y1, x2 - x1, y2 - y1), *_edge(x2, y2, x1 - x2, y1 - y2))


def _edge(x: float, y: float, dx: float, dy: float) -> tuple[float, float]:
    """Where a line from the middle of a box towards (dx, dy) leaves it."""
    scale = min(_WIDTH / 2 / abs(dx) if dx else math.inf, _HEIGHT / 2 / abs(dy) if dy else math.inf)
    return (x + dx * scale, y + dy * scale) if math.isfinite(scale) else (x, y)
