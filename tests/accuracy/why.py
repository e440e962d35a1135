"""How well the kinds of evidence tell why the sides parted, and what each of them weighs.

    python tests/accuracy/why.py [--write] [--kinds] [--jobs 2]

Measured on the saved cases whose condition a person has reviewed (tests/cases.py), and on those whose program's header
quotes it. The culprits are those of the expectation. Prints how often the right reason is among those that are
weighed, and how often it is the likeliest, with weights measured on all cases (in-sample) and on the cases of other
programs alone (see ``logit.py``); a part is a condition that belongs to the chain. --write: measure on all, and write
hangdoc/diagnosis/reason/weights.toml. ``reasons.py`` compares with a baseline, case by case.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath

sys.path.insert(0, str(Path(__file__).parents[1]))

import logit
import torch
from cases import case, names, row
from logit import Example
from saved import program_of, programs_with_conditions
from statements import places_of_statement

from hangdoc import api
from hangdoc.diagnosis.blame.deciders import story
from hangdoc.diagnosis.blame.post_mortem import crashed
from hangdoc.diagnosis.causes.nearest import gap_of, sides_of
from hangdoc.diagnosis.frames.library import with_library_frames
from hangdoc.diagnosis.reason import ranking
from hangdoc.diagnosis.reason.evidence import NOTHING
from hangdoc.diagnosis.reason.judged import line_of_item
from hangdoc.diagnosis.reason.reasons import alternatives
from hangdoc.diagnosis.reason.starts import parted_at
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.marks import shown
from hangdoc.scenarios import is_told

TABLE = Path(ranking.__file__).with_name("weights.toml")
FEWEST = 12
"""Cases in which a kind of evidence has to occur to get a weight."""
STRENGTH = 1.5
LEAST = 0.05
LARGEST_GAP = 0.08


@dataclass(frozen=True)
class Known:
    """An example; which alternatives belong to the chain, whether a person has reviewed it, and whether there is a
    condition to find."""

    example: Example
    parts: frozenset[int]
    is_reviewed: bool
    is_expected: bool


def known_of(name: str) -> Known | None:
    """What is known of one case; None where nobody has said its condition."""
    expected, job = row(name), api.load(case(name))
    program = None if expected.get("reviewed") else program_of(job.sources, programs_with_conditions())
    if not expected.get("reviewed") and program is None:
        return None
    found = prepared(with_library_frames(job))
    blamed = crashed(found)[0] if found.job.ended else story(found)
    sides = sides_of(found, blamed, tuple(expected["culprits"]))
    evidence = alternatives(found, sides, parted_at(gap_of(blamed), sides))
    sources = (*job.sources, *map(shown, job.modules))
    condition = expected.get("condition") or {"at": ()}
    right, parts = set[int](), set[int]()
    for place, reason in enumerate(evidence):
        item = reason.item
        if program is not None:
            told = any(is_told(each, line_of_item(found, item)) for each in program.branch)
            right |= {place} if told else set()
            continue
        wanted = {at.partition(":")[0] for at in (*condition["at"], *condition.get("also", ()))}
        places = places_of_statement(sources, item.file, item.line) if PurePosixPath(item.file).name in wanted else {}
        right |= {place} if {*places} & {*condition["at"]} else set()
        parts |= {place} if {*places} & {*condition.get("also", ())} else set()
    is_expected = program is not None or bool(condition["at"])
    right = right if is_expected else {len(evidence)}
    example = Example(name, (*evidence.values(), NOTHING), frozenset(right))
    return Known(example, frozenset(parts), program is None, is_expected)


def shares_of(cases: Iterable[Known], found: Mapping[str, tuple[int, float]]) -> str:
    """How many are right, part and silent."""
    some = [each for each in cases if each.is_expected]
    firsts = [(each, found[each.example.name][0]) for each in some]
    right = sum(place in each.example.right for each, place in firsts)
    part = sum(place not in each.example.right and place in each.parts for each, place in firsts)
    silent = sum(place == len(each.example.alternatives) - 1 for each, place in firsts)
    return f"{right} of {len(some)} ({right / len(some):.1%}), part {part}, nothing {silent}"


def main() -> int:
    """Measure, and print; exit status 1 where the weights do much better on what they were measured on."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kinds", action="store_true", help="print what each kind weighs")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with multiprocessing.Pool(options.jobs) as pool:
        cases = [each for each in pool.imap(known_of, names(), chunksize=8) if each is not None]
    examples = [each.example for each in cases]
    kinds = logit.kinds_in(examples, FEWEST)
    weights = logit.measured(examples, kinds, STRENGTH)
    inside = {each.name: each.likeliest(weights) for each in examples}
    outside = logit.left_out(examples, kinds, STRENGTH)
    rates = []
    for what, some in (
        ("reviewed", [each for each in cases if each.is_reviewed]),
        ("by the header", [each for each in cases if not each.is_reviewed]),
    ):
        reached = sum(bool(each.example.right) for each in some if each.is_expected)
        print(f"{what}: weighed {reached}; in-sample {shares_of(some, inside)}")
        print(f"    with other programs' weights {shares_of(some, outside)}")
    for least, most in pairwise((0.0, 0.3, 0.5, 0.7, 0.9, 1.01)):
        some = [each for each in cases if each.is_reviewed and least <= outside[each.example.name][1] < most]
        right = sum(outside[each.example.name][0] in each.example.right for each in some)
        part = sum(outside[each.example.name][0] in each.parts - each.example.right for each in some)
        print(f"    share from {least:.1f} on: {right} right and {part} parts of {len(some)}")
    none = [each for each in cases if not each.is_expected]
    silent = sum(outside[each.example.name][0] in each.example.right for each in none)
    print(f"nothing to say in {len(none)}: {silent} right; {len(kinds)} kinds of evidence")
    for found in (inside, outside):
        rates.append(sum(found[each.name][0] in each.right for each in examples) / len(examples))
    table = logit.written("tests/accuracy/why.py", weights, logit.occurring(examples), LEAST)
    if options.kinds:
        print(table)
    if options.write:
        TABLE.write_text(table, encoding="utf-8")
    return int(rates[0] - rates[1] > LARGEST_GAP)


if __name__ == "__main__":
    sys.exit(main())
