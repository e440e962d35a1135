"""Which process groups did each rank make, and in which order?

torch names groups by a counter that every new_group advances, on members and others alike (torch 2.13). A rank
that left one call out gives its next group a number that elsewhere belongs to another group.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangdoc.diagnosis.alignment import Alignment, Gap
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.sequences import GroupHistory, Token, site_of
from hangdoc.model.journal import Journal
from hangdoc.model.process import Stack

_LABEL = "new_group"


def missing_creations(case: Case) -> list[Alignment]:
    """The repairs after which all ranks number their groups alike; empty unless some rank waits for a group.

    One alignment for each explanation: 'these ranks left that call of new_group out'.
    """
    if not any(_waiting(program.journal) for program in case.programs.values()):
        return []
    history = _history(case)
    by_number: dict[int, list[Token]] = {}
    for tokens in history.tokens.values():
        for token in tokens:
            by_number.setdefault(token.sequence, []).append(token)
    for number in sorted(by_number):
        made: list[list[Token]] = []
        for token in by_number[number]:
            alike = next((tokens for tokens in made if _same_call(tokens[0], token)), None)
            if alike is None:
                made.append([token])
            else:
                alike.append(token)
        if len(made) == 2:
            here, there = made
            found = [_left_out(history, *sides) for sides in ((here, there), (there, here))]
            return [alignment for alignment in found if alignment is not None]
    return []


def _same_call(a: Token, b: Token) -> bool:
    """Who is to be in a group that is being made is not known yet: then the line has to tell."""
    return a.site == b.site if a.pending or b.pending else a.sizes == b.sizes


def _left_out(history: GroupHistory, without: list[Token], having: list[Token]) -> Alignment | None:
    """Did the ranks of ``without`` leave out what those of ``having`` made under this number? Then the others came
    to the group of ``without`` later on."""
    mine, theirs = without[0], having[0]
    later = (t for token in having for t in history.tokens[token.rank] if t.sequence > token.sequence)
    if not any(_same_call(mine, token) for token in later):
        return None
    ranks = tuple(sorted(token.rank for token in without))
    gap = Gap("insert", ranks, theirs, mine, theirs)
    return Alignment(history, len(ranks), (gap,), tuple(history.tokens[theirs.rank]))


def _history(case: Case) -> GroupHistory:
    """Every rank's groups as calls of new_group: the number is torch's own, ``sizes`` holds the members."""
    world = tuple(sorted(case.ranks))
    history = GroupHistory((_LABEL, world), world, _LABEL)
    history.blind = tuple(rank for rank in world if rank not in case.programs)
    for rank, program in case.programs.items():
        made = {number: (stack, members, False) for number, stack, members in _made(program.journal)}
        for number, stack, members in _waiting(program.journal):
            made.setdefault(number, (stack, members, True))
        history.tokens[rank] = [
            Token(rank, history.key, number, _LABEL, site_of(stack), (members,), (), pending, -1, 0, stack)
            for number, (stack, members, pending) in sorted(made.items())
        ]
    return history


def _made(journal: Journal) -> Iterator[tuple[int, Stack, tuple[int, ...]]]:
    for group in journal.groups:
        if group.name.isdigit() and group.members and group.created_at >= 0:
            yield int(group.name), journal.stack(group.created_at), group.members


def _waiting(journal: Journal) -> list[tuple[int, Stack, tuple[int, ...]]]:
    """The group that the rank is making now; nobody knows who is to be in it."""
    return [
        (int(wait.keys[0]), journal.stack(wait.stack), ())
        for wait in journal.store_waits
        if wait.operation == "group" and wait.keys and wait.keys[0].isdigit()
    ]
