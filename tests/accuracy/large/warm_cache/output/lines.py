"""Lines for people."""

import logging
import sys


class OnRank(logging.Filter):
    """Marks records with the rank; ranks other than 0 keep all but warnings to themselves, unless asked."""

    def __init__(self, rank, verbose):
        super().__init__()
        self.rank, self.verbose = rank, verbose

    def filter(self, record):
        record.rank = self.rank
        if self.rank == 0 or self.verbose:
            return True
        return record.levelno >= logging.WARNING


def start_logging(place, verbose):
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[%(rank)d] %(name)s: %(message)s"))
    handler.addFilter(OnRank(place.rank, verbose))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(logging.DEBUG if verbose else logging.INFO)


def report(result, scores, opts):
    yield f"learned for {result.seconds:.1f} s; the rate was cut {result.cuts} times"
    if len(result.checks) > 1:
        gain = result.checks[-1] - result.checks[0]
        yield "checks went {} by {:.3f}".format("up" if gain >= 0 else "down", abs(gain))
    yield f"right: {scores.right:.3f}; of the sure answers: {scores.sure:.3f}"
    for kind in scores.kinds:
        mark = " *" if kind.name == scores.worst else ""
        yield f"{kind.name:8} precision {kind.precision:.2f} recall {kind.recall:.2f} f1 {kind.f1:.2f}{mark}"
    for count, true, told in scores.mixed[: opts["output"]["examples"]]:
        yield f"{count:g} tickets of {true} were taken for {told}"
