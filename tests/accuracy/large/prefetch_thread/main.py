"""A prefetch thread ends before training does.

Four ranks sort small pictures. A thread of each rank reads records ahead, up to an allowance of bytes. The pictures of
rank 1 are larger: its allowance is used up some steps before the end, the reader stops, the thread with it, and nothing
in the queue says so. Rank 1 waits in `queue.get`, the others for rank 1 in the backward of DDP.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD505"
# culprits = [1]
# lines = [71]
# file = "prefetch.py"
# code = ["item = self._queue.get()"]
# branch = ["not self.quota.admit(record.size)"]
# source = "constructed"
# ///

from __future__ import annotations

import logging
import sys
from pathlib import Path

import torch

from fit.session import Session
from journal.writer import Journal, NullJournal
from judge.panel import Panel
from ranks.context import RankContext, joined
from settings.model import RunSettings
from settings.sources import gather
from storage.camera import shoot
from storage.pack import Pack
from storage.quota import Quota
from storage.reader import RecordReader
from vault.keeper import Keeper
from vision.sorter import Sorter

log = logging.getLogger("sorter")


def prepared_pack(settings: RunSettings, context: RankContext) -> Pack:
    """The pack of records of this rank; written when it is not there."""
    path = Path(settings.storage.folder) / f"pictures-{context.rank}.pack"
    if not path.exists() or settings.storage.rewrite:
        Pack.write(path, shoot(context.rank, settings.storage))
    return Pack.open(path)


def run(settings: RunSettings, context: RankContext) -> int:
    """Train, judge, and tell."""
    torch.manual_seed(settings.seed)
    journal = Journal(Path(settings.journal.file), settings.journal) if context.leads else NullJournal()
    with prepared_pack(settings, context) as pack, journal:
        reader = RecordReader(pack, Quota.of(settings.quota), settings.storage, seed=settings.seed + context.rank)
        panel = Panel(settings.judge, context)
        session = Session(Sorter(settings.vision), reader, panel, settings, context, journal)
        with Keeper(settings.vault, enabled=context.leads) as keeper:
            outcome = session.run(keeper)
        if context.leads:
            log.info("best accuracy %.3f after step %d", outcome.best, outcome.best_step)
    return 0


def main() -> int:
    """Exit status of the program."""
    settings = gather(sys.argv[1:])
    torch.set_num_threads(settings.threads)
    with joined(settings.ranks) as context:
        level = logging.INFO if context.leads or settings.loud else logging.ERROR
        logging.basicConfig(level=level, format=f"{context.rank}| %(name)s %(message)s", stream=sys.stderr)
        return run(settings, context)


if __name__ == "__main__":
    sys.exit(main())
