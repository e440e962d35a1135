"""Which checkpoints go."""

from __future__ import annotations


def to_remove(scores: dict[str, float], keep: int) -> list[str]:
    """All but the newest and the best ``keep``, by name."""
    if keep <= 0 or len(scores) <= keep:
        return []
    best = sorted(scores, key=lambda name: scores[name])[:keep]
    newest = max(scores)
    return [name for name in sorted(scores) if name not in best and name != newest]
