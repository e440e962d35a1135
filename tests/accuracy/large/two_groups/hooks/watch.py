"""Hooks that only look."""

import time

from hooks.registry import HOOKS


@HOOKS.register("norms", priority=50)
def norms(state):
    """The largest gradient of each kind of weights on this rank, for the report of rank 0."""
    largest = {}
    for name, weight in state.net.named_parameters():
        kind = "experts" if ".experts." in name else name.split(".")[0]
        if weight.grad is None:
            continue
        value = float(weight.grad.abs().max())
        if value > largest.get(kind, 0.0):
            largest[kind] = value
    state.notes["norms"] = largest
    if state.groups.rank == 0:
        top = max(largest, key=largest.get) if largest else "none"
        state.ledger.add("largest gradient", top)


@HOOKS.register("routes", priority=55)
def routes(state):
    """How evenly the tokens of this rank went to the experts."""
    for number, layer in enumerate(state.net.layers):
        used = state.notes["used"][number]
        total = sum(used)
        idle = [expert for expert, count in enumerate(used) if not count]
        if idle:
            state.ledger.add("idle experts", len(idle))
        if total and max(used) > 0.5 * total:
            state.ledger.add("crowded layers", number)
        if layer.experts.dropped > 0.25 * max(1, total):
            state.ledger.add("dropped tokens", layer.experts.dropped)
            layer.experts.dropped = 0


@HOOKS.register("clock", priority=60)
def clock(state):
    """Seconds since the last step."""
    now = time.perf_counter()
    before = state.notes.get("clock")
    if before is not None:
        passed = now - before
        if passed > 2.0 * state.notes.get("usual", passed):
            state.ledger.add("slow steps", state.step)
        state.notes["usual"] = min(passed, state.notes.get("usual", passed))
    state.notes["clock"] = now
