"""What hangdoc says of every saved case, against what a person expects of it.

    python tests/accuracy/saved.py [--only NAME …] [--against FILE] [--write] [--jobs 2]

A clause is a part of the verdict that can be right or wrong by itself: outcome, culprits, cause, line, condition. Each
gets a word:

- right: as expected; also where nothing is expected, and nothing is said.
- part: the ranks are among those that a "possible" verdict names; a line of several; a condition that belongs to the
  chain without being its first.
- none: something is expected, and nothing is said.
- wrong: something else is said, or something where there is nothing to say.

Conditions are judged where somebody has read the program without having seen the answer (``reviewed`` in a row, see
tests/cases.py), and apart from those where the header of the case's program quotes the condition (``branch``, see
hangdoc/scenarios.py): there the words decide, as in run.py. All others are not judged.

The table says how much of what is expected is right ("found") and how much of what is said ("precise"). Certain covers
every clause: the cases that are certain with a clause that is wrong are listed by name. With --write the figures and a
line a case go to saved.json; later runs print what has become better and worse since. Exit status 1 if anything has
become worse. With --engine next it is the new diagnosis that is judged, with both also how sure each is, and where the
two disagree.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from cases import EXPECTED, case, diagnosed, expectation, laid_out, names, row
from statements import places_of_statement

import run
from hangdoc import api, scenarios
from hangdoc.model.snapshot import SourceText
from hangdoc.scenarios import Scenario

BASELINE = Path(__file__).with_suffix(".json")
WRONG, NONE, PART, RIGHT = WORDS = ("wrong", "none", "part", "right")
"""The worst first: who says nothing misleads nobody."""
CLAUSES = ("outcome", "culprits", "cause", "line", "condition", "header")
LEVELS = ("certain", "likely", "possible")
_SAME_LINES = 0.6
"""Of a snapshot's lines without literals, the share that a program must have to be the case's. Of 154 cases, those of
programs that share the name alone have up to 0.3, those of the program itself, edited since or not, 0.87 and more."""


class Grade(NamedTuple):
    """How one clause was judged. ``said``: in a few words, '' if nothing. ``expected``: is there something to say?"""

    word: str
    said: str = ""
    expected: bool = True


@dataclass(frozen=True)
class Judged:
    """One case. ``origin`` is '' where it is not known; ``grades`` hold only the clauses that are judged."""

    name: str
    origin: str
    confidence: str
    grades: Mapping[str, Grade]

    @property
    def wrong(self) -> list[str]:
        return [clause for clause, grade in self.grades.items() if grade.word == WRONG]

    def line(self) -> dict[str, str]:
        """What is kept of it: what is not right, and every condition."""
        told = {
            clause: f"{grade.word}: {grade.said}" if grade.said and grade.word != RIGHT else grade.word
            for clause, grade in self.grades.items()
            if grade.word != RIGHT or clause in ("condition", "header")
        }
        return {"sure": self.confidence, **told}


def judge(
    name: str,
    expected: Mapping[str, Any],
    document: Mapping[str, Any],
    sources: Sequence[SourceText] = (),
    program: Scenario | None = None,
) -> Judged:
    """Hold a diagnosis document against a row of the expectations, and against the header of the case's program."""
    grades = {
        "outcome": _grade(True, document["outcome"], document["outcome"] == expected["outcome"]),
        "culprits": _culprits(expected["culprits"], document),
        "cause": _cause(expected["cause"], document),
        "line": _line(expected["lines"], expectation(document)["lines"]),
    }
    if expected.get("reviewed"):
        grades["condition"] = of_condition(expected["condition"], document, sources)
    if program is not None:
        grades["header"] = of_header(program, document)
    return Judged(name, expected.get("origin", ""), document["confidence"], grades)


def _grade(expected: bool, said: str, right: bool, part: bool = False) -> Grade:
    if not said:
        return Grade(NONE if expected else RIGHT, "", expected)
    return Grade(RIGHT if right else PART if part else WRONG, said, expected)


def _culprits(expected: list[int], document: Mapping[str, Any]) -> Grade:
    culprits, others = document["culprits"], document["alternatives"] if document["confidence"] == "possible" else []
    if not culprits and not expected:
        return Grade(RIGHT, expected=False)  # nobody is blamed, also where alternatives are named
    said = " or ".join(map(str, [culprits, *others] if culprits else others))
    return _grade(bool(expected), said, culprits == expected, expected in others)


def _cause(expected: str | None, document: Mapping[str, Any]) -> Grade:
    code = (document["cause"] or {"code": ""})["code"]
    return _grade(bool(expected), code, code == expected)


def _line(expected: list[str], told: list[str]) -> Grade:
    return _grade(bool(expected), " ".join(told), {*told} == {*expected}, bool({*told} & {*expected}))


def of_condition(
    expected: Mapping[str, Any] | None, document: Mapping[str, Any], sources: Sequence[SourceText]
) -> Grade:
    """Right where its place is one of those of a row's ``condition``, part where it belongs to the chain."""
    branch = (document["divergence"] or {"branch": None})["branch"]
    if branch is None:
        return _grade(expected is not None, "", right=False)
    said = f"{PurePosixPath(branch['file']).name}:{branch['line']} {branch['condition']}"
    if expected is None:
        return _grade(False, said, right=False)
    places = places_of_statement(sources, branch["file"], branch["line"])
    return _grade(True, said, bool(places & {*expected["at"]}), bool(places & {*expected.get("also", ())}))


def of_header(program: Scenario, document: Mapping[str, Any]) -> Grade:
    """Right where the condition itself is one of the header's, part where the sentences have one."""
    branch = (document["divergence"] or {"branch": None})["branch"]
    in_words = _told(program, document)
    if branch is None:
        return _grade(True, "in words alone" if in_words else "", right=False, part=in_words)
    said = f"{PurePosixPath(branch['file']).name}:{branch['line']} {branch['condition']}"
    return _grade(True, said, _told(program, {**document, "verdict": "", "why": ""}), in_words)


def _told(program: Scenario, document: Mapping[str, Any]) -> bool:
    return any(each.agrees for each in scenarios.compare(program, document) if each.what == "branch")


def program_of(sources: Iterable[SourceText], programs: Mapping[str, Sequence[Scenario]]) -> Scenario | None:
    """The program that the sources are of, among ``programs`` by the name of their file.

    Other programs have the same name, and the case's may have been edited since: so most of the lines must be there.
    """
    captured: dict[str, list[str]] = {}
    for source in sources:
        lines = [line.strip() for line in source.text.split("\n")]
        captured.setdefault(source.file, []).extend(line for line in lines if line and "…" not in line)
    for file, lines in captured.items():
        for program in programs.get(PurePosixPath(file).stem, ()):
            there = {line.strip() for line in program.path.read_text(encoding="utf-8").split("\n")}
            if lines and sum(line in there for line in lines) >= _SAME_LINES * len(lines):
                return program
    return None


@functools.cache
def programs_with_conditions() -> dict[str, list[Scenario]]:
    """Those whose header quotes a condition, by name."""
    found: dict[str, list[Scenario]] = {}
    for suite in run.SUITES:
        for program in run.expected(suite):
            if program.branch:
                found.setdefault(program.name, []).append(program)
    return found


def of_case(name: str) -> Judged:
    """Diagnose a saved case and judge it."""
    sources = api.load(case(name)).sources
    return judge(name, row(name), diagnosed(name).document, sources, program_of(sources, programs_with_conditions()))


def groups(results: Sequence[Judged]) -> dict[str, list[Judged]]:
    """The rows of the table: all cases, those of each origin (all held-out sets are one), those of each confidence."""
    found = {"all": list(results)}
    origins = {each.name: (each.origin or "unknown").split(" ")[0] for each in results}
    for origin in sorted({*origins.values()}):
        found[f"from {origin}"] = [each for each in results if origins[each.name] == origin]
    for level in LEVELS:
        found[level] = [each for each in results if each.confidence == level]
    return found


def figures(results: Sequence[Judged]) -> dict[str, Any]:
    """How many cases there are, how many without anything wrong, and for each clause: how many have each word, of
    how many something is ``expected``, of how many something is ``said``."""
    counted: dict[str, Any] = {"cases": len(results), "nothing wrong": sum(not each.wrong for each in results)}
    for clause in CLAUSES:
        grades = [each.grades[clause] for each in results if clause in each.grades]
        counted[clause] = {
            "judged": len(grades),
            "expected": sum(grade.expected for grade in grades),
            "said": sum(bool(grade.said) for grade in grades),
            "found": sum(grade.word == RIGHT and grade.expected for grade in grades),
            **{word: sum(grade.word == word for grade in grades) for word in reversed(WORDS)},
        }
    return counted


def table(of: Mapping[str, Mapping[str, Any]]) -> str:
    """The figures of each group in Markdown."""
    head = ["", "cases", "outcome", *("culprits found", "precise", "cause found", "precise", "line"),
            *("condition found", "precise", "by the header found", "precise", "nothing wrong")]  # fmt: skip
    lines = [f"| {' | '.join(head)} |".replace("|  |", "| |"), "|---" * len(head) + "|"]
    for group, counted in of.items():
        cells = [group, str(counted["cases"]), _share(counted["outcome"], "expected")]
        for clause in CLAUSES[1:]:
            cells.append(_share(counted[clause], "expected"))
            if clause != "line":
                cells.append(_share(counted[clause], "said"))
        cells.append(_percent(counted["nothing wrong"], counted["cases"]))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _share(counted: Mapping[str, int], among: str) -> str:
    parts = f" + {counted[PART]}" if counted[PART] else ""
    return _percent(counted["found"], counted[among], parts)


def _percent(good: int, of: int, parts: str = "") -> str:
    return f"{good}/{of}{parts} ({100 * good / of:.0f} %)" if of else "–"


def conditions(counted: Mapping[str, Mapping[str, int]], unreviewed: int) -> str:
    """The counts behind the shares of conditions."""
    lines = []
    for clause, what in (("condition", "Reviewed conditions"), ("header", "Conditions of headers")):
        some = counted[clause]
        without, silent = some["judged"] - some["expected"], some[RIGHT] - some["found"]
        lines.append(
            f"{what}: {some['expected']}, of which {some['found']} right, {some[PART]} part, "
            f"{some[WRONG] - without + silent} wrong, {some[NONE]} none said."
            + (f" None there is in {without} more: {silent} none said, {without - silent} wrong." if without else "")
        )
    return "\n".join([*lines, f"Unreviewed: {unreviewed} cases."])


def certain_and_wrong(results: Sequence[Judged]) -> str:
    """Those that are certain and have a clause that is wrong, by name."""
    found = [each for each in results if each.confidence == "certain" and each.wrong]
    told = [
        f"  {each.name}: {'; '.join(f'{clause} {each.grades[clause].said}' for clause in each.wrong)}" for each in found
    ]
    return "\n".join([f"Certain, and something wrong: {len(found)} cases", *told])


def changes(before: Mapping[str, Mapping[str, str]], results: Sequence[Judged]) -> dict[str, list[str]]:
    """What has become better, worse, or is judged for the first time: 'NAME: culprits wrong [0] → right'."""
    found: dict[str, list[str]] = {"gained": [], "lost": [], "new": []}
    for each in results:
        then = before.get(each.name)
        if then is None:
            found["new"].append(f"{each.name}: the case")
            continue
        now = each.line()
        for clause in each.grades:
            old, new = (line.get(clause, "" if clause in ("condition", "header") else RIGHT) for line in (then, now))
            was, is_now = (text.partition(":")[0] for text in (old, new))
            if not was:
                found["new"].append(f"{each.name}: {clause} {new}")
            elif was != is_now:
                better = WORDS.index(is_now) > WORDS.index(was)
                found["gained" if better else "lost"].append(f"{each.name}: {clause} {old} → {new}")
    return found


def written(results: Sequence[Judged]) -> str:
    """The text of saved.json."""
    counted = {group: figures(some) for group, some in groups(results).items()}
    cases = laid_out({each.name: each.line() for each in results}, EXPECTED)
    rows = laid_out(counted, EXPECTED)
    return f'{{"figures": {rows.rstrip()},\n"cases": {cases.rstrip()}}}\n'


def _show(results: Sequence[Judged]) -> None:
    print(table({group: figures(some) for group, some in groups(results).items()}))
    print(f"\n{conditions(figures(results), sum('condition' not in each.grades for each in results))}")
    print(f"\n{certain_and_wrong(results)}")


def main() -> int:
    """Judge what was asked for; exit status 1 if anything has become worse."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME", help="these cases")
    parser.add_argument("--against", type=Path, default=BASELINE, metavar="FILE", help="an earlier saved.json")
    parser.add_argument("--write", action="store_true", help="renew saved.json")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    options = parser.parse_args()
    if options.write and options.only is not None:
        parser.error("--write is for all cases: without --only")
    chosen = [name for name in names() if options.only is None or name in options.only]
    with multiprocessing.Pool(options.jobs) as pool:
        results = list(pool.imap(of_case, chosen, chunksize=8))
    _show(results)
    before = json.loads(options.against.read_text(encoding="utf-8"))["cases"] if options.against.exists() else {}
    found = changes(before, results) if before else {}
    for what, lines in found.items():
        print("\n".join([f"\n{what} since {options.against.name}: {len(lines)}", *(f"  {line}" for line in lines)]))
    if options.write:
        BASELINE.write_text(written(results), encoding="utf-8")
    return 1 if found.get("lost") else 0


if __name__ == "__main__":
    sys.exit(main())
