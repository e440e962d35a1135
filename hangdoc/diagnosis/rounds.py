"""How often did each rank go round a loop? From the journal: which of its calls were issued inside."""

from __future__ import annotations

from hangdoc.diagnosis.branch import Parting
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.landmarks import plain
from hangdoc.diagnosis.reading import ends_alike, fixed_rounds, ways_out
from hangdoc.diagnosis.sequences import Token, distinct


def runs(tokens: list[Token], parting: Parting) -> list[int]:
    """Calls issued inside the loop, per execution of it: [3, 3, 3], the last one may still be going on.

    Two executions with no call between them count as one.
    """
    counts: list[int] = []
    inside = False
    for token in tokens:
        if _is_inside(token, parting):
            if not inside:
                counts.append(0)
            counts[-1] += 1
            inside = True
        else:
            inside = False
    return counts


def _is_inside(token: Token, parting: Parting) -> bool:
    first, last = parting.guard.span
    return any(
        f.file == parting.file and plain(f.function) == parting.function and first < f.line <= last for f in token.stack
    )


def left_early(
    case: Case, parting: Parting, ranks: tuple[tuple[int, ...], tuple[int, ...]], tokens: tuple[Token | None, ...]
) -> bool:
    """Did one side leave the loop before the other, in the same execution of it? ``tokens`` are where they parted.

    Not if its counter says that the others have begun the loop anew, nor if it went round exactly as often as
    every time before.
    """
    inside, left = ranks[parting.guarded], ranks[1 - parting.guarded]
    further: list[bool] = []
    for name in parting.guard.counters:
        per_rank = case.values.of(parting.file, parting.function, name)
        here = [int(v) for r in inside if (v := per_rank.get(r, "")).lstrip("-").isdigit()]
        there = [int(v) for r in left if (v := per_rank.get(r, "")).lstrip("-").isdigit()]
        if here and there:
            further.append(min(there) >= max(here))
    if further and all(further):  # other names may be set back in between
        return False
    for program, _ in distinct({rank: case.programs[rank] for rank in left if rank in case.programs}):
        counts = runs(_until(program.tokens, tokens[1 - parting.guarded]), parting)
        if len(counts) > 1 and counts[-1] == counts[-2]:
            return False
    return True


def goes_round_alike(case: Case, loop: Parting) -> bool:
    """Does the loop go round equally often on every rank, with no way out that its source shows?"""
    tree = case.sources.function(loop.file, loop.guard.line)
    return tree is not None and ends_alike(tree, loop.guard.line) and not ways_out(tree, loop.guard.line)


def fell_out(case: Case, loop: Parting, left: tuple[int, ...], token: Token | None) -> bool:
    """Did the ranks leave the loop in a way that its source does not show? It goes on equally long everywhere, nothing
    in it leaves it, and yet they have made fewer calls in it than the time before: only an exception does that."""
    tree = case.sources.function(loop.file, loop.guard.line)
    if tree is None or not goes_round_alike(case, loop):
        return False
    counts = [
        runs(_until(program.tokens, token), loop)
        for program, _ in distinct({rank: case.programs[rank] for rank in left if rank in case.programs})
    ]
    whole = all(
        case.programs[r].tokens[0].sequence == 1 for r in left if r in case.programs and case.programs[r].tokens
    )
    rounds = fixed_rounds(tree, loop.guard.line) if whole else 0
    # Executions with nothing in between look like one.
    cut = [each[-1] < each[-2] if len(each) > 1 else bool(rounds and sum(each) % rounds) for each in counts]
    return bool(cut) and all(cut)


def _until(tokens: list[Token], end: Token | None) -> list[Token]:
    """The calls up to the one with the number of ``end``: what came later is another story."""
    if end is None:
        return tokens
    last = next((i for i, t in enumerate(tokens) if t.group == end.group and t.sequence >= end.sequence), len(tokens))
    return tokens[: last + 1]
