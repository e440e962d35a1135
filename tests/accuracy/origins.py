"""Where each saved case comes from: which program it is of, when that first appeared, and in which set.

    python tests/accuracy/origins.py          # what the derivation says of each case
    python tests/accuracy/origins.py --fill   # the same, into the expectations

A case's program is told by its source: the file of the repository whose lines it shows, whatever its name was then.
Its origin follows from where that file lies, and of held-out sets from the commit that brought it:

- ``scenario``: a program of ``scenarios``.
- ``practice``: one written beside hangdoc, kept in the repository or not.
- ``held-out 7``: of that set of strangers' programs in ``tests/accuracy/libraries``; ``held-out 6/7`` where one commit
  brought both. Which sets a commit brought follows from how many hangs the guide says that each has.
- ``dumps``, ``logs``: folders of dumps and outputs of dead jobs, without a program.
- ``unknown``: nothing tells.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1]))

from cases import case, names, row, write_rows
from history import History, history

from hangdoc import api
from hangdoc.model.snapshot import JobSnapshot

ROOT = Path(__file__).parents[2]
_LIBRARIES = "tests/accuracy/libraries/"
_SCENARIOS = "scenarios/"
_FOLDERS = (_SCENARIOS, "tests/accuracy/", "tests/integration/programs/", "tests/e2e/programs/")
"""Where programs of jobs lie."""
UNKNOWN = "unknown"
_SAME, _ENOUGH = 0.8, 15
"""The share of the shorter one's lines that two texts of one program have in common, and how many these are where the
names differ. Chosen on the cases: the shares are above 0.95 or below 0.7."""
_COMMON = 30
"""A line that so many programs have says nothing of which one it is."""
_NUMBERED = re.compile(r"^[a-z]{0,2}\d*_")
"""What authors put before a program's name: 'm06_agent_metadata'."""
_ROW = re.compile(r"^\| watch \| [a-z-]+, (\d+) hangs \|", re.M)


@dataclass(frozen=True)
class Shown:
    """What a case or a file shows of its program."""

    lines: frozenset[str]
    names: frozenset[str]
    """Of its files, without suffix and number; of the script that was started, where no source was kept."""
    mode: str = ""


class Origin(NamedTuple):
    """Of a case. ``program``: a file of the repository, or the name of the first case of the program. ``place``: the
    first commit with the program or a case of it; None where the history shows none."""

    origin: str
    program: str
    place: int | None


def telling_lines(text: str) -> frozenset[str]:
    """The lines by which a program is known: without literals, which snapshots leave out, and long enough."""
    stripped = (line.strip() for line in text.split("\n"))
    return frozenset(s for s in stripped if len(s) > 12 and not s.startswith("#") and '"' not in s and "'" not in s)


def shown_in(job: JobSnapshot) -> Shown:
    """What a snapshot shows of its program."""
    roots = tuple(job.library_roots)
    own = [s for s in job.sources if "-packages/" not in s.file and "/lib/python3" not in s.file]
    own = [s for s in own if not (roots and s.file.startswith(roots))] or own
    scripts = [word for word in job.command if word.endswith(".py")][:1]
    lines = frozenset(line for source in own for line in telling_lines(source.text))
    return Shown(lines, frozenset(map(_plain, [s.file for s in own] or scripts)), job.mode)


def _plain(file: str) -> str:
    return _NUMBERED.sub("", Path(file).stem)


def programs(shown: Mapping[str, Shown]) -> dict[str, str]:
    """Case or file → the one that stands for its program: a file where there is one (its path has a '/'), else the
    first by name. Two are of one program if they have enough lines in common."""
    held: defaultdict[str, list[str]] = defaultdict(list)
    named: defaultdict[str, list[str]] = defaultdict(list)
    for name, each in shown.items():
        for line in each.lines:
            held[line].append(name)
    for name, each in shown.items():
        for called in each.names:
            named[called].append(name)
    common: Counter[tuple[str, str]] = Counter()
    lengths: Counter[str] = Counter()
    for some in (some for some in held.values() if len(some) <= _COMMON):
        lengths.update(some)
        common.update((a, b) for i, a in enumerate(some) for b in some[i + 1 :])
    one: dict[str, str] = {name: name for name in shown}

    def head(name: str) -> str:
        while one[name] != name:
            one[name] = one[one[name]]
            name = one[name]
        return name

    for (a, b), count in common.items():
        named_alike = bool(shown[a].names & shown[b].names)
        if count >= _SAME * min(lengths[a], lengths[b]) and (named_alike or count >= _ENOUGH):
            one[head(a)] = head(b)
    for some in named.values():
        told = min(some, key=lambda name: (not shown[name].lines, "/" not in name, name))
        for name in (each for each in some if not shown[each].lines):
            one[head(name)] = head(told)
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for name in shown:
        groups[head(name)].append(name)
    return {name: min(some, key=lambda n: ("/" not in n, n)) for some in groups.values() for name in some}


def sets_of_commits(in_guide: list[int], brought: Iterable[tuple[int, int]]) -> dict[int, tuple[int, ...]]:
    """Place → the numbers of the held-out sets that the commit brought.

    ``in_guide``: how many hangs each set has; ``brought``: (place, hangs that the commit added), in order. The sets
    stand in the guide in the order in which they came; headers were corrected since, so the sums need not be equal.
    Example: [20, 20, 21], [(3, 39), (8, 21)] → {3: (1, 2), 8: (3,)}.
    """
    found: dict[int, tuple[int, ...]] = {}
    sums = [sum(in_guide[:count]) for count in range(len(in_guide) + 1)]
    done, so_far = 0, 0
    for place, hangs in brought:
        so_far += hangs
        upto = min(range(done, len(sums)), key=lambda count: abs(sums[count] - so_far))
        found[place] = tuple(range(done + 1, upto + 1))
        done = upto
    return found


def held_out_sets(root: Path, past: History) -> dict[str, str]:
    """Program of ``tests/accuracy/libraries`` → 'held-out 7'."""
    brought: dict[int, list[str]] = {}
    for place, files in sorted(past.added.items()):
        there = [past.now.get(file, file) for file in files if file.startswith(_LIBRARIES)]
        if there:
            brought[place] = there
    guide = (root / "hangdoc/guide/accuracy.md").read_text(encoding="utf-8")
    hangs = [(place, sum(_hangs(root / file) for file in files)) for place, files in brought.items()]
    sets = sets_of_commits([int(number) for number in _ROW.findall(guide)], hangs)
    return {
        file: f"held-out {'/'.join(map(str, sets[place]))}" if sets[place] else UNKNOWN
        for place, files in brought.items()
        for file in files
    }


def _hangs(program: Path) -> bool:
    return program.exists() and 'outcome = "hang"' in program.read_text(encoding="utf-8")


def origins(
    cases: Mapping[str, tuple[Shown, str]], files: Mapping[str, Shown], sets: Mapping[str, str], past: History
) -> dict[str, Origin]:
    """Case → where it comes from. ``cases``: what each shows, and its path; ``files``: those of programs."""
    program = programs({**{name: shown for name, (shown, _) in cases.items()}, **files})
    first: dict[str, int] = {}
    for name, one in program.items():
        place = past.of(cases[name][1] if name in cases else name)
        if place is not None:
            first[one] = min(place, first.get(one, place))
    return {
        name: Origin(_origin(program[name], shown, sets), program[name], first.get(program[name]))
        for name, (shown, _) in cases.items()
    }


def _origin(program: str, shown: Shown, sets: Mapping[str, str]) -> str:
    if program.startswith(_SCENARIOS):
        return "scenario"
    if program.startswith(_LIBRARIES):
        return sets.get(program, UNKNOWN)
    if shown.mode in ("dump", "log"):
        return f"{shown.mode}s"
    return "practice" if shown.lines or shown.names else UNKNOWN


def origins_of(root: Path, cases: Mapping[str, Path]) -> tuple[dict[str, Origin], History] | None:
    """Case → its origin, and the history that tells it. ``cases``: name → snapshot. None without a whole history."""
    past = history(root)
    if past is None:
        return None
    shown = {name: (shown_in(api.load(path)), path.relative_to(root).as_posix()) for name, path in cases.items()}
    files = {}
    for path in sorted(path for folder in _FOLDERS for path in (root / folder).rglob("*.py")):
        there = path.relative_to(root).as_posix()
        if "/" in there.removeprefix("tests/accuracy/"):
            lines = telling_lines(path.read_text(encoding="utf-8"))
            files[there] = Shown(lines, frozenset([_plain(there)]))
    return origins(shown, files, held_out_sets(root, past), past), past


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fill", action="store_true", help="write them into the expectations")
    options = parser.parse_args()
    told = origins_of(ROOT, {name: case(name) for name in names()})
    if told is None:
        print("nothing told: this is no checkout with its whole history", file=sys.stderr)
        return 1
    found, past = told
    for name, each in found.items():
        when = past.commits[each.place].hash if each.place is not None else "-"
        print(f"{name:60s} {each.origin:16s} {when:10s} {each.program}")
    if options.fill:
        write_rows({name: {**row(name), "origin": each.origin} for name, each in found.items()})
    print(f"\n{len({each.program for each in found.values()})} programs")
    for origin, count in Counter(each.origin for each in found.values()).most_common():
        print(f"{origin:16s} {count}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
