"""Keep what real devices leave behind: dumps of PyTorch's watchdog and snapshots, small enough to become cases.

    python tests/gpu/keep_dumps.py FOLDER

Runs every way of the programs here under watch, with and without TORCH_NCCL_ENABLE_TIMING, to their time-out, and puts
into FOLDER/PROGRAM-WAY[-timing]: the dumps (`trace_0`, …), the snapshots that the watch saved and the job's output.
`python tests/add_case.py SNAPSHOT NAME` makes a case of a snapshot. Takes about two minutes for each way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from device import command, missing, variables

WAYS = (
    *(("one_rank.py", way, 1) for way in ("kernel", "copy", "time-out")),
    *(("two_ranks.py", way, 2) for way in ("healthy", "skip", "operation", "behind-a-kernel")),
)
_SECONDS = 180


def keep(program: str, way: str, ranks: int, folder: Path, *, timing: bool) -> None:
    """Run it, and print what it left."""
    name = f"{Path(program).stem}-{way}" + ("-timing" if timing else "")
    place = folder / name
    place.mkdir(parents=True)
    watch = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", "6", "--run-dir", str(place / "run"), "--"]
    with (place / "output").open("wb") as output:
        process = subprocess.Popen(
            [*watch, *command(program, way, ranks=ranks)],
            env={**os.environ, **variables(place, timing=timing)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            status = str(process.wait(_SECONDS))
        except subprocess.TimeoutExpired:
            process.terminate()
            status = f"ended after {_SECONDS} s, status {process.wait()}"
    left = sorted(path for path in place.rglob("*") if path.is_file())
    print(name, status, [f"{path.relative_to(place)} ({path.stat().st_size})" for path in left], flush=True)


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    if missing():
        print(f"nothing to keep: {missing()}", file=sys.stderr)
        return 1
    for timing in (False, True):
        for program, way, ranks in WAYS:
            keep(program, way, ranks, Path(sys.argv[1]).resolve(), timing=timing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
