"""Ranks wait for store keys of each other, and each has set its own: some use another store than the rest, or another
prefix.

Example: every rank sets member/<its rank> and then gets those of all; ranks 0, 1 and 3 wait for member/2, rank 2 waits
for member/0 → rank 2 sets its key, and looks for those of the others, where nobody else does.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from hangdoc.diagnosis.blame.unset_key import (
    awaited_keys,
    awaits_those_of_all,
    deletes_keys,
    is_by_rank,
    line_that_sets,
    number_of,
    own_setting,
    stem_of,
)
from hangdoc.diagnosis.condition.branch_point import is_rank_name
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names, pattern
from hangdoc.diagnosis.frames.stacks import lines_of, site_of, user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, guards, loops_around
from hangdoc.diagnosis.source.queries import calls_of, store_sets
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, has_blocks, holds, text_of, walk
from hangdoc.diagnosis.state.activity import waits_for_a_key
from hangdoc.model.kinds import Confidence
from hangdoc.model.process import Frame
from hangdoc.model.wording import ranks_text

_NOT_ALWAYS = (*CONDITIONS, "loop", "try", "match")
"""Kinds of guards by which a line may be passed without having run."""


_GOING_OVER = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


@dataclass(frozen=True, slots=True)
class KeyElsewhere(Explanation):
    """The culprits and the others each wait for keys that the other side has set."""

    waiting: tuple[int, ...]
    set_at: Frame
    """The line at which every rank sets its own key."""
    made_at: tuple[Frame, ...]
    """The lines that make a store, or put a prefix before its keys; those that the culprits alone have run, if any."""


def key_elsewhere(case: Case) -> Blame[KeyElsewhere] | None:
    """The blame of the ranks that use another store or prefix; None unless every rank that waits has set its own."""
    waiting = tuple(r for r, activity in sorted(case.activities.items()) if waits_for_a_key(activity))
    set_at = own_setting(case.sources) if len(waiting) > 1 and not case.hidden else None
    if set_at is None or deletes_keys(case.sources) or not is_by_rank(case.sources, set_at):
        return None
    places = {lines_of(site_of(case.activities[rank].stack)): rank for rank in waiting}
    if not all(_has_set(case, rank, set_at) for rank in places.values()):
        return None
    among = frozenset(waiting)
    if not all(_awaits_others(case, rank, among) for rank in waiting):
        return None
    stems = {stem_of(key) for rank in waiting for key in awaited_keys(case, rank)}
    missed = {(rank, of) for rank in waiting for of in _missed(case, rank, among, one_kind=len(stems) == 1)}
    if not missed and set(waiting) != set(case.ranks):
        return None  # the key of a rank that is still to come may be what they wait for
    makers = _makers(case)
    own = [(lines, ranks) for lines in makers.values() if (ranks := _ran_by_few(case, lines, waiting))]
    odd = tuple(rank for rank in waiting if missed and all(rank in pair for pair in missed))
    inside = _within_process(case, waiting)
    own += [(makers[name], inside) for name in names("store_of_process") if name in makers and inside]
    alone = {ranks for _, ranks in own}
    sides = {ranks for ranks in alone if _are_across(missed, frozenset(ranks))}
    if len(odd) != 1 and len(sides) != 1:
        return _any_of_two(waiting, set_at, odd)
    culprits = odd if len(odd) == 1 else next(iter(sides))
    theirs = [lines for lines, ranks in own if ranks == culprits]
    made_at = tuple(dict.fromkeys(at for lines in theirs or makers.values() for at in lines))
    others = tuple(rank for rank in waiting if rank not in culprits)
    sure = f"{ranks_text(culprits)} and {ranks_text(others)} wait for keys that the other side has set"
    found = KeyElsewhere(waiting, set_at, made_at)
    return Blame(found, culprits, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _are_across(missed: set[tuple[int, int]], side: frozenset[int]) -> bool:
    """True if of each (rank, the rank whose key it waits for) one is on that side, and one is not."""
    return all((rank in side) != (of in side) for rank, of in missed)


def _any_of_two(waiting: tuple[int, ...], set_at: Frame, odd: tuple[int, ...]) -> Blame[KeyElsewhere] | None:
    """Either of two ranks that wait for each other's key; None of more."""
    if len(odd) != 2 or odd != waiting:
        return None
    sure = "each of them waits for the key that the other one has set"
    return Blame(KeyElsewhere(waiting, set_at, ()), odd[1:], (odd[:1],), proved=True, sure=sure)


def told_apart(
    case: Case, culprits: tuple[int, ...], others: tuple[int, ...], made_at: Frame
) -> dict[str, dict[int, str]]:
    """Name → rank → value, of what the function that makes the store sets or reads, where the culprits have one value
    and the others another one: {'self.generation': {0: '0', 2: '1'}}."""
    tree = case.sources.function(made_at.file, made_at.line)
    if tree is None:
        return {}
    function = enclosing_function(tree, made_at.line)
    known = [text_of(n) for n in walk(function) if isinstance(n, ast.Name | ast.Attribute)]
    found: dict[str, dict[int, str]] = {}
    for name in dict.fromkeys(known):
        last = name.rpartition(".")[2]
        seen = [per_rank for _, per_rank in case.values.named(last)]
        seen += [
            {rank: values[0] for rank, values in per_rank.items() if len(set(values)) == 1}
            for (_, each), per_rank in case.values.left((*culprits, *others)).items()
            if each == last
        ]
        for per_rank in seen:
            mine, theirs = ({per_rank.get(rank) for rank in side} for side in (culprits, others))
            if (
                len(mine) == len(theirs) == 1
                and None not in mine | theirs
                and mine != theirs
                and not is_rank_name(last)
            ):
                found.setdefault(name, {rank: per_rank[rank] for rank in sorted((*culprits, *others))})
    return found


def _has_set(case: Case, rank: int, set_at: Frame) -> bool:
    """True if the rank cannot have come to where it waits without that line, in this round of all loops."""
    inner = case.sources.function(set_at.file, set_at.line)
    for frame in user_stack(case.activities[rank].stack):
        tree = case.sources.function(frame.file, frame.line)
        if tree is None:
            continue
        function = enclosing_function(tree, frame.line)
        met = {guard.place for guard in guards(tree, frame.line)}
        for node in walk(function):
            if not isinstance(node, ast.stmt) or has_blocks(node) or node.lineno >= frame.line:
                continue
            if holds(node, frame.line) or not _always(tree, node.lineno, met):
                continue
            line = line_that_sets(case.sources, frame.file, node, store_sets)
            if line is None or (line.file, line.line) != (set_at.file, set_at.line):
                continue
            if (line.file, line.line) == (frame.file, node.lineno) or (inner and _always(inner, set_at.line, set())):
                return True
    return False


def _always(tree: ast.AST, line: int, met: set[tuple[int, str]]) -> bool:
    """True if no condition, loop or handler decides whether the line runs, other than those ``met``."""
    return all(guard.kind not in _NOT_ALWAYS or guard.place in met for guard in guards(tree, line))


def _awaits_others(case: Case, rank: int, waiting: frozenset[int]) -> bool:
    """True if one of the keys that it waits for is another waiting rank's own."""
    keys = awaited_keys(case, rank)
    if keys:
        return any(number != rank and number in waiting for number in map(number_of, keys))
    return bool(_item(case, rank, waiting)) or awaits_those_of_all(case, rank)


def _missed(case: Case, rank: int, waiting: frozenset[int], *, one_kind: bool) -> set[int]:
    """The ranks whose key it waits for, as far as that is known: the key's number, where all keys are of ``one_kind``,
    or the item of the loop over ranks in which it waits. Of several keys that are waited for at once, none: any of them
    may be there."""
    keys = awaited_keys(case, rank)
    if len(keys) == 1 and one_kind:
        number = number_of(keys[0])
        return {number} if number is not None and number != rank and number in waiting else set()
    return set() if keys else _item(case, rank, waiting)


def _item(case: Case, rank: int, waiting: frozenset[int]) -> set[int]:
    frame = next(iter(user_stack(case.activities[rank].stack)), None)
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    if frame is None or tree is None:
        return set()
    function = enclosing_function(tree, frame.line)
    nodes = [n for n in walk(function) if isinstance(n, _GOING_OVER) and holds(n, frame.line)]
    loops = [each for n in nodes for each in ([n] if isinstance(n, ast.For) else n.generators)]
    if len(loops) != 1 or not isinstance(loops[0].target, ast.Name) or _in_other_loop(case, rank):
        return set()
    over = f"{text_of(loops[0].target)} in {text_of(loops[0].iter)}"
    value = case.values.of(frame.file, plain(frame.function), loops[0].target.id).get(rank, "")
    if pattern("all_ranks").search(over) is None or not value.isdecimal():
        return set()
    number = number_of(value)
    return {number} if number is not None and number != rank and number in waiting else set()


def _in_other_loop(case: Case, rank: int) -> bool:
    """True if a loop is around one of the calls that lead to the wait, so that ranks may be in different rounds."""
    where, *further = user_stack(case.activities[rank].stack)
    for frame in further:
        if (frame.file, frame.line) == (where.file, where.line):
            continue  # the comprehension around the wait, which has a frame of its own before Python 3.12
        tree = case.sources.function(frame.file, frame.line)
        if tree is None or loops_around(tree, frame.line):
            return True
    return False


def _makers(case: Case) -> dict[str, list[Frame]]:
    """Kind of store → the user's lines that make one: ranks of one store may make it at several lines."""
    found: dict[str, list[Frame]] = {}
    for file, tree in case.sources.user_trees():
        for name in names("makes_job_store"):
            for line in calls_of(tree, name):
                found.setdefault(name, []).append(Frame(file, line, function_name(tree, line)))
    return found


def _ran_by_few(case: Case, lines: list[Frame], ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that have run one of the lines, where they are fewer than those that have not; () where that is not
    known."""
    every = [case.table.split(ranks, at.file, at.line) for at in lines]
    mine = tuple(rank for rank in ranks if any(rank in each.ran for each in every))
    unknown = {rank for each in every for rank in each.unknown}
    return mine if unknown <= set(mine) and 2 * len(mine) < len(ranks) else ()


def _within_process(case: Case, ranks: tuple[int, ...]) -> tuple[int, ...]:
    """The ranks that wait in a lock of their own process, not at a connection or a file, where they are the fewer: a
    HashStore is nobody else's."""
    mine = []
    for rank in ranks:
        process = case.ranks[rank].process
        main = process.last.main if process is not None and process.last is not None else None
        mine += [rank] if main is not None and "futex" in (main.wchan or "") else []
    return tuple(mine) if 2 * len(mine) < len(ranks) else ()
