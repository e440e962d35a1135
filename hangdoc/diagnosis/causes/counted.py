"""Where a loop counts from, and how ranks agree on its rounds, in words that the report says."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.loops.counting_loop import CountingLoop
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.source.syntax import last_name, text_of
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


def agreed_count(loop: str, *, alone: bool = True) -> str:
    """How all ranks get the same number of rounds of a loop, by its first line. ``alone``: nothing else is advised.

    Examples: 'for batch in loader:' → an equal share of the data; 'for i in range(self.tries):' → agree on
    `self.tries`; 'for i, request in enumerate(queue):' → agree on how many items `queue` has.
    """
    bound = item_bound(loop)
    if bound is not None:
        return f"let all ranks agree on `{text_of(bound)}` before the loop (broadcast it, or all_reduce the minimum)"
    if pattern("goes_over_data").search(loop):
        count = "give every rank the same number of batches"
        stop = ", or let all ranks stop with the first that has none left (all_reduce a flag in every round)"
        return count + (stop if alone else "")
    over = _gone_over(loop)
    if isinstance(over, ast.Call) and last_name(over.func) == "range":
        named = [each for each in over.args if not isinstance(each, ast.Constant)]
        if named:
            bounds = named[0] if len(named) == 1 else over
            return (
                f"let all ranks agree on `{text_of(bounds)}` before the loop (broadcast it, or all_reduce the minimum)"
            )
    elif over is not None and _gives_keys(over):
        return (
            "let all ranks go over the same keys: gather those of all ranks first (all_gather_object), and make the "
            "call with something empty where a rank has none"
        )
    elif over is not None:
        return f"let all ranks agree before the loop on how many items `{text_of(over)}` has (all_reduce the minimum)"
    return "give every rank the same number of rounds (agree on the count before the loop)"


def _gives_keys(over: ast.expr) -> bool:
    """True for `table.items()`, `sorted(set(kinds))` and `groupby(rows, key)`: what has an item for each key."""
    over = over.args[0] if isinstance(over, ast.Call) and last_name(over.func) == "sorted" and over.args else over
    return isinstance(over, ast.Call) and last_name(over.func) in names("gives_keys")


def item_bound(loop: str) -> ast.expr | None:
    """How many items a loop takes at most from what it goes over: `quota()` of 'for x in islice(stream, quota()):';
    None for any other loop, and for a number."""
    over = _gone_over(loop)
    cuts = isinstance(over, ast.Call) and last_name(over.func) == "islice" and len(over.args) > 1
    if not isinstance(over, ast.Call) or not cuts:
        return None
    bound = over.args[min(2, len(over.args) - 1)]
    return bound if not isinstance(bound, ast.Constant) else None


def _gone_over(loop: str) -> ast.expr | None:
    """What a `for` goes over, without the function that only numbers its items; None for any other text."""
    try:
        parsed = ast.parse(f"{loop} pass").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    over = parsed[0].iter if parsed and isinstance(parsed[0], ast.For) else None
    numbers = isinstance(over, ast.Call) and last_name(over.func) == "enumerate" and over.args
    return over.args[0] if isinstance(over, ast.Call) and numbers else over
