import logging
import os
import sys


class RankFilter(logging.Filter):
    """Info from rank 0 only, warnings from everyone."""

    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def filter(self, record):
        record.rank = self.rank
        if record.levelno >= logging.WARNING:
            return True
        return self.rank == 0 or getattr(record, "all_ranks", False)


def setup_logging(rank, level):
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s r%(rank)d %(name)s: %(message)s", "%H:%M:%S"))
    handler.addFilter(RankFilter(rank))
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(os.environ.get("LOG_LEVEL") or level)
