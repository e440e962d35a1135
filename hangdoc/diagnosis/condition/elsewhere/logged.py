"""Why one rank has more values to reduce than another: the conditions under which the user's code logs a value that is
reduced over the ranks.

The call is made in one hook and the reduction runs in another, so no stack shows the line. Example:

    def validation_step(self, batch, batch_idx):
        if positive.any():
            self.log("recall", recall, sync_dist=True)    # a rank without positives reduces one value less

A dictionary that is logged says as much by its keys: `log_dict({k: v for k, v in scores.items() if seen[k]}, …)`; and
so does one that a loop goes over to log its items, with a key for whatever a rank saw: `self.errors[name] += error`.
"""

from __future__ import annotations

from hangdoc.diagnosis.frames.names import pattern


def is_alike(condition: str) -> bool:
    """True if the condition is the same on every rank, by the words in it. Example: `if dist.is_initialized():`."""
    return any(pattern(kind).search(condition) for kind in ("same_everywhere", "same_in_a_stage"))
