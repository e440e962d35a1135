"""Pretraining of a small character model on text shards, one of which repeats itself.

Four ranks read shards of their own, drop what is too short, too noisy or known already, and pack the rest into
blocks. The plan of an epoch counts on four fifths of what the manifest promises. In the third epoch rank 2 reads a
crawl of mirrors: most of its documents are copies, its blocks run out, and its stream ends before the plan does. Rank 2
leaves the loop in training/epoch.py and gathers the epoch's totals; the others wait for it in backward.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD102"
# culprits = [2]
# file = "gather.py"
# lines = [25]
# code = ["dist.all_gather(rows, mine)"]
# branch = ["fingerprint in self.seen"]
# source = "constructed"
# watch = "--stall-after 8"
# ///

from __future__ import annotations

import sys
from pathlib import Path

from comm.world import World
from settings.loader import load_settings
from training.session import Session


def main(arguments: list[str]) -> int:
    settings = load_settings(Path(__file__).with_name("profile.json"), arguments)
    with World.joined(settings.world) as world:
        session = Session(settings, world)
        summary = session.run()
        if world.is_main:
            print(f"finished: {summary.describe()}", flush=True)
    return 0 if summary.steps or settings.training.epochs == 0 else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
