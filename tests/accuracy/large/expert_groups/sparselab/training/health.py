"""Is the training still sane? Each rank looks at its own numbers; what is done about it is decided together."""

import math

from sparselab.parallel.agree import worst_of_all


def look(state, loss):
    """0: fine, 1: a jump of this rank's loss, 2: not a number."""
    if not math.isfinite(loss):
        return 2
    usual = state.counters.mean("loss")
    if usual is not None and loss > 2 * usual + 0.5:
        state.counters.count("jumps")
        return 1
    return 0


def must_stop(state, options):
    """Whether some rank has seen too many bad steps. Every rank asks in the same steps."""
    if state.step % options["patience"] != options["patience"] - 1:
        return False
    return worst_of_all(state.bad_steps) >= options["patience"]
