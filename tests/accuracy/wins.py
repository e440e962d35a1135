"""Which function or table row of the diagnosis decided what, and what leaving it out would lose.

    python tests/accuracy/wins.py --jobs 2 --json wins.json          # all: CPU time of about an hour
    python tests/accuracy/wins.py --only blame --sample 200          # functions below blame/, on 200 programs

Each mechanism (``mechanisms.py`` says what is one) is left out of each case in which it answered, and what is said then
is compared with a person's expectation:

- *lost*: a clause was right (outcome, culprits, cause, line, condition where a person has reviewed it; ``saved.py``
  judges) and is not without it; *culprits*: that clause;
- *changed*: what is said differs, and nothing that a person expects is lost; *gained*: something is right without it;
- *breaks*: the diagnosis raises. That says what others need of the function, and not what it decides.

Cases of one program count once. A lost program *counts* if the mechanism can't have been written for it: it came later
than the mechanism, or is of another set than the cases that came with it (``origins.py``, from git).
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import os
import random
import selectors
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from cases import case, expectation, names, row
from history import History
from left_out import BREAKS, Trial, Trials, apart
from mechanisms import Mechanism, all_mechanisms
from origins import ROOT, Origin, origins_of
from saved import RIGHT, judge

from hangdoc import api
from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.document import diagnosis_document
from hangdoc.model.snapshot import JobSnapshot

LOST, CHANGED, GAINED, BROKEN = "lost", "changed", "gained", BREAKS
_SEED = 1
"""Of ``--sample``, so that two runs draw the same programs."""


@dataclass
class Wins:
    """What one mechanism does. All but ``cases`` are sets of programs."""

    mechanism: Mechanism
    first: int | None = None
    own: frozenset[str] = frozenset()
    """The origins of the cases that came with it."""
    answered: set[str] = field(default_factory=set)
    lost: set[str] = field(default_factory=set)
    culprits: set[str] = field(default_factory=set)
    counting: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    gained: set[str] = field(default_factory=set)
    breaks: set[str] = field(default_factory=set)
    cases: dict[str, list[str]] = field(default_factory=dict)
    """Case → what leaving it out does: ['lost', 'culprits', 'lines']; those where it does nothing are left out."""


def say(name: str, expected: Mapping[str, Any], job: JobSnapshot, found: Diagnosis) -> dict[str, Any]:
    """What a diagnosis says, and which clauses of it are right (``saved.judge``)."""
    told: dict[str, Any] = {**diagnosis_document(found)}
    grades = judge(name, expected, told, job.sources).grades
    branch = (told["divergence"] or {"branch": None})["branch"]
    condition = branch and f"{branch['file']}:{branch['line']} {branch['condition']}"
    right = sorted(clause for clause, grade in grades.items() if grade.word == RIGHT)
    return {"right": right, "said": {**expectation(told), "condition": condition}}


def effect(whole: Mapping[str, Any], without: Mapping[str, Any] | str) -> list[str]:
    """What leaving a mechanism out does to a case: [] nothing, else what, and of which clauses."""
    if isinstance(without, str):
        return [BROKEN, without.removeprefix(f"{BREAKS}: ")]
    right, still = set(whole["right"]), set(without["right"])
    if right - still:
        return [LOST, *sorted(right - still)]
    if still - right:
        return [GAINED, *sorted(still - right)]
    before, after = whole["said"], without["said"]
    other = sorted(clause for clause in before if before[clause] != after[clause])
    return [CHANGED, *other] if other else []


def counts(mechanism: int | None, own: Collection[str], program: Origin) -> bool:
    """True if a mechanism of that place can't have been written for the program: that came later, or it is of another
    set than all cases that came with the mechanism. Where the history does not tell: False."""
    if mechanism is None or program.place is None:
        return False
    return program.place > mechanism or (bool(own) and program.origin not in own)


def first_place(mechanism: Mechanism, past: History) -> int | None:
    """The place of the commit that brought it; None where the history does not show it."""
    places = (past.of(mechanism.path, thing) for thing in mechanism.things)
    return min((place for place in places if place is not None), default=None)


def came_with(
    past: History, places: Iterable[int | None], found: Mapping[str, Origin]
) -> dict[int | None, frozenset[str]]:
    """Place → the origins of the cases that the commit brought."""
    with_them: dict[int | None, frozenset[str]] = {}
    for place in {place for place in places if place is not None}:
        names = {Path(file).stem for file in past.added[place] if file.endswith(".hangdoc")}
        with_them[place] = frozenset(found[name].origin for name in names if name in found)
    return with_them


def counted(
    mechanisms: Sequence[Mechanism],
    trials: Mapping[str, Trial],
    found: Mapping[str, Origin],
    past: History,
) -> list[Wins]:
    """What each mechanism does in the cases that were tried."""
    firsts = {each.key: first_place(each, past) for each in mechanisms}
    own = came_with(past, firsts.values(), found)
    wins = {m.key: Wins(m, firsts[m.key], own.get(firsts[m.key], frozenset())) for m in mechanisms}
    for name, trial in trials.items():
        origin = found[name]
        for key, without in trial.without.items():
            mine = wins[key]
            mine.answered.add(origin.program)
            does = effect(trial.whole, without)
            if not does:
                continue
            mine.cases[name] = does
            {LOST: mine.lost, CHANGED: mine.changed, GAINED: mine.gained, BROKEN: mine.breaks}[does[0]].add(
                origin.program
            )
            if does[0] == LOST:
                if "culprits" in does:
                    mine.culprits.add(origin.program)
                if counts(mine.first, mine.own, origin):
                    mine.counting.add(origin.program)
    return list(wins.values())


def totals(wins: Sequence[Wins]) -> dict[str, Any]:
    """The figures below the table."""
    lost = [len(each.lost) for each in wins]
    deciding = [each for each in wins if each.lost]
    never_later = sum(not each.counting for each in deciding)
    idle = [each for each in wins if not each.lost and not each.breaks]
    return {
        "mechanisms": len(wins),
        "never answered": sum(not each.answered for each in wins),
        "decide 0 programs": lost.count(0),
        "decide 1": lost.count(1),
        "decide 2 or 3": sum(count in (2, 3) for count in lost),
        "decide more than 3": sum(count > 3 for count in lost),
        "of those that decide, never one that counts": never_later,
        "share of these": round(never_later / len(deciding), 2) if deciding else None,
        "of 3 or more that count": sum(len(each.counting) >= 3 for each in wins),
        "could go one by one, nothing lost": len(idle),
        "of these without any change": sum(not each.changed and not each.gained for each in idle),
        "size": sum(each.mechanism.size for each in wins),
        "size of what could go": sum(each.mechanism.size for each in idle),
        "break something": sum(bool(each.breaks) for each in wins),
    }


def table(wins: Sequence[Wins], past: History, most: int | None = None) -> str:
    """The table, whoever decides most first."""
    head = (
        f"{'mechanism':64s} {'size':>5s} {'first':10s} {'answered':>8s} {'lost':>4s} {'culprits':>8s} {'counts':>6s} "
    )
    lines = [f"{head}{'changed':>7s} {'gained':>6s} {'breaks':>6s}"]
    order = sorted(wins, key=lambda w: (-len(w.lost), -len(w.counting), -len(w.answered), w.mechanism.key))
    for each in order[:most]:
        lines.append(
            f"{each.mechanism.key[:64]:64s} {each.mechanism.size:5d} {_day(each.first, past):10s} "
            f"{len(each.answered):8d} {len(each.lost):4d} {len(each.culprits):8d} {len(each.counting):6d} "
            f"{len(each.changed):7d} {len(each.gained):6d} {len(each.breaks):6d}"
        )
    return "\n".join(lines)


def _day(place: int | None, past: History) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(past.commits[place].time)) if place is not None else "-"


def tried(
    mechanisms: Sequence[Mechanism], cases: Sequence[str], jobs: int = 1, seconds: float = math.inf
) -> dict[str, Trial]:
    """Case → what it says, whole and without each mechanism; of the first ones, where the time is up. A case whose
    process ends otherwise is told on standard error. The mechanisms stay hooked in this process."""
    until = time.monotonic() + seconds
    trials, rows = Trials(mechanisms), {name: row(name) for name in cases}

    def one(name: str) -> list[Any]:
        job = api.load(case(name))
        trial = trials.try_case(job, functools.partial(say, name, rows[name], job))
        return [trial.whole, trial.without]

    found: dict[str, Trial] = {}
    waiting, running = list(reversed(cases)), 0
    with selectors.DefaultSelector() as pipes:
        while running or (waiting and time.monotonic() < until):
            # A process a case: what the diagnosis remembers of one would hide who answers in the next.
            while waiting and running < jobs and time.monotonic() < until:
                name = waiting.pop()
                pipe, child = apart(functools.partial(one, name))
                pipes.register(pipe, selectors.EVENT_READ, (name, child, bytearray()))
                running += 1
            for key, _ in pipes.select():
                name, child, answer = key.data
                if part := os.read(key.fd, 1 << 16):
                    answer.extend(part)
                    continue
                pipes.unregister(key.fd)
                os.close(key.fd)
                os.waitpid(child, 0)
                running -= 1
                if answer:
                    found[name] = Trial(*json.loads(answer))
                else:
                    print(f"{name} was not tried", file=sys.stderr, flush=True)
                if len(found) % 50 == 0:
                    print(f"{len(found)} of {len(cases)} cases", file=sys.stderr, flush=True)
    return found


def drawn(found: Mapping[str, Origin], count: int | None, seed: int = _SEED) -> list[str]:
    """The cases of that many programs drawn by chance, of all where no number is given; in the order drawn."""
    by_program = defaultdict(list)
    for name, origin in sorted(found.items()):
        by_program[origin.program].append(name)
    of = sorted(by_program)
    chosen = random.Random(seed).sample(of, len(of) if count is None else min(count, len(of)))
    return [name for program in chosen for name in by_program[program]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="MODULE", default="", help="mechanisms of a module or folder: 'blame'")
    parser.add_argument("--sample", type=int, metavar="N", help="N programs, drawn by chance; the same ones each time")
    parser.add_argument("--minutes", type=float, metavar="M", help="as many programs, drawn by chance, as that allows")
    parser.add_argument("--jobs", type=int, default=2, help="how many cases at a time")
    parser.add_argument("--top", type=int, help="only so many rows of the table")
    parser.add_argument("--json", type=Path, metavar="FILE", help="all of it, for machines")
    options = parser.parse_args()
    began = time.monotonic()
    told = origins_of(ROOT, {name: case(name) for name in names()})
    if told is None:
        print("nothing told: this is no checkout with its whole history", file=sys.stderr)
        return 1
    found, past = told
    mechanisms = [
        each for each in all_mechanisms(ROOT) if f"{each.module}.".startswith(f"{options.only}." * bool(options.only))
    ]
    cases = drawn(found, options.sample)
    trials = tried(mechanisms, cases, options.jobs, 60 * (options.minutes or math.inf))
    cases = sorted(trials)
    wins = counted(mechanisms, trials, found, past)
    programs = len({found[name].program for name in cases})
    all_programs = len({origin.program for origin in found.values()})
    print(table(wins, past, options.top))
    figures = totals(wins)
    sample = f", drawn by chance from {all_programs}" if programs < all_programs else ""
    used = sum(os.times()[:4])  # of its children as well
    print(
        f"\n{programs} programs in {len(cases)} cases{sample}; {time.monotonic() - began:.0f} s, {used:.0f} of CPU time"
    )
    print("\n".join(f"{name:45s} {figure}" for name, figure in figures.items()))
    if options.json:
        whole = {"commit": past.commits[-1].hash, "cases": len(cases), "programs": programs, "drawn from": all_programs}
        whole |= {"totals": figures, "mechanisms": [as_json(each, past) for each in wins]}
        options.json.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")
    return 0


def as_json(win: Wins, past: History) -> dict[str, Any]:
    """One mechanism for machines."""
    sets = ("answered", "lost", "culprits", "counting", "changed", "gained", "breaks")
    return {
        "mechanism": win.mechanism.key,
        "size": win.mechanism.size,
        "first": _day(win.first, past),
        "commit": past.commits[win.first].hash if win.first is not None else None,
        "came with": sorted(win.own),
        **{each: sorted(getattr(win, each)) for each in sets},
        "cases": win.cases,
    }


if __name__ == "__main__":
    sys.exit(main())
