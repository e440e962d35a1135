"""How often the cause that is named by the form alone is the expected one.

    python tests/accuracy/codes.py [--judge] [--code HD101 …] [--jobs 2]

With the culprits as they are expected (what the names are worth by themselves), or with --judge those that the judge
has for the likeliest. Prints for each code: of how many cases it is expected, in how many it is said there, what else
is said, and what each half of the programs has (halves by a hash of the program's name: what was learned from one half
only shows in the other). --code: also the names of those that are wrong.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import zlib
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from cases import case, names, row
from logit import VARIANT

from hangdoc.diagnosis.hypotheses.judge import hypotheses
from hangdoc.diagnosis.naming.codes import code_of
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.verdict import prepared
from hangdoc.model.codec import load_snapshot


class Named(NamedTuple):
    """One case. ``form``: the kind of the hypothesis's form."""

    name: str
    expected: str
    said: str
    form: str

    @property
    def half(self) -> int:
        """0 or 1: all cases of a program have the same."""
        return zlib.crc32(VARIANT.sub("", self.name).encode()) % 2


def named(name: str, judge: bool) -> Named | None:
    """The name of a saved case; None where none is expected, or where only logs show the job."""
    expected, job = row(name), load_snapshot(case(name))
    if not expected["cause"] or job.mode == "log" or job.others:
        return None
    found = prepared(job)
    culprits = tuple(expected["culprits"])
    if judge and culprits:
        culprits = hypotheses(found)[0].culprits
    facts = Facts(found, culprits)
    return Named(name, expected["cause"], code_of(facts), str(facts.form.kind))


def share(cases: Sequence[Named]) -> str:
    """'61/72 (85 %)'."""
    right = sum(each.said == each.expected for each in cases)
    return f"{right}/{len(cases)} ({100 * right / max(1, len(cases)):.1f} %)"


def main() -> int:
    """Name all cases, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--judge", action="store_true", help="with the judge's culprits")
    parser.add_argument("--code", nargs="*", default=[], help="print what is wrong where these are expected")
    parser.add_argument("--jobs", type=int, default=2, help="how many processes")
    options = parser.parse_args()
    with multiprocessing.Pool(options.jobs) as pool:
        found = [each for each in pool.imap(partial(named, judge=options.judge), names(), chunksize=8) if each]
    for code in sorted({each.expected for each in found}):
        some = [each for each in found if each.expected == code]
        others = Counter(each.said or "none" for each in some if each.said != code)
        print(f"{code}: {share(some)}", ", ".join(f"{said} {count}" for said, count in others.most_common()))
    print(f"all: {share(found)}; halves: {', '.join(share([e for e in found if e.half == half]) for half in (0, 1))}")
    for each in found:
        if each.said != each.expected and each.expected in options.code:
            print(f"  {each.name}: {each.expected}, said {each.said or 'none'} ({each.form})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
