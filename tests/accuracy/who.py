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
import re
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from cases import case, names, row

from hangdoc.diagnosis.blame.deciders import story
from hangdoc.diagnosis.hypotheses import judge
from hangdoc.diagnosis.hypotheses.proofs import PROOFS
from hangdoc.diagnosis.hypotheses.suspects import Evidence, Ranks
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.codec import load_snapshot
from hangdoc.model.kinds import Confidence

TABLE = Path(judge.__file__).with_name("weights.toml")
PARTS = 10
FEWEST = 8
"""Cases in which a kind of evidence has to occur to get a weight."""
STRENGTH = 1.0
"""Of the normal prior of each weight (1 / variance): kinds that few cases have keep weights near 0."""
LARGEST_GAP = 0.02
LEAST_RIGHT = {Confidence.CERTAIN: 0.99, Confidence.LIKELY: 0.85}
VARIANT = re.compile(r"^(attach(ed)?|watch(ed)?)_|_(attach(ed)?|watch(ed)?|stacks|with_histories|by_counters)$")


@dataclass(frozen=True)
class Example:
    """One case: its suspects, where some are proved these alone, and which of them it was; -1 where the culprits are
    none of them."""

    name: str
    suspects: tuple[tuple[Ranks, Evidence], ...]
    right: int

    @property
    def part(self) -> int:
        """Of ``PARTS``: all cases of a program have the same."""
        return zlib.crc32(VARIANT.sub("", self.name).encode()) % PARTS


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
        suspects = tuple((ranks, standing[ranks]) for ranks in sorted(standing))
        right = next((at for at, (ranks, _) in enumerate(suspects) if ranks == culprits), -1)
        examples.append(Example(name, suspects, right))
    return examples


def measured(examples: Sequence[Example], kinds: Sequence[str]) -> dict[str, float]:
    """Kind → weight: the most likely ones, given the prior. A conditional logit by L-BFGS."""
    places = {kind: at for at, kind in enumerate(kinds)}
    rows, owners, rights = [], [], []
    for number, each in enumerate(examples):
        if each.right >= 0:
            rights.append(len(rows) + each.right)
            rows += [[places[k] for k in kinds if k in places] for _, kinds in each.suspects]
            owners += [number] * len(each.suspects)
    matrix = torch.zeros(len(rows), len(places), dtype=torch.double)
    for at, columns in enumerate(rows):
        matrix[at, columns] = 1.0
    owner = torch.tensor(owners)
    weights = torch.zeros(len(places), dtype=torch.double, requires_grad=True)
    search = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        search.zero_grad()
        sums = matrix @ weights
        wholes = torch.zeros(len(examples), dtype=torch.double).index_add(0, owner, sums.exp())
        found = wholes[wholes > 0].log().sum() - sums[rights].sum() + STRENGTH * weights.square().sum() / 2
        found.backward()  # type: ignore[no-untyped-call]
        return found

    search.step(loss)  # type: ignore[no-untyped-call]
    return {kind: float(weights[at].detach()) for kind, at in places.items()}


@dataclass(frozen=True)
class Answer:
    """What the likeliest suspects of one case are worth."""

    right: bool
    share: float


def answer(example: Example, weights: Mapping[str, float]) -> Answer:
    """That of the judge with these weights."""
    shares = list(judge.shares(dict(example.suspects), weights).values())
    first = shares.index(max(shares))
    return Answer(first == example.right, shares[first])


def left_out(examples: Sequence[Example], kinds: Sequence[str]) -> dict[str, Answer]:
    """Case → the answer with weights that are measured on other programs."""
    found = {}
    for part in range(PARTS):
        weights = measured([each for each in examples if each.part != part], kinds)
        found.update({each.name: answer(each, weights) for each in examples if each.part == part})
    return found


def calibration(answers: Iterable[Answer]) -> dict[Confidence, tuple[int, int]]:
    """(how many are right, of how many) of each confidence."""
    found = dict.fromkeys(Confidence, (0, 0))
    for each in answers:
        level = judge.confidence_of(each.share)
        found[level] = found[level][0] + each.right, found[level][1] + 1
    return found


def written(weights: Mapping[str, float], occurring: Mapping[str, int]) -> str:
    """The table: a kind of evidence a line, the heaviest first."""
    head = "# Written by tests/accuracy/who.py --write. Of each kind of evidence: its weight, and in how many of the\n"
    head += "# saved cases it occurs.\n"
    order = sorted(weights, key=lambda kind: -abs(weights[kind]))
    return head + "".join(f'"{k}" = {{ weight = {weights[k]:.2f}, cases = {occurring[k]} }}\n' for k in order)


def main() -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--kinds", action="store_true", help="print what each kind weighs")
    parser.add_argument("--misses", action="store_true", help="print the cases that are not right, left out")
    options = parser.parse_args()
    torch.set_num_threads(1)
    known = examples()
    occurring = Counter(kind for each in known for kind in {k for _, kinds in each.suspects for k in kinds})
    kinds = sorted(kind for kind, count in occurring.items() if count >= FEWEST and kind not in PROOFS)
    weights = measured(known, kinds)
    inside = sum(answer(each, weights).right for each in known) / len(known)
    others = left_out(known, kinds)
    outside = sum(each.right for each in others.values()) / len(known)
    recall = sum(each.right >= 0 for each in known) / len(known)
    suspects = sorted(len(each.suspects) for each in known)[len(known) // 2]
    print(f"{len(known)} cases; among the suspects (median {suspects}): {recall:.1%}")
    strangers = [each.right for name, each in others.items() if row(name).get("origin", "").startswith("held-out")]
    print(
        f"likeliest, in-sample {inside:.1%}, other programs' weights {outside:.1%}, of these strangers' programs "
        f"{sum(strangers) / len(strangers):.1%}; {len(kinds)} kinds of evidence"
    )
    calibrated = calibration(others.values())
    print("; ".join(f"{level} {right} of {cases} right" for level, (right, cases) in calibrated.items()))
    if options.kinds:
        print(written(weights, occurring))
    if options.misses:
        print(*(name for name, each in others.items() if not each.right), sep="\n")
    if options.write:
        TABLE.write_text(written(weights, occurring), encoding="utf-8")
    falls_short = [right < LEAST_RIGHT.get(level, 0.0) * cases for level, (right, cases) in calibrated.items()]
    return int(inside - outside > LARGEST_GAP or any(falls_short))


if __name__ == "__main__":
    sys.exit(main())
