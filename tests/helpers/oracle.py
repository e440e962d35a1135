"""All single-edit repairs of a simulated hang, by trying each of them.

An edit deletes, inserts, replaces or moves one call of the programs of some ranks (all ranks of one behaviour, or
one rank). It is a repair if, with it, every call that was seen can complete: ranks that are still alive may yet
issue anything after their last call, ranks that ended may not (unless the edit lets them go on).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from simulator import Op, Run

Calls = dict[int, list[Op]]
Edit = tuple[str, int, int]
"""('delete', position, 0), ('insert', position, statement), ('replace', position, statement), ('move', from, to),
('without', position, statement): every call of the statement from there on, ('revive', 0, 0)."""


@dataclass(frozen=True)
class Observed:
    """What the journals show."""

    calls: Calls
    ended: frozenset[int]
    instances: dict[int, dict[int, Op]]
    """Every statement seen, and how each rank would issue it."""


def observe(run: Run) -> Observed:
    """The calls issued and the ranks that ended."""
    calls = {rank: [issued.op for issued in entries] for rank, entries in run.issued.items()}
    instances = {number: dict(ops) for number, ops in run.program.instances.items()}
    for ops in calls.values():
        for op in ops:
            if op.statement not in instances:
                instances[op.statement] = {rank: replace(op) for rank in op.group[1]}
    seen = {op.statement for ops in calls.values() for op in ops if op.peer < 0}
    ended = frozenset(rank for rank, state in run.state.items() if state == "done")
    return Observed(calls, ended, {n: instances[n] for n in seen})


def repairing_sets(run: Run) -> set[frozenset[int]]:
    """The smallest sets of ranks whose program one edit repairs; empty where no single edit does."""
    seen = observe(run)
    # What completed as it was meant to stays as it is: an edit there would have to be undone by another.
    reached = play(seen.calls, seen.ended, dict.fromkeys(seen.calls, 0))
    candidates = {frozenset({rank}) for rank in seen.calls} | _behaviours(seen)
    found: set[frozenset[int]] = set()
    for ranks in sorted(candidates, key=len):
        if found and len(ranks) > len(next(iter(found))):
            break
        if any(_repairs(seen, ranks, edit, reached) for edit in _edits(seen, ranks, reached)):
            found.add(ranks)
    return found


def _repairs(seen: Observed, ranks: frozenset[int], edit: Edit, reached: dict[int, int]) -> bool:
    calls, ended = _apply(seen, ranks, edit)
    return all(at == len(calls[rank]) for rank, at in play(calls, ended, reached).items())


def _behaviours(seen: Observed) -> set[frozenset[int]]:
    """Ranks that did the same, as far as each of them came."""
    classes: list[tuple[list[int], set[int]]] = []
    for rank in sorted(seen.calls, key=lambda r: -len(seen.calls[r])):
        path = [op.statement for op in seen.calls[rank]]
        for longest, ranks in classes:
            if longest[: len(path)] == path:
                ranks.add(rank)
                break
        else:
            classes.append((path, {rank}))
    return {frozenset(ranks) for _, ranks in classes}


def _edits(seen: Observed, ranks: frozenset[int], reached: dict[int, int]) -> Iterator[Edit]:
    if ranks & seen.ended:
        yield "revive", 0, 0
    length = max(len(seen.calls[rank]) for rank in ranks)
    usable = [n for n, ops in seen.instances.items() if any(rank in ops for rank in ranks)]
    lead = seen.calls[max(ranks, key=lambda r: len(seen.calls[r]))]
    start = min(reached[rank] for rank in ranks)
    for at in range(start, length + 1):
        if at < length:
            yield "delete", at, 0
            yield "without", at, lead[at].statement
            for to in range(start, length):
                if to != at:
                    yield "move", at, to
        for number in usable:
            yield "insert", at, number
            if at < length and number != lead[at].statement:
                yield "replace", at, number


def _apply(seen: Observed, ranks: frozenset[int], edit: Edit) -> tuple[Calls, frozenset[int]]:
    kind, at, other = edit
    calls = dict(seen.calls)
    for rank in ranks:
        ops = list(calls[rank])
        call = seen.instances.get(other, {}).get(rank)
        if kind == "delete":
            del ops[at : at + 1]
        elif kind == "without":
            ops[at:] = [op for op in ops[at:] if op.statement != other]
        elif kind == "insert" and call:
            ops.insert(at, call)
        elif kind == "replace" and call and at < len(ops):
            ops[at] = call
        elif kind == "move" and at < len(ops):
            ops.insert(other, ops.pop(at))
        calls[rank] = ops
    return calls, seen.ended - ranks if kind == "revive" else seen.ended


def play(calls: Calls, ended: frozenset[int], start: dict[int, int]) -> dict[int, int]:
    """How many calls of each rank complete, where collectives need the same statement of all members that have a
    call left."""
    at = dict(start)
    moved = True
    while moved:
        moved = False
        for rank, ops in calls.items():
            while at[rank] < len(ops):
                op = ops[at[rank]]
                members = (op.peer,) if op.peer >= 0 else op.group[1]
                if not all(m == rank or _meets(op, calls[m], at[m], m in ended) for m in members):
                    break
                for member in (rank, *members) if op.peer >= 0 else members:
                    at[member] = min(at[member] + 1, len(calls[member]))
                moved = True
    return at


def _meets(op: Op, ops: list[Op], at: int, ended: bool) -> bool:
    if at >= len(ops):
        return not ended
    other = ops[at]
    return other.statement == op.statement and (op.peer >= 0 or other.meets(op))
