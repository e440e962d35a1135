"""Calls that all ranks make, some of them in another order than the others.

Example: rank 1 has issued [broadcast, all_reduce], the others [all_reduce, broadcast].
"""

from __future__ import annotations

from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, Token


def left_over(alignment: Alignment, gap: Gap) -> list[Token]:
    """The others' calls that the culprits have not come to yet once the calls that are too many are taken out; none
    where the repair adds calls, as these are the others' own."""
    own = [each for each in alignment.gaps if each.token.op != END and not {*each.ranks}.isdisjoint(gap.ranks)]
    if any(each.kind != "delete" for each in own):
        return []
    reached = alignment.history.issued(gap.ranks[0]) - len(own)
    return [each for each in alignment.consensus if each.op != END and each.sequence > reached]


def is_moved(alignment: Alignment, gap: Gap) -> bool:
    """True if all make the call, in another order: it is taken out and put in close by, or the others' first call
    that would be left over is the one that would be taken out, and no other call of its kind is between.

    Example: rank 1 has issued [broadcast, all_reduce], the others [all_reduce, broadcast].
    """
    own = [each for each in alignment.gaps if not {*each.ranks}.isdisjoint(gap.ranks)]
    if [each.kind for each in own] in (["delete", "insert"], ["insert", "delete"]):
        one, other = (each.token for each in own)
        if (one.op, one.group) == (other.op, other.group) and abs(one.sequence - other.sequence) <= 2:
            return True
    after = [t.op for t in alignment.history.tokens.get(gap.ranks[0], ()) if t.sequence > gap.token.sequence]
    next_of_others = [each.op for each in left_over(alignment, gap)[:1]]
    return gap.kind == "delete" and bool(after) and next_of_others == [gap.token.op] and gap.token.op not in after
