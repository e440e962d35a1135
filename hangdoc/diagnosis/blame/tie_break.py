"""Which of several equally small repairs to report. Facts alone break a tie; else it is reported as unbroken.

They are tried in this order: code that interrupts a program, an exception that is pending, a condition on the rank, a
lock that the call is made under, the ranks beside them in a larger group, a recorded decision that is new to a rank,
the ranks' own histories, a condition that asks for the rank in a function, other groups, exits, the order of the ranks'
own earlier calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass
from operator import attrgetter

from hangdoc.diagnosis.blame.interrupting import was_interrupted
from hangdoc.diagnosis.blame.larger_groups import alone_of_all, in_company, led_alone, left_company
from hangdoc.diagnosis.blame.precedent import LEAST_SEEN, LONGEST, followers
from hangdoc.diagnosis.blame.wait_cycle import lock_holders
from hangdoc.diagnosis.calls.alignment import Alignment, Gap
from hangdoc.diagnosis.calls.history import END, RankProgram, Token, distinct
from hangdoc.diagnosis.calls.own_order import own_breaks, own_orders
from hangdoc.diagnosis.condition.branch_point import BranchPoint, is_left_by_exception
from hangdoc.diagnosis.condition.by_value import decided_anew
from hangdoc.diagnosis.condition.candidates import wrapped_for_one_rank
from hangdoc.diagnosis.condition.choice import branch_points_of
from hangdoc.diagnosis.condition.divergence_point import (
    before_its_end,
    nearest_of_the_others,
    own_counterpart,
    partner_aside,
    settle,
)
from hangdoc.diagnosis.condition.elsewhere.caught import in_exit
from hangdoc.diagnosis.condition.loops.round_or_loop import others_in
from hangdoc.diagnosis.condition.stack_comparison import is_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import Site, fork
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.rank_tests import asks_for_rank
from hangdoc.model.wording import ranks_text


@dataclass(frozen=True, slots=True)
class _Option:
    """One of several equally small repairs, settled on the line where its ranks diverged."""

    alignment: Alignment
    guards: list[BranchPoint]
    moved: bool
    """Settling found another call at which the ranks diverged than the smallest repair names."""


def choose(case: Case, candidates: list[Alignment]) -> tuple[Alignment, str, list[BranchPoint]]:
    """(the alignment to report, how a tie was broken, the guards that can explain it).

    The second is '' where there was no tie, 'unbroken' where nothing breaks it, else a reason in words. Example: either
    rank 0 made an extra call or rank 1 is missing it, and rank 0 made it under `if rank == 0:` → (the repair that
    deletes it, 'only the call of rank 0 is under a condition on the rank', [that condition]).
    """
    options = [_option(case, candidate) for candidate in candidates]
    if len(options) == 1:
        return options[0].alignment, "", options[0].guards
    # The surest comes first; each answers only if it fits exactly one of the repairs.
    tried = (
        _by_interruption,
        _by_pending_exception,
        _by_condition_on_rank,
        _by_lock,
        _by_company,
        _by_new_decision,
        _by_own_history,
        _by_what_asks_for_rank,
        _by_other_groups,
        _by_what_ran,
        _by_its_end,
        _by_own_order,
    )
    for breaks in tried:
        found = breaks(case, options)
        if found is not None:
            option, reason = found
            return option.alignment, reason, option.guards
    if not case.programs and all(not option.guards and _is_one_line(option.alignment.first) for option in options):
        options.sort(key=lambda o: 0 not in o.alignment.culprits)  # who is special in a program is mostly rank 0
    first = max(options, key=lambda o: (_weak_preference(o.alignment, o.guards), _strayed(case, o.alignment.first)))
    return first.alignment, "unbroken", first.guards


def _is_one_line(gap: Gap | None) -> bool:
    """True if both sides are below one line of the user's, at which nothing shows what sets them apart."""
    return gap is not None and gap.mine is not None and gap.theirs is not None and gap.mine.site == gap.theirs.site


def _option(case: Case, candidate: Alignment) -> _Option:
    settled = settle(case, nearest_of_the_others(candidate))
    alignment = before_its_end(partner_aside(own_counterpart(settled)))
    return _Option(alignment, branch_points_of(case, alignment), alignment.when != candidate.when)


def _by_interruption(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose call comes from code that interrupts a program, the reason in words)."""
    fit = [o for o in options if was_interrupted(case, o.alignment.first)]
    return (
        (fit[0], f"{_culprits_text(fit[0])} made the call from code that interrupts a program")
        if len(fit) == 1
        else None
    )


def _by_pending_exception(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits are in the exit of a context that an exception left, the reason in words)."""
    fit = [o for o in options if has_pending(case, o.alignment)]
    return (fit[0], f"an exception led {_culprits_text(fit[0])} there") if len(fit) == 1 else None


def has_pending(case: Case, alignment: Alignment) -> bool:
    """True if the culprits' call is made by the exit of a context that an exception left."""
    gap = alignment.first
    if gap is None or gap.past or gap.mine is None or gap.theirs is None:
        return False
    sides = (gap.mine.stack, gap.theirs.stack)
    return all(in_exit(case, rank, sides) is not None for rank in alignment.culprits)


def _by_condition_on_rank(_case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the option whose culprits are the ranks under a condition on the rank, the reason in words)."""
    for option in options:
        guarded = _guarded_ranks(option.alignment, option.guards)
        match = next((o for o in options if o.alignment.culprits == guarded), None)
        if match is not None:
            return match, f"only the call of {ranks_text(guarded)} is under a condition on the rank"
    return None


def _by_lock(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits hold a lock between processes that others wait for, the reason in words): they
    let nobody else come to the call."""
    holders = lock_holders(case)
    fit = [o for o in options if o.alignment.culprits and holders.issuperset(o.alignment.culprits)]
    return (
        (fit[0], f"{_culprits_text(fit[0])} made the call under a lock that others wait for") if len(fit) == 1 else None
    )


def _by_company(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits are alone in their call, the reason in words): each other option's call is one
    that most ranks of a larger group made as well. Or they alone left out what most of these made before theirs."""
    left = [(o, ranks) for o in options if (ranks := left_company(case, o.alignment.first))]
    if len(left) == 1:
        option, ranks = left[0]
        return option, f"{ranks_text(ranks)} made such a call first"
    company = [in_company(case, o.alignment.first) for o in options]
    alone = [o for o, ranks in zip(options, company, strict=True) if not ranks]
    if len(alone) != 1:
        return None
    others = next(ranks for ranks in company if ranks)
    return alone[0], f"{ranks_text(others)} went the other way as well"


def _by_new_decision(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits are recorded to have decided as never before, the reason in words)."""
    fit = [(o, anew) for o in options if (anew := decided_by_culprits(case, o.alignment, o.guards))]
    return fit[0] if len(fit) == 1 else None


def decided_by_culprits(case: Case, alignment: Alignment, points: list[BranchPoint]) -> str:
    """'`if bad:` is recorded to have come out on rank 1 as never before', of the condition that parted the sides; ''
    where there is none, or the others are recorded to have done something new, or may have made a round too many."""
    gap = alignment.first
    if not case.execution or gap is None or gap.past or _may_end_a_loop(case, gap):
        return ""
    others = others_in(alignment)
    if gap.theirs is not None and any(case.execution.anew(rank, gap.theirs.stack, came=True) for rank in others):
        return ""
    anew = decided_anew(case, (alignment.culprits, others), gap, points)
    return f"`{anew}` is recorded to have come out on {ranks_text(alignment.culprits)} as never before" if anew else ""


def _by_own_history(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits took a step that is new to them, the reason in words)."""
    fit = [o for o in options if o.moved] or [o for o in options if _left_own_path(case, o.alignment)]
    fit = fit or [o for o in options if _left_its_turn(case, o.alignment)]
    return (fit[0], f"{_culprits_text(fit[0])} left a path it had taken before") if len(fit) == 1 else None


def _by_what_asks_for_rank(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the option whose culprits a function that asks for the rank sent another way, the reason in words).

    Example: `if self.due(step):`, where `due` returns `self.rank == 0 and …` → the ranks for which it was true.
    """
    for option in options:
        top = option.guards[0] if option.guards else None
        if top is None or top.uneven or not asks_for_rank(case.sources, top.file, top.guard.line):
            continue
        sides = (option.alignment.culprits, others_in(option.alignment))
        chosen = sides[top.guarded if top.guard.taken else 1 - top.guarded]
        match = next((o for o in options if o.alignment.culprits == chosen), None)
        if match is not None:
            return match, f"`{top.guard.condition}` was true on {ranks_text(chosen)} alone, and asks for the rank"
    return None


def _by_other_groups(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits did what no rank of another group does, the reason in words)."""
    fit = [o for o in options if _only_one_to_go(case, o.alignment)]
    if len(fit) != 1:
        return None
    return fit[0], f"ranks of other groups took the path of {ranks_text(others_in(fit[0].alignment))}"


def _by_what_ran(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits alone have been in their arm of its condition, of the ranks of all groups)."""
    fit = [o for o in options if alone_of_all(case, o.alignment.culprits, o.alignment.history.members, o.guards)]
    if len(fit) != 1:
        return None
    return fit[0], led_alone(fit[0].guards[0], fit[0].alignment.culprits)


def _by_its_end(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits have ended while others go on, the reason in words)."""
    # Where others have ended as well, ending is what the program does there.
    fit = [o for o in options if _ended_there(case, o.alignment) and not _others_strayed(case, o.alignment)]
    return (fit[0], f"{_culprits_text(fit[0])} ended while others still communicate") if len(fit) == 1 else None


def _by_own_order(case: Case, options: list[_Option]) -> tuple[_Option, str] | None:
    """(the only option whose culprits leave the order of their own earlier calls now, by a call that they have made
    before, the reason in words); None where some have ended, as an end that was seen says more."""
    if any(case.ended.intersection(option.alignment.culprits) for option in options):
        return None
    members = {rank for option in options for rank in option.alignment.history.members}
    left = own_breaks(own_orders({rank: case.programs[rank] for rank in sorted(members & case.programs.keys())}))
    now = {rank for rank, breaks in left.items() if breaks[-1].is_newest and breaks[-1].is_known}
    fit = [o for o in options if now.issuperset(o.alignment.culprits)]
    return (fit[0], f"{_culprits_text(fit[0])} left the order of its own earlier calls") if len(fit) == 1 else None


def _culprits_text(option: _Option) -> str:
    return ranks_text(option.alignment.culprits)


def _ended_there(case: Case, alignment: Alignment) -> bool:
    """True if the culprits are just those members of the group that have ended, and not all members."""
    return set(alignment.culprits) == case.ended & set(alignment.history.members) != set()


def _weak_preference(alignment: Alignment, found: list[BranchPoint]) -> float:
    """How well the culprits fit the likeliest guard, to order repairs that nothing else decides.

    The number is the guard's score, positive if the culprits are the special side: the side under the condition; after
    an early return, a loop that ended or a try body that was left, the other side. Example: the culprits' call is under
    `if step % 100 == 0:` with score 2.0 → 2.0; the others' call is → -2.0.
    """
    if alignment.first is None or not found:
        return 0.0
    top = found[0]
    leaves = top.guard.kind in ("return", "loop") or is_left_by_exception(top)
    special = 1 - top.guarded if leaves else top.guarded
    return top.score if special == 0 else -top.score


def _guarded_ranks(alignment: Alignment, found: list[BranchPoint]) -> tuple[int, ...]:
    """The ranks of the side whose call is under a condition on the rank; () where neither or both are."""
    gap = alignment.first
    if gap is None:
        return ()
    sides = (alignment.culprits, others_in(alignment))
    top = found[0] if found else None
    if top is not None and top.rank_like:
        special = top.guarded if top.guard.taken or not top.both_arms else 1 - top.guarded  # not those in its `else`
        return sides[special]
    wrapped = [wrapped_for_one_rank(t.stack) if t else False for t in (gap.mine, gap.theirs)]
    if wrapped[0] != wrapped[1]:
        return sides[0 if wrapped[0] else 1]
    return ()


def _left_own_path(case: Case, alignment: Alignment) -> bool:
    """True if the culprits took a step that is new to them, and the others one that they always take."""
    gap = alignment.first
    return gap is not None and _strayed(case, gap) and not _may_end_a_loop(case, gap)


def _left_its_turn(case: Case, alignment: Alignment) -> bool:
    """True if the culprits had always made another call after those before theirs, and the others always this one.

    Example: calls were A A B in each round; now the culprits make B after one A, the others the second A.
    """
    gap = alignment.first
    if gap is None or gap.mine is None or gap.theirs is None or _may_end_a_loop(case, gap):
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
    for length in range(1, min(LONGEST, len(calls)) + 1):
        follow = followers(calls, calls[-length:])
        if len(set(follow)) < 2:
            return now in follow if len(follow) >= LEAST_SEEN and now in calls else None
    return None


def _strayed(case: Case, gap: Gap | None) -> bool:
    """True if this step is new to the culprits, and the others' step is not new to the others."""
    if gap is None:
        return False
    mine = gap.mine is None or _is_new_step(case.programs.get(gap.mine.rank), gap.mine)
    theirs = gap.theirs is None or _is_new_step(case.programs.get(gap.theirs.rank), gap.theirs)
    return mine and not theirs


def _others_strayed(case: Case, alignment: Alignment) -> bool:
    """True if the others took a new step after a call that they had made before."""
    gap = alignment.first
    program = case.programs.get(gap.theirs.rank) if gap is not None and gap.theirs is not None else None
    if program is None or gap is None or gap.theirs is None or gap.theirs.order <= 0 or gap.theirs.op == END:
        return False
    before = program.tokens[gap.theirs.order - 1].site
    known = any(t.site == before for t in program.tokens[: gap.theirs.order - 1])
    return known and _is_new_step(program, gap.theirs)


def _may_end_a_loop(case: Case, gap: Gap) -> bool:
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


_Place = tuple[Site, str]
"""Where a call is made, and the description of its group."""
_Step = tuple[_Place, _Place]
"""From one call to the next."""


def _only_one_to_go(case: Case, alignment: Alignment) -> bool:
    """True if no rank outside the group ever took the culprits' steps to their call, and some took the others'.

    Example: in each of four groups of two, one rank goes from A to B; in one group the other rank goes from A to C →
    True for the repair of that rank.
    """
    gap, members = alignment.first, set(alignment.history.members)
    outside = {rank: program for rank, program in case.programs.items() if rank not in members}
    if gap is None or gap.mine is None or gap.theirs is None or not outside:
        return False
    taken = {
        (_place(program, before), _place(program, after))
        for program in _unlike(outside)
        for before, after in zip(program.tokens, program.tokens[1:], strict=False)
    }
    ways = []
    for token in (gap.mine, gap.theirs):
        program = case.programs.get(token.rank)
        if program is None or not 0 < token.order < len(program.tokens):
            return False
        ways.append(_way_to(program, token)[0] <= taken)
    return ways == [False, True]


def _unlike(programs: dict[int, RankProgram]) -> list[RankProgram]:
    """One of the programs of each way through the code: rows of a mesh do the same in groups of other names."""
    found: dict[Hashable, RankProgram] = {}
    looked_at: set[Hashable] = set()
    for program, _ in distinct(programs):
        labels = {name: name for name in program.recording.by_group}
        labels.update({name: group.description for name, group in program.groups.items() if group.description})
        stacks, course = id(program.recording.stacks), program.recording.course
        if course is not None:
            same = stacks, course, tuple([labels[name] for name in program.recording.by_group])
            if same in looked_at:
                continue
            looked_at.add(same)
        calls = program.journal.calls
        described = tuple(map(labels.get, map(attrgetter("group"), calls)))
        found.setdefault((stacks, tuple(map(attrgetter("stack"), calls)), described), program)
    return list(found.values())


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
