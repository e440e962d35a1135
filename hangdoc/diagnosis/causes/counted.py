"""Where a loop counts from, in words that the report says."""

from __future__ import annotations

from hangdoc.diagnosis.condition.loops.counting_loop import CountingLoop
from hangdoc.model.message import Joined, Message, Values


def counted_from(counting: CountingLoop) -> Message:
    """'it counts from `self.step` (self.step = 28 on rank 3): `self.step = state["step"]` (train.py:9) sets where it
    begins, by a function that goes on after `except OSError:` (train.py:20)'."""
    if counting.decided_at is not None:
        told: Message = [", by a function that goes on after ", Joined(list(counting.handlers), " and ")]
        return [
            [f"`{counting.start}` counts its rounds and is further apart than these, so the ranks began elsewhere in "],
            ["what it goes over, as ", Joined(list(counting.set_at), " and "), " set it"],
            told if counting.handlers else "",
        ]
    seen: list[Message] = [[f"{name} = ", Values(per_rank)] for name, per_rank in counting.seen]
    return [
        [f"it counts from `{counting.start}`", [" (", Joined(seen), ")"] if seen else ""],
        [": ", Joined(list(counting.set_at), " and "), " sets where it begins"] if counting.set_at else "",
        [", by a function that goes on after ", Joined(list(counting.handlers), " and ")] if counting.handlers else "",
    ]
