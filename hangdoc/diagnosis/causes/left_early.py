"""By which condition a loop over an object was left early, where the rank waits in what ends that object.

Example: rank 3 waits for its prefetching thread in close(), of

    for batch in feed:
        tokens += len(batch)
        if tokens >= self.budget:
            break
    feed.close()

→ `if tokens >= self.budget:`. Who takes everything leaves nothing in the buffer that keeps the thread.
"""

from __future__ import annotations
