"""One number for two process groups: each was made by its own members alone.

torch counts the calls of new_group on every rank, and names a group by that number (torch 2.13). Where only the members
of a group call new_group, two groups get one name, and with it one set of store keys, by which their members connect:
the members of one may read the addresses of the other, and its first call never completes, though all have issued it.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.divergences import decide
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.stacks import site_of
from hangdoc.model.kinds import ActivityKind, Confidence

SHARED = "new_group under one number"
"""What the groups are called that have one number and different members."""


def shared_number(case: Case) -> Blame[Diverged] | None:
    """The blame of the ranks that made a group whose number is another group's elsewhere, and whose first call has not
    completed though all its members are in it.

    Example: ranks 2 and 3 are in call #1 of group 5, of ranks 2 and 3, and on ranks 4 and 5 group 5 is that of ranks 4
    and 5 → ranks 2 and 3, with ranks 4 and 5 as the alternative.
    """
    for history in case.histories:
        name, members = history.key
        # A file may list 100,000 members of 10,000 groups: few of them get past the first two tests.
        if not name.isdigit() or history.blind or not _first_call_of_all(case, history):
            continue
        others = _other_members(case, name, frozenset(members))
        if others:
            blamed = _blamed(case, name, members, others[0])
            if blamed is not None:
                sure = f"{blamed.sure}; the groups of all ranks seen"
                return replace(blamed, confidence=Confidence.LIKELY, alternatives=tuple(others), sure=sure)
    return None


def _other_members(case: Case, name: str, members: frozenset[int]) -> list[tuple[int, ...]]:
    """The members of the living groups that have this number on a rank that is none of ``members``."""
    found = {
        group.members
        for rank, snapshot in case.ranks.items()
        if rank not in members and snapshot.journal is not None
        for group in snapshot.journal.groups
        if group.name == name and not group.destroyed and members.isdisjoint(group.members)
    }
    return sorted(each for each in found if each)


def _first_call_of_all(case: Case, history: GroupHistory) -> bool:
    """True if the group has made one call, and all members are still in it."""
    calls = [history.tokens.get(rank, ()) for rank in history.members]
    here = all(case.activities[rank].kind == ActivityKind.IN_COLLECTIVE for rank in history.members)
    alone = len(history.members) > 1 and all(len(each) == 1 and each[0].pending for each in calls)
    return here and alone and history.first == 1 and len({each[0].op for each in calls}) == 1


def _blamed(case: Case, name: str, members: tuple[int, ...], others: tuple[int, ...]) -> Blame[Diverged] | None:
    """The blame of the members, whose call of new_group is one that the ``others`` did not make."""
    world = tuple(sorted(case.ranks))
    history = GroupHistory((SHARED, world), world, "new_group")
    for rank in members:
        journal = case.ranks[rank].journal
        at = next((g.created_at for g in journal.groups if g.key == (name, members)), -1) if journal is not None else -1
        if journal is None or at < 0:
            return None
        stack = journal.stack(at)
        site = site_of(stack)
        made = Token(rank, history.key, int(name), "new_group", site, (members,), (), False, -1, 0, stack)
        history.tokens[rank] = [made]
    now = (token for each in case.histories for token in list(each.tokens.get(others[0], ()))[-1:] if token.pending)
    theirs = next(now, None)
    mine = history.tokens[members[0]][0]
    gap = Gap("delete", members, mine, mine, theirs)
    return decide(case, [Alignment(history, len(members), (gap,), ())], proved=True) if theirs is not None else None
