"""What happens after a step, on all ranks."""

from sparselab.evaluation.balance import balance
from sparselab.evaluation.perplexity import perplexity
from sparselab.parallel.agree import mean_over
from sparselab.reporting.console import say, warn
from sparselab.training.step import snapshot


def due(state, every):
    return bool(every) and (state.step + 1) % every == 0


def progress_hook(state, options, mesh, every):
    if not due(state, every):
        return
    loss = mean_over(state.counters.mean("loss") or 0.0, None, mesh.world)
    trend = state.counters.trend("loss")
    if mesh.speaks:
        arrow = "" if trend is None else " and falls" if trend < 0 else " and rises"
        say(mesh, f"step {state.step + 1}: loss {loss:.3f}{arrow}")


def balance_hook(state, options, mesh, every):
    if not due(state, every):
        return
    found = balance(state, mesh)
    if found.uneven and mesh.expert == found.busiest:
        state.counters.count("busiest")
    if found.uneven and mesh.speaks:
        say(mesh, f"expert {found.busiest} gets {found.most:.0%} of the tokens")


def evaluation_hook(state, options, mesh, every, documents):
    if not due(state, every):
        return
    value = perplexity(state, options, mesh, documents)
    before = state.notes.get("perplexity")
    if before is not None and value > before * 1.2 and mesh.speaks:
        warn(mesh, f"perplexity rose from {before:.1f} to {value:.1f}")
    state.notes["perplexity"] = value if before is None else min(before, value)


def save_hook(state, options, mesh, every, store):
    if not due(state, every):
        return
    written = store.save(state.step + 1, snapshot(state))
    if written and mesh.expert == 0:
        say(mesh, f"step {state.step + 1}: shards saved")
