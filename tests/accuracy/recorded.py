"""What recorded branches are worth: programs whose ranks a branch of their own parted, with the recorder and without.

    python tests/accuracy/recorded.py FOLDER --run PYTHON [--only NAME …] [--jobs 2]
    python tests/accuracy/recorded.py FOLDER [--only NAME …]

With --run each program runs twice under watch, its ranks on that Python (3.12 or 3.13, with torch), and the snapshots
are saved as FOLDER/on/NAME.hangdoc and FOLDER/off/NAME.hangdoc. Then, and without --run, the snapshots are diagnosed,
and a row is printed for each: are the ranks, the cause, the line and the condition right, how sure is the verdict, and
on how many of the ranks the decision was recorded that parted them. The large programs say themselves what is expected
(large/README.md); of the others, recorded.json names the lines that are right for the condition.
"Certain" that was wrong is counted apart: it must stay zero.
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import large

import run
from hangdoc import api, scenarios
from hangdoc.diagnosis.context import Case
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.document import diagnosis_document
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.scenarios import Scenario

EXPECTED = Path(__file__).with_suffix(".json")
WAYS = ("on", "off")
_RECORD = {"on": "collectives,messages,store,lines,branches", "off": "collectives,messages,store,lines"}


@dataclass(frozen=True)
class Row:
    """One program, one way. ``window``: (ranks of which the decision was recorded, all ranks)."""

    name: str
    way: str
    result: run.Result
    condition: bool
    said: str
    window: tuple[int, int]
    moment: bool

    @property
    def wrong_and_certain(self) -> bool:
        return self.result.confidence == "certain" and False in (*self.result.aspects[:4], self.condition)

    def __str__(self) -> str:
        aspects = (*self.result.aspects[:4], self.condition)
        marks = " ".join("·" if each is None else "ok" if each else "NO" for each in aspects)
        sure = self.result.confidence + " WRONG" * self.wrong_and_certain
        window = f"{self.window[0]}/{self.window[1]}" if self.way == "on" else ""
        told = "moment" if self.moment else ""
        return f"{self.name:18s} {self.way:3s} {marks:15s} {sure:14s} {window:6s} {told:6s} {self.said}"


def programs() -> dict[str, tuple[Scenario, list[str]]]:
    """Name → the program, and the places that are right for its condition, 'file.py:12'."""
    own = {each.name: each for each in run.expected()}
    found = {name: (own[name], places) for name, places in json.loads(EXPECTED.read_text(encoding="utf-8")).items()}
    for each in run.expected("large"):
        said = large.answer(each.name)
        found[each.name] = each, [f"{file}:{line}" for file, line in said.right]
    return found


def watched(scenario: Scenario, python: Path, way: str, kept: Path) -> None:
    """Run it once under watch; its last snapshot goes to ``kept``."""
    with tempfile.TemporaryDirectory(prefix="recorded-") as name:
        folder = Path(name)
        path = run.put_into(scenario.path, folder)
        words = shlex.split(scenario.launch)
        launch = [str(python.parent / words[0]), *words[1:], str(path)]
        line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", str(scenarios.STALL_AFTER), "--quiet"]
        line += ["--on-hang", "abort", "--run-dir", str(folder / "run"), *scenario.watch, "--record", _RECORD[way]]
        with run.job([*line, "--", *launch], replace(scenario, path=path), folder) as process:
            run.status_of(process, scenario)
        found = sorted((folder / "run").rglob("stall-*.hangdoc"))
        kept.parent.mkdir(parents=True, exist_ok=True)
        if found:
            shutil.copy(found[-1], kept)
        print(f"  {scenario.name} {way}: {'saved' if found else 'no snapshot'}", flush=True)


def judged(scenario: Scenario, places: Sequence[str], way: str, snapshot: JobSnapshot) -> Row:
    """What hangdoc says of a snapshot now."""
    diagnosis = api.diagnose(snapshot)
    document = diagnosis_document(diagnosis)
    branch = (document["divergence"] or {"branch": None})["branch"] or {}
    said = f"{branch.get('file')}:{branch.get('line')}"
    return Row(
        scenario.name,
        way,
        run.judge(scenario, "watch", document),
        _is_one_of(said, places),
        f"{'/'.join(said.split('/')[-2:])} {branch['condition'][:60]}" if branch else "–",
        window(snapshot, diagnosis, places),
        bool(branch.get("moment")),
    )


def window(snapshot: JobSnapshot, diagnosis: Diagnosis, places: Iterable[str]) -> tuple[int, int]:
    """(on how many ranks the decision that parted them is within what is compared with a rank of the other side, of how
    many)."""
    execution = Case(snapshot).execution
    ranks, culprits = [each.rank for each in snapshot.ranks], set(diagnosis.culprits)
    has = 0
    for rank in ranks:
        others = [each for each in ranks if (each in culprits) != (rank in culprits)]
        pairs = (execution.pair(rank, other) for other in execution.alike(rank, others))
        keys = {act.decided.key for pair in pairs if pair is not None for act in pair.sides[0] if act.decided}
        has += any(_is_one_of(f"{file}:{line}", places) for file, line, _ in keys)
    return has, len(ranks)


def _is_one_of(said: str, places: Iterable[str]) -> bool:
    return any(said.endswith(f"/{place}") for place in places)


def summary(rows: Sequence[Row]) -> str:
    """'on: rank 37/37 …' for each way."""
    lines = []
    for way in WAYS:
        mine = [row for row in rows if row.way == way]
        shares = " ".join(f"{aspect} {run.share([r.result for r in mine], aspect)}" for aspect in _ASPECTS)
        sure = sum(row.result.confidence == "certain" for row in mine)
        text = f"{way}: {shares} condition {sum(row.condition for row in mine)}/{len(mine)} certain {sure}/{len(mine)}"
        wrong = [row.name for row in mine if row.wrong_and_certain]
        within, ranks = (sum(row.window[at] for row in mine) for at in (0, 1))
        seen = f" window {within}/{ranks} ranks" if way == "on" else ""
        lines.append(f"{text}{seen} certain but wrong {len(wrong)} {' '.join(wrong)}")
    return "\n".join(lines)


_ASPECTS = ("culprits", "cause", "line")


def main() -> int:
    """Exit status 1 if a certain verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=Path, metavar="PYTHON", help="run the programs with it first")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    options = parser.parse_args()
    found = {name: each for name, each in programs().items() if options.only is None or name in options.only}
    both = [(name, way, options.folder / way / f"{name}.hangdoc") for name in found for way in WAYS]
    if options.run is not None:
        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda each: watched(found[each[0]][0], options.run, each[1], each[2]), both))
    rows = []
    for name, way, kept in both:
        if kept.exists():
            rows.append(judged(*found[name], way, api.load(kept)))
            print(rows[-1], flush=True)
        else:
            print(f"{name:18s} {way:3s} no snapshot")
    print(f"\n{summary(rows)}")
    return 1 if any(row.wrong_and_certain for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
