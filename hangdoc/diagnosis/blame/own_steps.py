"""Did the ranks go as they had always gone, from call to call? The steps of their own histories say so."""

from __future__ import annotations

import itertools

from hangdoc.diagnosis.blame.precedent import followers
from hangdoc.diagnosis.bounds import FEWEST, TRIED
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, RankProgram, Token
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import Site, fork
from hangdoc.diagnosis.source.guards import guards

_Place = tuple[Site, str]
"""Where a call is made, and the description of its group."""
_Step = tuple[_Place, _Place]
"""From one call to the next."""


def left_own_path(case: Case, alignment: Alignment) -> bool:
    """True if the culprits took a step that is new to them, and the others one that they always take."""
    gap = alignment.first
    return gap is not None and strayed(case, gap) and not may_end_a_loop(case, gap)


def left_its_turn(case: Case, alignment: Alignment) -> bool:
    """True if the culprits had always made another call after those before theirs, and the others always this one.

    Example: calls were A A B in each round; now the culprits make B after one A, the others the second A.
    """
    gap = alignment.first
    if gap is None or gap.mine is None or gap.theirs is None or may_end_a_loop(case, gap):
        return False
    return _is_in_turn(case, gap.mine) is False and _is_in_turn(case, gap.theirs) is True


def _is_in_turn(case: Case, token: Token) -> bool | None:
    """Whether the rank had always gone on like that, by as few of the calls before as decide it; None where none do, or
    it had never come there before. Of a call that is repeated, it counts how often it was made in a row."""
    program = case.programs.get(token.rank)
    if program is None or not 0 < token.order < len(program.tokens):
        return None
    places = [_place(program, call) for call in program.tokens[: token.order + 1]]
    *calls, now = [(place, n) for place, again in itertools.groupby(places) for n, _ in enumerate(again)]
    for length in range(1, min(TRIED, len(calls)) + 1):
        follow = followers(calls, calls[-length:])
        if len(set(follow)) < 2:
            return now in follow if len(follow) >= FEWEST and now in calls else None
    return None


def strayed(case: Case, gap: Gap | None) -> bool:
    """True if this step is new to the culprits, and the others' step is not new to the others."""
    if gap is None:
        return False
    mine = gap.mine is None or _is_new_step(case.programs.get(gap.mine.rank), gap.mine)
    theirs = gap.theirs is None or _is_new_step(case.programs.get(gap.theirs.rank), gap.theirs)
    return mine and not theirs


def others_strayed(case: Case, alignment: Alignment) -> bool:
    """True if the others took a new step after a call that they had made before."""
    gap = alignment.first
    program = case.programs.get(gap.theirs.rank) if gap is not None and gap.theirs is not None else None
    if program is None or gap is None or gap.theirs is None or gap.theirs.order <= 0 or gap.theirs.op == END:
        return False
    before = program.tokens[gap.theirs.order - 1].site
    known = any(t.site == before for t in program.tokens[: gap.theirs.order - 1])
    return known and _is_new_step(program, gap.theirs)


def may_end_a_loop(case: Case, gap: Gap) -> bool:
    """True if the others begin another round of a loop while the culprits make a call that they never made before.

    Then no history says which side is wrong about the number of rounds. Example: others [A, B, A], culprits [A, B, C]
    → True: the others may have made a round too many, or the culprits one too few.
    """
    if gap.mine is None or gap.theirs is None or min(gap.mine.order, gap.theirs.order) < 0:
        return False
    if _comes_on_the_way(case, gap.mine, gap.theirs):
        return False
    ours, others = case.programs.get(gap.mine.rank), case.programs.get(gap.theirs.rank)
    if ours is None or others is None or any(t.site == gap.mine.site for t in ours.tokens[: gap.mine.order]):
        return False
    sites = [t.site for t in others.tokens[: gap.theirs.order]]
    return bool(sites) and gap.theirs.site in sites and sites.index(gap.theirs.site) <= sites.index(sites[-1])


def _comes_on_the_way(case: Case, mine: Token, theirs: Token) -> bool:
    """True if ``mine`` lies in the same round before the line of ``theirs``, to which the others have just come.

    Example: `def step(): ⏎ if due(): ⏎ measure() ⏎ loss = forward()`, mine is in measure(), theirs the first call of
    forward(), and the others' call before it was made elsewhere → True.
    """
    if is_past(case.sources, theirs.stack, mine.stack) != "certainly" or theirs.rank not in case.programs:
        return False
    where = fork(mine.stack, theirs.stack)
    way = where.theirs[where.common :]
    before = case.programs[theirs.rank].token(theirs.order - 1) if theirs.order > 0 else None
    if before is None or fork(before.stack, theirs.stack).common <= where.common:
        return True
    # Their call before came from the same line: from another round of a loop further in, or from another call of it.
    trees = [(frame, case.sources.function(frame.file, frame.line)) for frame in way]
    return all(tree is not None and all(g.kind != "loop" for g in guards(tree, f.line)) for f, tree in trees)


def _is_new_step(program: RankProgram | None, token: Token) -> bool:
    """True if a step on the way from the rank's previous call in the group to this one is new to the rank.

    Example: calls A B A B A C, the token is C → True; A B A B A B, the last B → False.
    """
    if program is None or token.order >= len(program.tokens):
        return True  # it ended: nobody ends twice
    if token.order <= 0:
        return True
    steps, known = _way_to(program, token)
    return not steps <= known


def _way_to(program: RankProgram, token: Token) -> tuple[set[_Step], set[_Step]]:
    """(the rank's steps from its previous call in the group to this one, all its steps before that)."""
    calls = program.tokens
    earlier = (i for i in range(token.order - 1, -1, -1) if calls[i].group == token.group)
    start = next(earlier, token.order - 1)
    places = [_place(program, call) for call in calls[: token.order + 1]]
    steps = list(itertools.pairwise(places))
    return set(steps[start:]), set(steps[:start])


def _place(program: RankProgram, token: Token) -> _Place:
    """The call's site and group: one line may call on several groups. Groups of one mesh share a description."""
    group = program.groups.get(token.group[0])
    return token.site, (group.description if group is not None else "") or token.group[0]
