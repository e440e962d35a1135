"""What recorded branches are worth: programs whose ranks a branch of their own parted, with the recorder and without.

    python tests/accuracy/recorded.py FOLDER --run PYTHON [--only NAME …] [--jobs 2]
    python tests/accuracy/recorded.py FOLDER --suite libraries --sample 100 --run PYTHON
    python tests/accuracy/recorded.py FOLDER [--suite libraries] [--sample 100] [--only NAME …]

With --run each program runs twice under watch, its ranks on that Python (3.12 or 3.13, with torch), and the snapshots
are saved as FOLDER/on/NAME.hangdoc and FOLDER/off/NAME.hangdoc; what is there already is not run again, and what left
none, as it came too late beside another, runs once more alone. Then, and without --run, the snapshots are diagnosed,
and a row is printed for each: are the ranks, the cause, the line and the condition right, how sure is the verdict, and
on how many of the ranks the decision that parted them was recorded: within what is compared, at all, of how many.

The large programs say themselves what is expected (large/README.md); of our others, recorded.json names the lines that
are right for the condition. With --suite libraries it is the hangs of that suite, all or --sample of them drawn by
chance: their condition is that of the saved case of the program where somebody has reviewed it, else the header's;
where there is neither, it is not judged.
"Certain" that was wrong is counted apart: it must stay zero.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import large
import saved
from cases import case, names, row
from predicates import predicates_in
from saved import NONE, PART, RIGHT, WRONG
from statements import heads_of

import run
from hangdoc import api, scenarios
from hangdoc.diagnosis.context import Case
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.document import diagnosis_document
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText
from hangdoc.scenarios import Scenario

EXPECTED = Path(__file__).with_suffix(".json")
SUITES = ("own", "libraries")
WAYS = ("on", "off")
_RECORD = {"on": "collectives,messages,store,lines,branches", "off": "collectives,messages,store,lines"}
_SEED = 1
"""Of ``--sample``, so that two runs draw the same programs."""
_MARKS = {RIGHT: "ok", PART: "pt", NONE: "no", WRONG: "NO"}


@dataclass(frozen=True)
class Program:
    """One of them. ``places``: 'file.py:12', each right for its condition, as far as it is the program's own.

    ``reviewed``: ("condition" of the row of its saved case,), see tests/cases.py; () where its header has to decide.
    """

    scenario: Scenario
    places: frozenset[str]
    reviewed: tuple[Mapping[str, Any] | None, ...] = ()
    own: bool = True
    """True if a test of the program itself parted the ranks, whose outcomes can be recorded."""

    def graded(self, document: Mapping[str, Any], sources: Sequence[SourceText]) -> str | None:
        """The word for the condition that is told (saved.py); None where it is not known which is right."""
        if self.reviewed:
            return saved.of_condition(self.reviewed[0], document, sources).word
        return saved.of_header(self.scenario, document).word if self.scenario.branch else None


@dataclass(frozen=True)
class Row:
    """One program, one way. ``window``: on how many ranks the decision that parted them is within what is compared with
    a rank of the other side; ``known``: on how many it was recorded at all; of ``ranks``."""

    program: Program
    way: str
    result: run.Result
    condition: str | None
    said: str
    window: int
    known: int
    ranks: int
    moment: bool

    @property
    def wrong_and_certain(self) -> bool:
        return self.result.confidence == "certain" and (False in self.result.aspects[:4] or self.condition == WRONG)

    def __str__(self) -> str:
        words = ["·" if each is None else "ok" if each else "NO" for each in self.result.aspects[:4]]
        marks = " ".join([*words, _MARKS.get(self.condition or "", "·")])
        sure = self.result.confidence + " WRONG" * self.wrong_and_certain
        window = f"{self.window}/{self.known}/{self.ranks}" if self.way == "on" and self.program.own else ""
        told = "moment" if self.moment else ""
        name = self.program.scenario.name
        return f"{name:26s} {self.way:3s} {marks:15s} {sure:14s} {window:8s} {told:6s} {self.said}"


def programs() -> dict[str, Program]:
    """Our own and the large ones, by name."""
    own = {each.name: each for each in run.expected()}
    told = {own[name]: places for name, places in json.loads(EXPECTED.read_text(encoding="utf-8")).items()}
    for each in run.expected("large"):
        told[each] = [f"{Path(file).name}:{line}" for file, line in large.answer(each.name).right]
    return {each.name: Program(each, frozenset(places), ({"at": places},)) for each, places in told.items()}


def programs_of_libraries() -> dict[str, Program]:
    """The hangs of that suite, by name."""
    reviewed = _reviewed()
    hangs = [each for each in run.expected("libraries") if each.outcome == "hang"]
    return {each.name: of_library(each, reviewed.get(each.name, ())) for each in hangs}


def of_library(scenario: Scenario, rows: Sequence[Mapping[str, Any] | None]) -> Program:
    """A program, and which of its lines are right for its condition, by what was reviewed of its saved cases (``rows``)
    as long as these lines are still the program's, else by the pieces of source in its header."""
    text = scenario.path.read_text(encoding="utf-8")
    statements = _statements(scenario.path.name, text)
    tests = {f"{each.file}:{each.line}" for each in predicates_in(scenario.path.name, text)}
    for condition in rows:
        if condition is None:
            return Program(scenario, frozenset(), (None,), own=False)
        places = _holding([condition["text"]], [each for each in statements if each[0] & {*condition["at"]}])
        if places:
            return Program(scenario, places, (condition,), bool(places & tests))
    places = _holding(scenario.branch, statements)
    return Program(scenario, places, own=bool(places & tests))


def _holding(pieces: Iterable[str], statements: Iterable[tuple[frozenset[str], str]]) -> frozenset[str]:
    """The lines of the statements that one of the pieces of source is in."""
    held = [lines for lines, source in statements if any(scenarios.is_told(each, source) for each in pieces)]
    return frozenset().union(*held)


def _statements(file: str, text: str) -> list[tuple[frozenset[str], str]]:
    """({'train.py:34'}, its source) of each statement, of a compound one of its head."""
    lines = text.split("\n")
    heads = heads_of(SourceText(file, "<module>", 1, text))
    return [(frozenset(f"{file}:{n}" for n in range(a, b + 1)), "\n".join(lines[a - 1 : b])) for a, b in heads]


@functools.cache
def _reviewed() -> dict[str, list[Mapping[str, Any] | None]]:
    """The reviewed conditions of the saved cases of the library suite's programs, by the program's name."""
    suite = {each.name: [each] for each in run.expected("libraries")}
    found: dict[str, list[Mapping[str, Any] | None]] = {}
    for name in names():
        if row(name).get("reviewed"):
            program = saved.program_of(api.load(case(name)).sources, suite)
            if program is not None:
                found.setdefault(program.name, []).append(row(name)["condition"])
    return found


def drawn(found: Mapping[str, Program], count: int) -> dict[str, Program]:
    """So many of them drawn by chance, in the order drawn; a smaller number draws the first of these."""
    order = random.Random(_SEED).sample(sorted(found), len(found))
    return {name: found[name] for name in order[:count]}


def lacking(python: Path, modules: Iterable[str]) -> set[str]:
    """Those that a Python does not have."""
    code = "import sys; from hangdoc.scenarios import installed; print(*(n for n in sys.argv[1:] if not installed(n)))"
    done = subprocess.run(
        [str(python), "-c", code, *modules], cwd=run.ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return {*done.stdout.split()}


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


def judged(program: Program, way: str, snapshot: JobSnapshot) -> Row:
    """What hangdoc says of a snapshot now."""
    diagnosis = api.diagnose(snapshot)
    document = diagnosis_document(diagnosis)
    branch = (document["divergence"] or {"branch": None})["branch"] or {}
    said = f"{branch.get('file')}:{branch.get('line')}"
    return Row(
        program,
        way,
        run.judge(program.scenario, "watch", document),
        program.graded(document, snapshot.sources),
        f"{'/'.join(said.split('/')[-2:])} {branch['condition'][:60]}" if branch else "–",
        window(snapshot, diagnosis, program.places),
        sum(_has(rank, program.places) for rank in snapshot.ranks),
        len(snapshot.ranks),
        bool(branch.get("moment")),
    )


def window(snapshot: JobSnapshot, diagnosis: Diagnosis, places: Iterable[str]) -> int:
    """On how many ranks the decision that parted them is within what is compared with a rank of the other side."""
    execution = Case(snapshot).execution
    ranks, culprits = [each.rank for each in snapshot.ranks], set(diagnosis.culprits)
    has = 0
    for rank in ranks:
        others = [each for each in ranks if (each in culprits) != (rank in culprits)]
        pairs = (execution.pair(rank, other) for other in execution.alike(rank, others))
        keys = {act.decided.key for pair in pairs if pair is not None for act in pair.sides[0] if act.decided}
        has += any(_is_one_of(f"{file}:{line}", places) for file, line, _ in keys)
    return has


def _has(rank: RankSnapshot, places: Iterable[str]) -> bool:
    branches = rank.process.branches if rank.process is not None else ()
    return any(_is_one_of(f"{each.file}:{each.line}", places) for each in branches)


def _is_one_of(said: str, places: Iterable[str]) -> bool:
    return any(said.endswith(f"/{place}") for place in places)


def summary(rows: Sequence[Row]) -> str:
    """'on: rank 37/37 …' for each way; conditions and certain ones also of those alone whose ranks a test of their own
    parted."""
    lines = []
    for way in WAYS:
        mine = [row for row in rows if row.way == way]
        shares = " ".join(f"{aspect} {run.share([r.result for r in mine], aspect)}" for aspect in _ASPECTS)
        parted = [row for row in mine if row.program.own]
        wrong = [row.program.scenario.name for row in mine if row.wrong_and_certain]
        within, known, ranks = (sum(getattr(row, what) for row in parted) for what in ("window", "known", "ranks"))
        seen = f" window {within}/{ranks} ranks, recorded at all on {known}" if way == "on" else ""
        lines += [
            f"{way}: {shares} {_conditions(mine)} certain but wrong {len(wrong)} {' '.join(wrong)}",
            f"    parted by a test of their own: {_conditions(parted)}{seen}",
        ]
    return "\n".join(lines)


def _conditions(rows: Sequence[Row]) -> str:
    """'condition 30/37 (2 part, 1 wrong) certain 20/37'."""
    words = [row.condition for row in rows if row.condition is not None]
    sure = sum(row.result.confidence == "certain" for row in rows)
    told = f"({words.count(PART)} part, {words.count(WRONG)} wrong)"
    return f"condition {words.count(RIGHT)}/{len(words)} {told} certain {sure}/{len(rows)}"


_ASPECTS = ("culprits", "cause", "line")


def main() -> int:
    """Exit status 1 if a certain verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=Path, metavar="PYTHON", help="run the programs with it first")
    parser.add_argument("--suite", choices=SUITES, default="own", help="which programs")
    parser.add_argument("--sample", type=int, metavar="N", help="N programs, drawn by chance; the same ones each time")
    parser.add_argument("--only", nargs="*", metavar="NAME")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    options = parser.parse_args()
    found = programs_of_libraries() if options.suite == "libraries" else programs()
    if options.sample is not None:
        found = drawn(found, options.sample)
    found = {name: each for name, each in found.items() if options.only is None or name in options.only}
    both = [(name, way, options.folder / way / f"{name}.hangdoc") for name in found for way in WAYS]
    if options.run is not None:
        without = lacking(options.run, sorted({each for one in found.values() for each in one.scenario.requires}))
        for name, program in found.items():
            if missing := without & {*program.scenario.requires}:
                print(f"  {name} not run: {', '.join(sorted(missing))} not installed")
                both = [each for each in both if each[0] != name]

        def run_one(name: str, way: str, kept: Path) -> None:
            if not kept.exists():
                watched(found[name].scenario, options.run, way, kept)

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(lambda each: run_one(*each), both))
        for each in both:
            run_one(*each)
    rows = []
    for name, way, kept in both:
        if kept.exists():
            rows.append(judged(found[name], way, api.load(kept)))
            print(rows[-1], flush=True)
        else:
            print(f"{name:26s} {way:3s} no snapshot")
    print(f"\n{summary(rows)}")
    return 1 if any(row.wrong_and_certain for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
