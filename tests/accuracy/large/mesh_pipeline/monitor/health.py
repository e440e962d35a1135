from __future__ import annotations

import math


class Health:
    """Looks at norms of averaged gradients, which sisters share."""

    def __init__(self, highest: float = 1e3) -> None:
        self.highest = highest
        self.skipped = 0
        self.largest = 0.0

    def look(self, norm: float) -> bool:
        """True if the step may be taken."""
        if not math.isfinite(norm) or norm > self.highest:
            self.skipped += 1
            return False
        self.largest = max(self.largest, norm)
        return True
