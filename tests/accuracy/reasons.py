"""How well the reason is found, apart from who is to blame: the culprits and the ranks beside them are given.

    python tests/accuracy/reasons.py [--only NAME …] [--large FOLDER] [--misses] [--write] [--jobs 2]

Judged on the saved cases with a reviewed condition (tests/cases.py), and on snapshots of the large programs
(`NAME.hangdoc` in a folder, from `run.py --suite large --keep`) by what their authors say. The culprits are those
of the expectation. For each case: the place that a person named, the place of its first reason, and at which place of
the list the first right one stands (0: nowhere). A place is right where it is a line of the statement that was named.

- recall: the right place is in the slice, at any place of the list or left out of it.
- rank 1, rank 3: it is the first, among the first three.
- silent: something is expected, and nothing is listed. Where nothing parted the ranks, nothing is right.

The halves are drawn by a hash of the name: a mechanism is made looking at "tuned" alone, and judged on "apart".
With --write the figures and a line a case go to reasons.json, the baseline; later runs print what has changed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import large
from cases import EXPECTED, case, laid_out, names, row
from statements import places_of_statement

from hangdoc import api
from hangdoc.diagnosis.blame.deciders import story as blame
from hangdoc.diagnosis.blame.post_mortem import crashed
from hangdoc.diagnosis.causes.nearest import reasons_of
from hangdoc.diagnosis.frames.library import with_library_frames
from hangdoc.diagnosis.reason.reasons import Found
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.marks import shown
from hangdoc.model.snapshot import JobSnapshot, SourceText

BASELINE = Path(__file__).with_suffix(".json")
HALVES = ("tuned", "apart")


@dataclass(frozen=True)
class Judged:
    """One case. ``place``: of the first right reason in the list, 0 nowhere; ``reached``: it is in the slice.

    ``size``: how many items the slice has; ``listed``: how many reasons are left; ``seconds``: CPU time.
    """

    name: str
    suite: str
    expected: str
    said: str
    place: int
    also: int
    reached: bool
    listed: int
    size: int
    seconds: float

    @property
    def half(self) -> str:
        """The one that the case belongs to."""
        return HALVES[hashlib.sha256(self.name.encode()).digest()[0] % 2]

    def line(self) -> dict[str, Any]:
        """What is kept of it."""
        return {"place": self.place, "reached": self.reached, "said": self.said, "expected": self.expected}


def judge(
    name: str, suite: str, job: JobSnapshot, culprits: Sequence[int], right: Sequence[str], also: Sequence[str] = ()
) -> Judged:
    """Find the reasons in one snapshot, and hold them against the places that are right ('train.py:34')."""
    found, seconds = found_in(job, tuple(culprits))
    sources = (*job.sources, *map(shown, job.modules))
    listed = [(each.item.file, each.item.line) for each in found.reasons]
    return Judged(
        name=name,
        suite=suite,
        expected=" ".join(right),
        said=_told(found),
        place=_first(sources, listed, {*right}),
        also=_first(sources, listed, {*also}),
        reached=bool(_first(sources, [(each.file, each.line) for each in found.slice], {*right})),
        listed=len(listed),
        size=len(found.slice),
        seconds=seconds,
    )


def found_in(job: JobSnapshot, culprits: tuple[int, ...]) -> tuple[Found, float]:
    """(the reasons with the slice they are from, the CPU time that these took)."""
    looked_at = prepared(with_library_frames(job))
    blamed = crashed(looked_at)[0] if looked_at.job.ended else blame(looked_at)
    begun = time.process_time()
    found = reasons_of(looked_at, blamed, culprits)
    return found, time.process_time() - begun


def _first(sources: Sequence[SourceText], listed: Sequence[tuple[str, int]], right: set[str]) -> int:
    wanted = {place.partition(":")[0] for place in right}
    for number, (file, line) in enumerate(listed, 1):
        if PurePosixPath(file).name in wanted and places_of_statement(sources, file, line) & right:
            return number
    return 0


def _told(found: Found) -> str:
    if not found.reasons:
        return ""
    first = found.reasons[0]
    return f"{PurePosixPath(first.item.file).name}:{first.item.line} {first.item.text} ({first.strength.name.lower()})"


def of_case(name: str) -> Judged:
    """A saved case."""
    expected = row(name)
    condition = expected["condition"] or {"at": ()}
    job = api.load(case(name))
    return judge(name, "saved", job, expected["culprits"], condition["at"], condition.get("also", ()))


def of_large(path: Path) -> Judged:
    """A snapshot of a large program."""
    answer = large.answer(path.stem)
    right = {f"{PurePosixPath(file).name}:{line}" for file, line in answer.right}
    first = f"{PurePosixPath(answer.condition.file).name}:{answer.condition.line}"
    return judge(path.stem, "large", api.load(path), answer.document["culprits"], [first], sorted(right - {first}))


def figures(results: Sequence[Judged]) -> dict[str, Any]:
    """The counts of one row of the table."""
    some = [each for each in results if each.expected]
    none = [each for each in results if not each.expected]
    return {
        "cases": len(some),
        "recall": sum(each.reached for each in some),
        "rank 1": sum(each.place == 1 for each in some),
        "rank 3": sum(1 <= each.place <= 3 for each in some),
        "part first": sum(each.place != 1 and each.also == 1 for each in some),
        "silent": sum(not each.said for each in some),
        "without one": len(none),
        "none said": sum(not each.said for each in none),
        "median slice": statistics.median([each.size for each in results]) if results else 0,
        "median ms": round(1000 * statistics.median([each.seconds for each in results]), 1) if results else 0,
        "most ms": round(1000 * max((each.seconds for each in results), default=0)),
    }


def groups(results: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The rows of the table."""
    saved = [each for each in results if each.suite == "saved"]
    found = {"saved": saved, **{f"saved, {half}": [e for e in saved if e.half == half] for half in HALVES}}
    return {**found, "large": [each for each in results if each.suite == "large"]}


def table(of: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures in Markdown."""
    columns = list(next(iter(of.values())))
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, counted in of.items():
        cells = [
            f"{value} ({100 * value / counted['cases']:.0f} %)"
            if column in ("recall", "rank 1", "rank 3", "part first", "silent") and counted["cases"]
            else str(value)
            for column, value in counted.items()
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def changes(before: Mapping[str, Mapping[str, Any]], results: Sequence[Judged]) -> dict[str, list[str]]:
    """Which cases have gained or lost their first place, or the slice."""
    found: dict[str, list[str]] = {"gained": [], "lost": []}
    for each in results:
        then = before.get(each.name)
        if then is None or not each.expected:
            continue
        for what, old, new in (
            ("rank 1", then["place"] == 1, each.place == 1),
            ("slice", then["reached"], each.reached),
        ):
            if old != new:
                found["gained" if new else "lost"].append(f"{each.name}: {what}: {then['said']} → {each.said}")
    return found


def main() -> int:
    """Judge what was asked for; exit status 1 where something was lost since the baseline."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--large", type=Path, metavar="FOLDER", help="where snapshots of the large programs lie")
    parser.add_argument("--misses", action="store_true", help="list each case that is not right at first")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all that was found there")
    parser.add_argument("--write", action="store_true", help="renew reasons.json")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    chosen = [n for n in names() if row(n).get("reviewed") and (options.only is None or n in options.only)]
    folder = (
        [p for p in sorted(options.large.glob("*.hangdoc")) if (large.LARGE / p.stem).is_dir()] if options.large else []
    )
    folder = [path for path in folder if options.only is None or path.stem in options.only]
    with multiprocessing.Pool(options.jobs) as pool:
        results = [*pool.imap(of_case, chosen, chunksize=4), *pool.imap(of_large, folder)]
    counted = {name: figures(some) for name, some in groups(results).items() if some}
    print(table(counted))
    if options.misses:
        for each in results:
            if each.place != 1 and (each.expected or each.said):
                print(
                    f"{each.half} {each.name}: {each.place} of {each.listed}, reached {each.reached}, part {each.also}:"
                )
                print(f"      wanted {each.expected or 'nothing'}; {each.said or 'nothing said'}")
    before = json.loads(BASELINE.read_text(encoding="utf-8"))["cases"] if BASELINE.exists() else {}
    found = changes(before, results) if before else {}
    for what, lines in found.items():
        print("\n".join([f"\n{what} since {BASELINE.name}: {len(lines)}", *(f"  {line}" for line in lines)]))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in results], indent=1), encoding="utf-8")
    if options.write:
        rows = laid_out(counted, EXPECTED).rstrip()
        lines = laid_out({each.name: each.line() for each in results}, EXPECTED).rstrip()
        BASELINE.write_text(f'{{"figures": {rows},\n"cases": {lines}}}\n', encoding="utf-8")
    return 1 if found.get("lost") else 0


if __name__ == "__main__":
    sys.exit(main())
