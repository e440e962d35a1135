"""Where a loop counts from, and how ranks agree on its rounds, in words that the report says."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.condition.loops.counting_loop import CountingLoop
from hangdoc.diagnosis.frames.names import pattern
from hangdoc.diagnosis.source.item_kinds import Items, kind_of_items
from hangdoc.diagnosis.source.settings import Place
from hangdoc.diagnosis.source.sources import Sources
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


def agreed_start(counting: CountingLoop) -> Message:
    """How all ranks begin such a loop at one place. What was loaded or computed brings more than the start with it: a
    rank that is only told another start would go on from there with the state of its own."""
    bound = f"`{counting.bound}`" if counting.bound else ""
    if not counting.set_at:
        both = Joined([each for each in (f"`{counting.start}`", bound) if each], " and ")
        return ["let all ranks agree on ", both, " before the loop (broadcast it, or all_reduce the minimum)"]
    sets: Message = Joined(list(counting.set_at), " and ")
    return [
        ["let all ranks agree on what ", sets, f" takes `{counting.start}` from (one checkpoint, if it was saved)"],
        f", and on {bound}" if bound else "",
    ]


def agreed_count(loop: str, *, alone: bool = True, sources: Sources | None = None, at: Place | None = None) -> str:
    """How all ranks get the same number of rounds of a loop, by its first line, or by a comprehension's `for`.

    ``alone``: nothing else is advised. ``at``: where the loop is, to see what it goes over. Examples: 'for batch in
    loader:' → an equal share of the data; 'for i in range(self.tries):' → agree on `self.tries`; 'for row in rows[1:]:'
    → agree on how many items that has; 'for i, request in enumerate(queue):' → stop together.
    """
    loop = loop if loop.endswith(":") else f"{loop}:"
    bound = item_bound(loop)
    if bound is not None:
        return _agree_on(bound)
    if pattern("goes_over_data").search(loop):
        count = "give every rank the same number of batches"
        return f"{count}, or {_STOP_TOGETHER}" if alone else count
    over = _gone_over(loop)
    if isinstance(over, ast.Call) and last_name(over.func) == "range":
        named = [each for each in over.args if not isinstance(each, ast.Constant)]
        bounds = named[0] if len(named) == 1 else over
        return _agree_on(bounds) if named else _SAME_ROUNDS
    if over is None:
        return _SAME_ROUNDS
    kind = kind_of_items(over, sources, at)
    if kind is Items.KEYS:
        return (
            "let all ranks go over the same keys: gather those of all ranks first (all_gather_object), and make the "
            "call with something empty where a rank has none"
        )
    if kind is Items.COUNTED:
        return f"let all ranks agree before the loop on how many items `{text_of(over)}` has (all_reduce the minimum)"
    return _STOP_TOGETHER


def _agree_on(bound: ast.expr) -> str:
    return f"let all ranks agree on `{text_of(bound)}` before the loop (broadcast it, or all_reduce the minimum)"


_SAME_ROUNDS = "give every rank the same number of rounds (agree on the count before the loop)"
_STOP_TOGETHER = "let all ranks stop with the first that has none left (all_reduce a flag in every round)"


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
