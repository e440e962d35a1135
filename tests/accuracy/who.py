"""How well the kinds of evidence tell who is to blame, and what each of them weighs.

    python tests/accuracy/who.py [--write] [--kinds] [--misses]

Prints for the saved cases that have culprits: how often these are among the suspects, and how often the likeliest
suspects are they, with weights measured on all cases (in-sample) and with weights measured on the cases of other
programs alone (of ten parts, each judged by the other nine; cases of one program are in one part), the latter also of
the cases whose programs strangers wrote: what helps none of these knows our way of writing. A gap of more than two
points means that the weights know these cases, and not hangs. --write: measure on all, and write
hangdoc/diagnosis/hypotheses/weights.toml. Exit status 1 where the gap is larger, or where of the cases that are called
certain, or likely, with other programs' weights too few are right.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import logit
import torch
from cases import case, names, row
from logit import Example

from hangdoc.diagnosis.blame.deciders import story
from hangdoc.diagnosis.hypotheses import judge
from hangdoc.diagnosis.hypotheses.proofs import PROOFS
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.codec import load_snapshot
from hangdoc.model.kinds import Confidence

TABLE = Path(judge.__file__).with_name("weights.toml")
FEWEST = 5
"""Cases in which a kind of evidence has to occur to get a weight."""
STRENGTH = 1.0
"""Of the normal prior of each weight (1 / variance): kinds that few cases have keep weights near 0."""
LARGEST_GAP = 0.02
LEAST_RIGHT = {Confidence.CERTAIN: 0.99, Confidence.LIKELY: 0.85}


def examples() -> list[Example]:
    """The saved cases with culprits, but those of logs, which have no processes or calls to compare."""
    examples = []
    for name in names():
        culprits = tuple(row(name)["culprits"])
        job = load_snapshot(case(name))
        if not culprits or job.mode == "log" or job.others:
            continue
        found = prepared(job)
        told = story(found) if not found.job.ended and found.activities else None
        standing = judge.standing(judge.suspected(found, told))
        suspects = sorted(standing)
        right = frozenset(at for at, ranks in enumerate(suspects) if ranks == culprits)
        examples.append(Example(name, tuple(standing[ranks] for ranks in suspects), right))
    return examples


@dataclass(frozen=True)
class Answer:
    """What the likeliest suspects of one case are worth."""

    right: bool
    share: float


def answer(example: Example, likeliest: tuple[int, float]) -> Answer:
    """That of the judge."""
    place, share = likeliest
    return Answer(place in example.right, share)


def calibration(answers: Iterable[Answer]) -> dict[Confidence, tuple[int, int]]:
    """(how many are right, of how many) of each confidence."""
    found = dict.fromkeys(Confidence, (0, 0))
    for each in answers:
        level = judge.confidence_of(each.share)
        found[level] = found[level][0] + each.right, found[level][1] + 1
    return found


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kinds", action="store_true", help="print what each kind weighs")
    parser.add_argument("--misses", action="store_true", help="print the cases that are not right, left out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = examples()
    kinds = [kind for kind in logit.kinds_in(known, FEWEST) if kind not in PROOFS]
    weights = logit.measured(known, kinds, STRENGTH)
    inside = sum(answer(each, each.likeliest(weights)).right for each in known) / len(known)
    likeliest = logit.left_out(known, kinds, STRENGTH)
    others = {each.name: answer(each, likeliest[each.name]) for each in known}
    outside = sum(each.right for each in others.values()) / len(known)
    recall = sum(bool(each.right) for each in known) / len(known)
    suspects = sorted(len(each.alternatives) for each in known)[len(known) // 2]
    print(f"{len(known)} cases; among the suspects (median {suspects}): {recall:.1%}")
    strangers = [each.right for name, each in others.items() if row(name).get("origin", "").startswith("held-out")]
    print(
        f"likeliest, in-sample {inside:.1%}, other programs' weights {outside:.1%}, of these strangers' programs "
        f"{sum(strangers) / len(strangers):.1%}; {len(kinds)} kinds of evidence"
    )
    calibrated = calibration(others.values())
    print("; ".join(f"{level} {right} of {cases} right" for level, (right, cases) in calibrated.items()))
    table = logit.written("tests/accuracy/who.py", weights, logit.occurring(known))
    if options.kinds:
        print(table)
    if options.misses:
        print(*(name for name, each in others.items() if not each.right), sep="\n")
    if options.write:
        TABLE.write_text(table, encoding="utf-8")
    falls_short = [right < LEAST_RIGHT.get(level, 0.0) * cases for level, (right, cases) in calibrated.items()]
    return int(inside - outside > LARGEST_GAP or any(falls_short))


if __name__ == "__main__":
    sys.exit(main())
