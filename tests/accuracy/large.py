"""The large programs: what their authors say of them, whether it holds, and how well one would do by guessing.

    python tests/accuracy/large.py                   a row for each, and the two baselines
    python tests/accuracy/large.py --list NAME       write the predicates of its text into its answer.json
    python tests/accuracy/large.py --differing NAME  run it with FIXED=1 and print the predicates that differ by rank
    python tests/accuracy/large.py --check [NAME …]  print what of large/README.md does not hold
    python tests/accuracy/large.py --held NAME FILE  print the predicates that a snapshot's sources lack

`run.py --suite large` runs them under watch and attach, and judges the verdicts. The baselines: a predicate drawn at
random, and the nearest guard, which is the innermost if, while or for around the culprit's line in its function. Either
is right where it is the condition or another place that the author accepts.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from predicates import Predicate, modules, nearest_guard, predicates_of, record, seen

from hangdoc import scenarios
from hangdoc.capture.read.scrubbing import scrub
from hangdoc.model.codec import load_snapshot
from hangdoc.model.marks import shown
from hangdoc.model.snapshot import SourceText
from hangdoc.scenarios import Scenario
from run import LARGE, expected, job

FEWEST_PREDICATES, FEWEST_DIFFERING = 100, 15
LARGEST_CHANCE = 0.10
_LITERAL = re.compile(r"\"[^\"]*\"|'[^']*'")
_RUN_SECONDS = 120


@dataclass(frozen=True)
class Answer:
    """What the author says: places are (file, line), files relative to the program's folder."""

    folder: Path
    document: dict[str, Any]

    @property
    def name(self) -> str:
        """The program's."""
        return self.folder.name

    @property
    def line(self) -> tuple[str, int]:
        """Where the culprit is."""
        return place(self.document["line"])

    @property
    def condition(self) -> Predicate:
        """The one that parted the ranks."""
        return _predicate(self.document["condition"])

    @property
    def right(self) -> set[tuple[str, int]]:
        """The condition's place, and the others that are as good."""
        return {(self.condition.file, self.condition.line), *map(place, self.document["also"])}

    @property
    def predicates(self) -> list[Predicate]:
        """All that the author named."""
        return [_predicate(each) for each in self.document["predicates"]]

    @property
    def differing(self) -> list[Predicate]:
        """Those that differ between ranks, and harm nothing."""
        return [_predicate(each) for each in self.document["differing"]]

    @property
    def chance(self) -> float:
        """That one of the predicates, drawn at random, is right."""
        found = [(each.file, each.line) in self.right for each in self.predicates]
        return sum(found) / max(1, len(found))

    @property
    def guard(self) -> tuple[str, int] | None:
        """The nearest one around the culprit's line."""
        file, line = self.line
        found = nearest_guard((self.folder / file).read_text(encoding="utf-8"), line)
        return (file, found) if found is not None else None


def place(text: str) -> tuple[str, int]:
    """('engine/loop.py', 52) of 'engine/loop.py:52'. Raises ``ValueError``."""
    file, _, line = text.rpartition(":")
    return file, int(line)


def _predicate(entry: dict[str, Any]) -> Predicate:
    return Predicate(entry["file"], entry["line"], entry["text"])


def answer(name: str) -> Answer:
    """That program's. Raises ``OSError``, ``ValueError``."""
    return Answer(LARGE / name, json.loads((LARGE / name / "answer.json").read_text(encoding="utf-8")))


def complaints(program: Answer, header: Scenario, text: dict[str, str]) -> list[str]:
    """What of the format does not hold. ``text``: the program's files by their relative path."""
    said, lines = program.document, {file: body.splitlines() for file, body in text.items()}
    every = set(predicates_of(program.folder))
    found: list[str] = []
    for what in ("outcome", "cause", "culprits"):
        told = getattr(header, what)
        if told is not None and (list(told) if isinstance(told, tuple) else told) != said[what]:
            found.append(f"{what}: the header has {told}, the answer {said[what]}")
    for file, line in (program.line, *program.right):
        if not 1 <= line <= len(lines.get(file, ())):
            found.append(f"no such line: {file}:{line}")
        elif [Path(other).name for other in text].count(Path(file).name) != 1:
            found.append(f"more than one file is called {Path(file).name}")
    if Path(program.line[0]).name != (header.file or header.path.name) or program.line[1] not in header.lines:
        found.append("the header's lines are not of the culprit's line")
    for each in (program.condition, *program.differing):
        if each not in every:
            found.append(f"no predicate: {each}")
    if "".join(program.condition.text.split()).find("".join(header.branch[0].split())) < 0:
        found.append("the header's first branch is not the condition")
    if set(program.predicates) != every:
        found.append(f"predicates are not those of the text: {len(set(program.predicates) ^ every)} differ; --list")
    if len(every) < FEWEST_PREDICATES:
        found.append(f"{len(every)} predicates, fewer than {FEWEST_PREDICATES}")
    if len(set(program.differing)) < FEWEST_DIFFERING:
        found.append(f"{len(program.differing)} differ, fewer than {FEWEST_DIFFERING}")
    if {(each.file, each.line) for each in program.differing} & program.right:
        found.append("a predicate that differs harmlessly is the condition")
    if program.chance > LARGEST_CHANCE:
        found.append(f"a random pick is right in {100 * program.chance:.0f} %")
    if sum(body.count('os.environ.get("FIXED")') for body in text.values()) != 1:
        found.append("FIXED is not read in exactly one place")
    return found


def lacking(predicates: Iterable[Predicate], text: dict[str, str], sources: Iterable[SourceText]) -> list[Predicate]:
    """The predicates whose line is in none of the sources; the content of string literals is not compared."""
    shown = {file: scrub(body).split("\n") for file, body in text.items()}
    held: set[tuple[str, int, str]] = set()
    for source in sources:
        for file in text:
            if source.file == file or source.file.endswith(f"/{file}"):
                held |= {(file, number, _bare(line)) for number, line in source.lines().items()}
    return [each for each in predicates if (each.file, each.line, _bare(shown[each.file][each.line - 1])) not in held]


def _bare(line: str) -> str:
    return "".join(_LITERAL.sub('""', line).split())


def differing(program: Answer, header: Scenario) -> list[tuple[Predicate, dict[int, tuple[int, int]]]]:
    """Run the corrected program; the predicates whose values differ between ranks, with how often each rank found them
    false and true. Raises ``RuntimeError`` where it does not end well."""
    with tempfile.TemporaryDirectory(prefix="large-") as name:
        folder = Path(name)
        numbered = record(program.folder, folder / program.name)
        copied = replace(header, path=folder / program.name / "main.py", environment=(("FIXED", "1"),))
        with job(scenarios.command(copied), copied, folder) as process:
            try:
                status = process.wait(_RUN_SECONDS)
            except subprocess.TimeoutExpired:
                status = None
        if status != 0:
            raise RuntimeError(f"exit status {status}\n{(folder / 'output').read_text(errors='replace')[-3000:]}")
        ranks = seen(folder / program.name)
    found = []
    for number, each in enumerate(numbered):
        values = {rank: told.get(number, ((0, 0), "")) for rank, told in ranks.items()}
        if len(set(values.values())) > 1:
            found.append((each, {rank: counts for rank, (counts, _) in values.items()}))
    return found


def table(programs: Iterable[Answer]) -> str:
    """A row for each program in Markdown, and the baselines over all of them."""
    rows = ["| program | lines | predicates | differ | random pick | nearest guard |", "|---|---|---|---|---|---|"]
    chances, guards = [], []
    for each in programs:
        count = sum(len(text.splitlines()) for _, text in modules(each.folder))
        chances.append(each.chance)
        guards.append(each.guard in each.right)
        guard = f"{each.guard[0]}:{each.guard[1]}" if each.guard else "none"
        numbers = f"{count} | {len(each.predicates)} | {len(each.differing)} | {100 * each.chance:.1f} %"
        rows.append(f"| {each.name} | {numbers} | {'right' if guards[-1] else 'wrong'} ({guard}) |")
    mean = 100 * sum(chances) / max(1, len(chances))
    return "\n".join([*rows, f"| all | | | | {mean:.1f} % | {sum(guards)}/{len(guards)} |"])


def laid_out(document: dict[str, Any]) -> str:
    """The text of an answer.json: a line for each predicate."""
    parts = []
    for key, value in document.items():
        text = json.dumps(value, ensure_ascii=False)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines = ",\n".join(f"    {json.dumps(each, ensure_ascii=False)}" for each in value)
            text = f"[\n{lines}\n  ]"
        parts.append(f"  {json.dumps(key)}: {text}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> int:
    """Do what was asked for; exit status 1 if something does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="NAME")
    parser.add_argument("--differing", metavar="NAME")
    parser.add_argument("--check", nargs="*", metavar="NAME")
    parser.add_argument("--held", nargs=2, metavar=("NAME", "FILE"))
    options = parser.parse_args()
    headers = {header.name: header for header in expected("large")}
    if options.list:
        program = answer(options.list)
        entries = [{"file": p.file, "line": p.line, "text": p.text} for p in predicates_of(program.folder)]
        written = laid_out({**program.document, "predicates": entries})
        (program.folder / "answer.json").write_text(written, encoding="utf-8")
        print(f"{len(entries)} predicates")
    elif options.differing:
        for each, values in differing(answer(options.differing), headers[options.differing]):
            print(each, " ".join(f"{rank}:{no}/{yes}" for rank, (no, yes) in values.items()), sep="   ")
    elif options.held:
        program = answer(options.held[0])
        job = load_snapshot(options.held[1])
        held = (*job.sources, *map(shown, job.modules))
        missing = lacking(program.predicates, dict(modules(program.folder)), held)
        for each in missing:
            print(each)
        print(f"{len(missing)} of {len(program.predicates)} predicates are not in the snapshot")
        return 1 if missing else 0
    elif options.check is not None:
        wrong = [
            f"{name}: {text}"
            for name in options.check or headers
            for text in complaints(answer(name), headers[name], dict(modules(LARGE / name)))
        ]
        print("\n".join(wrong) or "all holds")
        return 1 if wrong else 0
    else:
        print(table(answer(name) for name in headers))
    return 0


if __name__ == "__main__":
    sys.exit(main())
