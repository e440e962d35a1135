"""The values that each rank's frames hold."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.source.evaluate import names_in, truth_of
from hangdoc.diagnosis.source.guards import Guard, loops_around
from hangdoc.diagnosis.source.queries import assignments, binds
from hangdoc.diagnosis.source.sources import Sources, attributes_named
from hangdoc.model.snapshot import JobSnapshot

SideRanks = tuple[tuple[int, ...], tuple[int, ...]]
"""The ranks of side 0, which are the culprits, and of side 1, the others."""

_HIDDEN = re.compile(r"…|\.\.\.|<\w")
"""What a value shows in place of something that was shortened, masked or is no plain value."""


class Values:
    """Plain local values, attributes and globals, by rank, of the frames that are on the stacks now."""

    def __init__(self, job: JobSnapshot) -> None:
        self._now: dict[tuple[str, str, str], dict[int, str]] = {}
        self._at: dict[tuple[str, str], dict[int, int]] = {}
        self._left: dict[tuple[str, str], dict[int, list[str]]] = {}
        attributes = attributes_named(job.sources)
        lines: dict[int, dict[tuple[str, str], int]] = {}
        values: dict[int, list[tuple[tuple[str, str, str], str]]] = {}
        # By identity: thousands of ranks may share their stacks, which live as long as the job.
        for rank in job.ranks:
            last = rank.process.last if rank.process else None
            main = last.main.frames if last and last.main else ()
            if id(main) not in lines:
                lines[id(main)] = {(f.file, plain(f.function)): f.line for f in reversed(main)}
            for at, line in lines[id(main)].items():
                self._at.setdefault(at, {}).setdefault(rank.rank, line)
            for stack in (thread.frames for thread in last.threads if thread.frames) if last else ():
                if id(stack) not in values:
                    values[id(stack)] = [
                        ((f.file, plain(f.function), each.name), each.value)
                        for f in stack
                        for each in f.locals
                        if "." not in each.name or _attribute(each.name) in attributes.get(f.file, ())
                    ]
                self._add(rank.rank, values[id(stack)])
            named = rank.journal.attributes if rank.journal else ()
            self._add(
                rank.rank,
                [((a.file, plain(a.function), f"{a.owner}.{a.name}" if a.owner else a.name), a.value) for a in named],
            )

            for each in rank.journal.traces if rank.journal else ():
                self._left.setdefault((each.function, each.name), {}).setdefault(rank.rank, []).append(each.value)

    def _add(self, rank: int, seen: list[tuple[tuple[str, str, str], str]]) -> None:
        """Add one rank's values; of a function that is on its stacks several times, only those that agree."""
        values: dict[tuple[str, str, str], set[str]] = {}
        for key, value in seen:
            values.setdefault(key, set()).add(value)
        for key, found in values.items():
            if len(found) == 1:
                self._now.setdefault(key, {}).setdefault(rank, *found)

    def of(self, file: str, function: str, name: str) -> dict[int, str]:
        """Rank → value as seen now; empty where nothing can be seen."""
        return self._now.get((file, plain(function), name), {})

    def every(self) -> Iterator[tuple[str, str, str, dict[int, str]]]:
        """(file, function, name, rank → value as seen now) of all of them."""
        for (file, function, name), values in self._now.items():
            yield file, function, name, values

    def reached(self, file: str, function: str, name: str) -> dict[str, dict[int, str]]:
        """Attribute → rank → value of what a method or property reads: 'plan.due' → {'plan.every': {0: '5'}}."""
        own = f"{name}()."
        owner = name.rpartition(".")[0]
        return {
            f"{owner}.{each.removeprefix(own)}": per_rank
            for (at, within, each), per_rank in self._now.items()
            if (at, within) == (file, plain(function)) and each.startswith(own)
        }

    def like(self, counts: dict[int, str]) -> list[tuple[str, dict[int, str]]]:
        """(name, its value on all ranks that show it) of each number that agrees with ``counts`` on these ranks.

        Example: {0: '2', 1: '2'} and `self.count` = 2 on ranks 0 and 1, 4 on rank 2 → [('self.count', {0: '2', …})].
        """
        return [
            (name, per_rank)
            for (_, _, name), per_rank in self._now.items()
            if all(per_rank.get(rank) == count for rank, count in counts.items())
        ]

    def named(self, last: str) -> list[tuple[str, dict[int, str]]]:
        """(name, rank → value) of each local or attribute with that last name. Example: 'skipped' → 'self.skipped'."""
        ends = (last, f".{last}")
        return [
            (name, per_rank)
            for (_, _, name), per_rank in self._now.items()
            if name == ends[0] or name.endswith(ends[1])
        ]

    def numbers(self) -> Iterator[tuple[str, str, dict[int, str]]]:
        """(function, name, rank → value) of each plain name that is a count, or True or False, and (owner, name, …) of
        each attribute that is: ('self.outcome', 'len(failures)', {0: '1'})."""
        for (_, function, name), values in self._now.items():
            if not all(value.isdecimal() or value in ("True", "False") for value in values.values()):
                continue
            owner, _, last = name.rpartition(".")
            if name.isidentifier() or (owner and "()" not in owner):
                yield owner or function, last, values

    def left(self, ranks: Iterable[int]) -> dict[tuple[str, str], dict[int, list[str]]]:
        """(class, name) → rank → the values of that count, flag or size in the program's own objects, on these ranks:
        ('Mixture', 'len(groups)') → {0: ['3'], 1: ['2']}. Empty without a probe."""
        wanted = set(ranks)
        found = {key: {r: v for r, v in per_rank.items() if r in wanted} for key, per_rank in self._left.items()}
        return {key: per_rank for key, per_rank in found.items() if per_rank}

    def sizes(self, container: str, ranks: Iterable[int]) -> list[dict[int, list[str]]]:
        """Rank → how many items each attribute of that last name holds there now, for each class that has such one."""
        return [per_rank for (_, name), per_rank in self.left(ranks).items() if name == f"len({container})"]

    def truths(
        self, file: str, function: str, test: str | ast.expr | None, ranks: Iterable[int]
    ) -> dict[int, bool | None]:
        """Rank → whether the test is true with the values that its frame has now; None where that cannot be told."""
        text = ast.unparse(test) if isinstance(test, ast.expr) else test or ""
        seen = {name: self.of(file, function, name) for name in names_in(text)}
        return {rank: truth_of(text, {name: own[rank] for name, own in seen.items() if rank in own}) for rank in ranks}

    def lines(self, file: str, function: str) -> dict[int, int]:
        """Rank → the line of its main thread in the function, for the ranks that are in it."""
        return self._at.get((file, plain(function)), {})

    def tested(self, sources: Sources, file: str, function: str, guard: Guard, name: str) -> dict[int, str]:
        """Rank → its value now, for the ranks on which it is still the value that the guard tested.

        A rank before the condition within its loop has begun another round since, so names that the loop sets have
        changed. A rank before the condition outside of any loop has called the function again. Example: `if i % 2` at
        line 5 of a loop over i; rank 0 is at line 4, rank 1 at line 6 → only rank 1's value of i.
        """
        per_rank = self.of(file, function, name)
        tree = sources.function(file, guard.line)
        if tree is None:
            return per_rank
        loop = next(reversed(loops_around(tree, guard.line)), None)
        since = per_rank.keys() & self._set_since(tree, file, function, guard, name, loop)
        tested = {r: v for r, v in per_rank.items() if r not in since}
        if loop is None:
            return tested
        # Counts that differ by more than one round differed then, too.
        kept = {v for v in {per_rank[r] for r in since} if all(_far_apart(v, other) for other in tested.values())}
        return {r: v for r, v in per_rank.items() if r not in since or (tested and v in kept)}

    def _set_since(
        self, tree: ast.AST, file: str, function: str, guard: Guard, name: str, loop: Guard | None
    ) -> set[int]:
        """The ranks that have set the name again since they tested it: they are at an earlier line than the guard.

        ``loop``: the innermost loop around the guard, of which they are in another round; without one, they have called
        the function again.
        """
        if loop is None:
            first, changed = 1, binds(tree, guard.line, name)
        else:
            first, last = loop.span
            changed = name in loop.counters or any(first <= line <= last for line in assignments(tree, name))
        lines = self.lines(file, function) if changed else {}
        return {rank for rank, line in lines.items() if first <= line < guard.line}


def _attribute(name: str) -> str:
    """'failures' of 'self.outcome.len(failures)'."""
    return name.rpartition(".")[2].removeprefix("len(").removesuffix(")")


def _far_apart(a: str, b: str) -> bool:
    return a.lstrip("-").isdigit() and b.lstrip("-").isdigit() and abs(int(a) - int(b)) > 1


def is_hidden(value: str) -> bool:
    """True if the value was shortened or masked, or is not plain. Examples: 'abc…', '<Tensor>'."""
    return _HIDDEN.search(value) is not None


def sides_differ(per_rank: dict[int, str], ranks: SideRanks) -> bool | None:
    """Whether the sides have no value in common; None where a side's values were not seen, or are hidden.

    Example: {0: 'True', 1: 'False'} of ranks ((0,), (1,)) → True.
    """
    mine, theirs = ({per_rank[r] for r in side if r in per_rank} for side in ranks)
    if not mine or not theirs:
        return None
    if any(is_hidden(value) for value in mine & theirs):
        return None  # a masked string, a tensor: looks alike and need not be
    return mine.isdisjoint(theirs)


def equals_rank(per_rank: dict[int, str]) -> bool:
    """True if the value is the rank itself, on at least two ranks."""
    return len(per_rank) > 1 and all(value == str(rank) for rank, value in per_rank.items())
