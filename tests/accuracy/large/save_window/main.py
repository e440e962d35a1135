"""A surrogate of Burgers' equation, with traces of what it got wrong kept in a small scratch folder.

Four ranks simulate regimes of their own and train one network on all of them. Each writes traces of bad forecasts to
scratch, and a snapshot of the job moves them to rank 0 and empties the folder. Snapshots are due every forty steps,
or when scratch is nearly full; and how full it is, each rank sees for itself. The shocks of rank 3 get steep
in the second stage and its folder fills up first, so rank 3 alone goes into the snapshot, and waits in its barrier.
"""

# /// hangdoc
# launch = "torchrun --standalone --nproc-per-node 4"
# outcome = "hang"
# cause = "HD101"
# culprits = [3]
# file = "snapshots.py"
# lines = [44]
# code = ["dist.barrier()"]
# branch = ["used > window.high_water", "wants_save(step, used, window)"]
# source = "constructed"
# watch = "--stall-after 8"
# ///

import sys
from pathlib import Path

from run.program import program
from setup.read import read_options


def main() -> None:
    here = Path(__file__).parent
    options = read_options(here / "options" / "small.json", sys.argv[1:])
    raise SystemExit(program(options))


if __name__ == "__main__":
    main()
