"""Ranks that leave the program that most ranks run: of a mesh, every row has groups of its own with one description.

Example: ranks of two rows issue tp, tp, dp; rank 6 issues tp, dp → rank 6 left the others' program at its second call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hangdoc.diagnosis.calls.history import RankProgram, Token, distinct

_LEAST_SHARE = 0.6
"""Of the ranks that have to agree on a call; chosen by hand."""


def strays(programs: dict[int, RankProgram]) -> dict[int, Token]:
    """Rank → the first call at which it left the program of the others; {} where there is no such program: with
    messages, where old calls are forgotten, or where too few agree."""
    whole = {
        rank: p
        for rank, p in programs.items()
        if not p.journal.forgotten and not p.journal.point_to_points and p.journal.calls
    }
    if len(whole) < max(4, len(programs)):
        return {}
    keys = {ranks: [_key(program, token) for token in program.tokens] for program, ranks in distinct(whole)}
    tokens = {ranks: program.tokens for program, ranks in distinct(whole)}
    found: dict[int, Token] = {}
    together = set(keys)
    for place in range(max(map(len, keys.values()))):
        here: Counter[Hashable] = Counter()
        for ranks in together:
            if place < len(keys[ranks]):
                here[keys[ranks][place]] += len(ranks)
        if len(here) < 2:
            continue
        usual, count = here.most_common(1)[0]
        if count < _LEAST_SHARE * here.total():
            return {}
        for ranks in [r for r in together if place < len(keys[r]) and keys[r][place] != usual]:
            found.update(dict.fromkeys(ranks, tokens[ranks][place]))
            together.discard(ranks)
    return found


def _key(program: RankProgram, token: Token) -> Hashable:
    group = program.groups.get(token.group[0])
    label = group.description if group is not None and group.description else token.group[0]
    return label, token.op, token.sizes, token.dtypes if token.sizes is not None else (), token.site
