"""What dumps of gloo's own flight recorder show of the hangs of run.py: their folder alone, once the job is quiet.

    python tests/accuracy/dumps.py [--jobs 2] [--only NAME …] [--keep DIR] [--guide]

Every program of run.py that hangs and whose header names culprits, started bare. Once it is quiet, each rank writes
what its flight recorder holds, as others/others_in_rank.py does it, and `hangdoc diagnose DIR` sees nothing else: no
process, no stack of now. gloo's recorder keeps no send and recv, nor who is in a group. So "nobody" is an honest answer
where a rank waits outside of a collective; naming the wrong rank is not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import others
from guide_pages import DUMPS, put_on_page

from hangdoc.scenarios import Scenario

RIGHT, AMONG, NOBODY, WRONG = "right", "among several", "nobody", "wrong"
ANSWERS = (RIGHT, AMONG, NOBODY, WRONG)
_WAIT = 12.0
"""Seconds between the end of all movement and the dumps: longer than these programs ever pause by themselves."""


@dataclass(frozen=True)
class Result:
    """What was said of one folder. ``answer``: one of ``ANSWERS``."""

    name: str
    answer: str
    hang: bool
    certain_and_wrong: bool
    cause: bool | None
    """Is the header's cause the one that was named? None: nobody was named, or the header has none."""


def judge(scenario: Scenario, document: dict[str, Any]) -> Result:
    """Compare the document with the header."""
    culprits = sorted(document.get("culprits", []))
    guilty = sorted(scenario.culprits or ())
    sure = document.get("confidence")
    if culprits == guilty and culprits:
        answer = RIGHT
    elif guilty in [sorted(each) for each in document.get("alternatives", [])] and (not culprits or sure == "possible"):
        answer = AMONG
    else:
        answer = WRONG if culprits else NOBODY
    hang = document.get("outcome") == "hang"
    code = (document.get("cause") or {}).get("code")
    named = code == scenario.cause if answer == RIGHT and scenario.cause else None
    return Result(scenario.name, answer, hang, answer == WRONG and sure == "certain", named)


def look(scenario: Scenario, keep: Path | None) -> Result | None:
    """Start it, let its ranks dump, diagnose the folder, print a row; None where it did not hang. ``keep``: where the
    folder goes."""
    with tempfile.TemporaryDirectory(prefix="dumps-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        copied = replace(scenario, path=Path(shutil.copy(scenario.path, folder)))
        raw = others.dump(copied, folder, wait=_WAIT)
        if raw is None:
            print(f"{scenario.name:26s} ended by itself: not counted", flush=True)
            return None
        line = [sys.executable, "-m", "hangdoc", "diagnose", str(raw), "--json"]
        said = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
        document = json.loads(said.stdout) if said.stdout.startswith("{") else {}
        result = judge(copied, document)
        if keep is not None:
            shutil.copytree(folder, keep / scenario.name)
    code = (document.get("cause") or {}).get("code", "-")
    found = f"{document.get('outcome', said.stderr.strip()[:80])} {document.get('culprits', [])} {code}"
    print(f"{result.name:26s} {result.answer:14s} {document.get('confidence', '')!s:9s} {found}", flush=True)
    return result


def table(results: Sequence[Result]) -> str:
    """The counts in Markdown."""
    counts = [sum(r.answer == answer for r in results) for answer in ANSWERS]
    causes = [r.cause for r in results if r.cause is not None]
    cells = [len(results), sum(r.hang for r in results), *counts, f"{sum(causes)}/{len(causes)}",
             sum(r.certain_and_wrong for r in results)]  # fmt: skip
    head = ["programs", "told a hang", "right ranks", "right ranks among several", "nobody named", "wrong ranks",
            "cause, where the ranks are right", "certain but wrong"]  # fmt: skip
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in (head, ["---"] * len(head), cells))


def main() -> int:
    """Run what was asked for; exit status 1 if a certain verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep programs and dumps")
    parser.add_argument("--guide", action="store_true", help="write the table into hangdoc/guide")
    options = parser.parse_args()
    chosen = others.that_hang(options.only)
    with ThreadPoolExecutor(options.jobs) as pool:
        results = [found for found in pool.map(lambda each: look(each, options.keep), chosen) if found is not None]
    text = table(results)
    print(f"\n{text}")
    if options.guide:
        put_on_page(DUMPS, "gloo", text)
    return 1 if any(result.certain_and_wrong for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
