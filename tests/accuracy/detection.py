"""When does a watch with its default settings call a hang a hang, and does it call a healthy job one?

    python tests/accuracy/detection.py [--hangs 12] [--healthy 10] [--from DIR] [--only NAME …] [--jobs 2]
                                       [--watch OPTIONS] [--limit 660] [--keep DIR] [--guide]

A shorter threshold finds hangs sooner and calls more healthy jobs hung. So both stand in one table:

- false alarms: healthy jobs that were called hung or crashed.
- false calm: hangs that were not called hung before the time of --give-up-after was up, when every wait is a hang: told
  as slow until then, or not at all.
- detection: seconds from the last progress that the watch saw to the report of the hang.

The programs: as many of those of run.py that hang, and of those that are healthy, drawn by a checksum of their names,
so that another program changes little; and the jobs of ``AWKWARD``, which stand still for longer than the threshold.
With --from, also those of a folder with an expect.json: {"name": {"launch": "…", "healthy": true}}, all others hang.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shlex
import shutil
import statistics
import sys
import tempfile
import time
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

from guide_pages import ACCURACY, put_on_page

import run
from hangdoc import api, scenarios
from hangdoc.errors import HangdocError
from hangdoc.scenarios import Scenario
from hangdoc.sidecar.options import WatchOptions

PAUSES = Path(__file__).parents[1] / "integration" / "programs"
AWKWARD = ("computes", "saves", "joins", "serves", "compiles", "awkward")
_PAUSE = "45"
"""Seconds for which those stand still: half as long again as the shortest patience of a watch that is not told one."""
GIVE_UP = WatchOptions().give_up_after
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class Told:
    """One report. ``at``: seconds since the start of the command; ``after``: since the last progress; ``patience``:
    how long the job had to stand still for a closer look."""

    outcome: str
    at: float
    after: float
    patience: float
    words: str


@dataclass(frozen=True)
class Result:
    """One run: what was told, in order, and after how many seconds it ended by itself or was ended."""

    name: str
    hangs: bool
    told: tuple[Told, ...]
    seconds: float
    ended: bool = False
    """It ended by itself. A hang that does so without a report says nothing of the watch, and is not counted."""
    whose: str = ""
    """Of which set: '' of our own, else a word before those of the row."""

    @property
    def alarm(self) -> Told | None:
        """The first report of a hang or a crash."""
        return next((each for each in self.told if each.outcome in ("hang", "crashed")), None)

    @property
    def counts(self) -> bool:
        return not (self.hangs and self.ended and self.alarm is None)

    @property
    def right(self) -> bool:
        if not self.hangs:
            return self.alarm is None
        return self.alarm is not None and self.alarm.outcome == "hang" and self.alarm.after < GIVE_UP


def drawn(programs: Sequence[Scenario], number: int) -> list[Scenario]:
    """So many of them, always the same ones."""
    return sorted(programs, key=lambda program: zlib.crc32(program.name.encode()))[:number]


def awkward() -> list[Scenario]:
    """Healthy jobs that stand still for longer than the threshold."""
    launch = "torchrun --standalone --nproc-per-node 2"
    return [
        Scenario(name, PAUSES / f"{name}.py", "", launch, "healthy", environment=(("PAUSE", _PAUSE),))
        for name in AWKWARD
    ]


def of_folder(folder: Path) -> list[Scenario]:
    """The programs of a folder with an expect.json."""
    found = []
    ours = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"  # for scripts that call torchrun
    for name, expected in json.loads((folder / "expect.json").read_text(encoding="utf-8")).items():
        *launch, last = shlex.split(expected["launch"])
        script = folder / last if last.endswith(".sh") else folder / f"{name}.py"
        words = launch if last.endswith(".sh") else [*launch, last]
        outcome = "healthy" if expected.get("healthy") else "hang"
        found.append(Scenario(name, script, "", shlex.join(words), outcome, environment=(("PATH", ours),)))
    return found


def look(scenario: Scenario, options: Sequence[str], limit: float, keep: Path | None = None, whose: str = "") -> Result:
    """Run it under watch until it ends, or for ``limit`` seconds; print a row for each report."""
    with tempfile.TemporaryDirectory(prefix="detection-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        for path in scenario.path.parent.glob(f"{scenario.path.stem}.*"):
            shutil.copy(path, folder)
        copied = replace(scenario, path=folder / scenario.path.name)
        line = [sys.executable, "-m", "hangdoc", "watch", "--quiet", "--on-hang", "abort", *options]
        line += ["--run-dir", str(folder / "run"), "--", *scenarios.command(copied)]
        told: list[Told] = []
        start = time.time()
        ended = False
        with run.job(line, copied, folder) as process:
            while process.poll() is None and time.time() < start + limit:
                told += _news(folder / "run", start, told)
                time.sleep(_LOOK_SECONDS)
            ended = process.poll() is not None
        told += _news(folder / "run", start, told)
        result = Result(scenario.name, scenario.outcome == "hang", tuple(told), time.time() - start, ended, whose)
        if keep is not None and not result.right:
            shutil.copytree(folder, keep / scenario.name, dirs_exist_ok=True, ignore_dangling_symlinks=True)
    head = f"{'ok' if result.right else 'NO' if result.counts else '· '} {result.name:26s}"
    if not told:
        print(f"{head} nothing told in {result.seconds:.0f} s{', when it ended' if ended else ''}", flush=True)
    for each in told:
        when = f"{each.after:.1f} s after the last progress, {each.at:.0f} s after the start"
        print(f"{head} {each.outcome} {when}, threshold {each.patience:.0f} s: {each.words}", flush=True)
    return result


def _news(run_directory: Path, start: float, told: Sequence[Told]) -> list[Told]:
    """The reports of stalls that came since the last one."""
    found = []
    for path in run_directory.glob("stall-*.json"):
        try:
            written = path.stat().st_mtime
            document = json.loads(path.read_text(encoding="utf-8"))
            snapshot = api.load(path.with_suffix(".hangdoc"))
        except (OSError, ValueError, HangdocError):
            continue  # it is being written
        after = snapshot.stalled_for + max(0.0, written - snapshot.taken)
        code = (document["cause"] or {"code": "-"})["code"]
        words = f"{document['culprits']} {code} {document['confidence']}"
        found.append(Told(document["outcome"], written - start, after, snapshot.stall_after, words))
    last = max((each.at for each in told), default=-math.inf)
    return sorted((each for each in found if each.at > last), key=lambda each: each.at)


def table(results: Sequence[Result]) -> str:
    """The counts in Markdown: for each set a row of the hangs and one of the healthy jobs."""
    head = ["", "jobs", "told as slow", "told a hang or crash", "false alarms", "false calm",
            "s from the last progress to the report: median", "90 %", "longest", "threshold, s"]  # fmt: skip
    lines = [f"| {' | '.join(head)} |".replace("|  |", "| |"), "|---" * len(head) + "|"]
    for hangs, whose in dict.fromkeys((each.hangs, each.whose) for each in sorted(results, key=lambda r: not r.hangs)):
        some = [each for each in results if (each.hangs, each.whose) == (hangs, whose) and each.counts]
        alarms = [each.alarm for each in some if each.alarm is not None]
        wrong = sum(not each.right for each in some)
        slow = sum(any(told.outcome == "slow" for told in each.told) for each in some)
        patience = sorted({round(told.patience) for each in some for told in each.told})
        what = f"{whose} {'hangs' if hangs else 'healthy jobs'}".strip()
        cells = [what, len(some), slow, len(alarms), "" if hangs else wrong, wrong if hangs else "",
                 *_spread(sorted(told.after for told in alarms if hangs)),
                 " to ".join(map(str, dict.fromkeys((*patience[:1], *patience[-1:]))))]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _spread(ordered: Sequence[float]) -> list[str]:
    if not ordered:
        return ["", "", ""]
    ninth = ordered[math.ceil(0.9 * len(ordered)) - 1]
    return [f"{value:.0f}" for value in (statistics.median(ordered), ninth, ordered[-1])]


def main() -> int:
    """Run what was asked for; exit status 1 after a false alarm or false calm."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hangs", type=int, default=12, help="how many that hang")
    parser.add_argument("--healthy", type=int, default=10, help="how many healthy ones, beside the awkward ones")
    parser.add_argument("--from", type=Path, dest="folder", metavar="DIR", help="also the programs of this folder")
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument(
        "--watch", default="", metavar="OPTIONS", help='further options of the watch: "--stall-after 10"'
    )
    parser.add_argument("--limit", type=float, default=GIVE_UP + 60, help="seconds after which a run is ended")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the folders of runs that were wrong")
    parser.add_argument("--guide", action="store_true", help="write the table into hangdoc/guide")
    options = parser.parse_args()
    known = [program for suite in ("own", "libraries") for program in run.expected(suite) if not program.missing]
    chosen = [
        *drawn([program for program in known if program.outcome == "hang"], options.hangs),
        *drawn([program for program in known if program.outcome == "healthy"], options.healthy),
        *awkward(),
    ]
    runs = [(program, "") for program in chosen]
    runs += [(program, "others'") for program in (of_folder(options.folder) if options.folder else ())]
    runs = [each for each in runs if options.only is None or each[0].name in options.only]
    words = shlex.split(options.watch)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda each: look(each[0], words, options.limit, options.keep, each[1]), runs))
    text = table(results)
    print(f"\n{text}")
    if options.guide:
        put_on_page(ACCURACY, "detection", text)
    return 0 if all(each.right for each in results if each.counts) else 1


if __name__ == "__main__":
    sys.exit(main())
