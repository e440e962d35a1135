"""Without a journal: one call for each rank, the one its stack shows it in.

The same alignment works on it. What it cannot show is history, so nothing found this way is ever certain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.frames.landmarks import below_user, is_distributed, is_implicit, number_below_user, stage
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import every_frame, fork, site_of
from hangdoc.diagnosis.source.guards import guards
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import COMMUNICATING, ActivityKind, WaitReason
from hangdoc.model.operations import operation
from hangdoc.model.process import Stack

UNKNOWN_GROUP = "process group"
_MOST_MEMBERS = 8192
"""Of a group whose members a frame shows; chosen by hand."""


def from_stacks(
    activities: dict[int, Activity], kinds: tuple[str, ...] = (ActivityKind.IN_COLLECTIVE,)
) -> list[GroupHistory]:
    """The calls that the ranks are in, as one history of one call each; [] where fewer than two ranks are in one."""
    standing = {rank: a for rank, a in activities.items() if a.kind in kinds and not a.moving}
    if len(standing) < 2:
        return []
    members = tuple(sorted(activities))
    key = (UNKNOWN_GROUP, members)
    history = GroupHistory(key, members, UNKNOWN_GROUP, inferred=True)
    history.blind = tuple(rank for rank in members if rank not in standing)
    for rank, activity in standing.items():
        history.tokens[rank] = [
            Token(
                rank=rank,
                group=key,
                sequence=1,
                op=activity.operation,
                named=activity.reason != WaitReason.UNNAMED,
                site=tuple(
                    (file, line, function.rsplit(".", 1)[-1]) for file, line, function in site_of(activity.stack)
                ),
                sizes=None,
                dtypes=(),
                pending=True,
                order=0,
                created_ns=0,
                stack=activity.stack,
            )
        ]
    return [history]


def rounds_joined(history: GroupHistory, sources: Sources) -> GroupHistory:
    """The history in which ranks in one library's loop make one call, where the only other ranks are not in that loop.

    Within a round ranks may be at different calls: who has its part of a broadcast goes on. Example: below fit(), ranks
    0 and 3 are in the forward pass of a step, rank 2 in its backward pass, and rank 1 is after the loop over the steps
    → ranks 0, 2 and 3 make one call.
    """
    calls = [tokens[0] for tokens in history.tokens.values()]
    if len({call.site for call in calls}) > 1:
        return _left_loop_joined(_library_calls_joined(history, calls), calls, sources)
    if len({call.op for call in calls}) < 3:
        return history
    for outside in calls:
        inside = [call for call in calls if call.op != outside.op]
        first = inside[0].stack
        alike = all(_in_one_loop(sources, first, call.stack) for call in inside)
        if alike and not _in_one_loop(sources, first, outside.stack):
            return _joined(history, inside)
    return _stages_joined(history, calls)


def _library_calls_joined(history: GroupHistory, calls: list[Token]) -> GroupHistory:
    """The history in which ranks in one library's call, made at one line, make one call, where other ranks are at
    another line.

    All of them run the library's code alike, and who has its part of one of its collectives goes on to the next.
    Example: at `for batch in loader:`, ranks 0 and 1 are in a broadcast and rank 2 in a broadcast_object_list, and
    rank 3 is in the barrier after that loop → ranks 0, 1 and 2 make one call.
    """
    entered: dict[object, list[Token]] = {}
    for call in calls:
        below = below_user(call.stack)
        if below and not is_distributed(below[-1]):
            entered.setdefault((call.site, below[-1].file, below[-1].function), []).append(call)
    for alike in entered.values():
        history = _joined(history, alike) if len({call.op for call in alike}) > 1 else history
    return history


def _left_loop_joined(history: GroupHistory, calls: list[Token], sources: Sources) -> GroupHistory:
    """The history in which the ranks in one loop of the user's make one call, where the few others are at one line
    further down, for which they have left it.

    Example: in `while True: ⏎ batch = receive() ⏎ decode(batch)`, ranks 0 and 1 are in receive() and rank 2 in
    decode(), and rank 3 is in the all_reduce after it → ranks 0, 1 and 2 make one call.
    """
    for site in dict.fromkeys(call.site for call in calls):
        outside = [call for call in calls if call.site == site]
        inside = [call for call in calls if call.site != site]
        others = [call for call in inside if call.op != outside[0].op]
        if len({call.op for call in inside}) < 2 or len(outside) >= len(inside):
            continue
        if set.intersection(*(_loops_left(sources, call.stack, outside[0].stack) for call in inside)):
            return _joined(history, inside, usual=others, one_site=True)
    return history


def _loops_left(sources: Sources, stack: Stack, outside: Stack) -> set[tuple[str, tuple[int, str]]]:
    """(file, place) of the loops that ``stack`` is in and ``outside``, further down in a function of both, is not."""
    where = fork(stack, outside)
    if where.within_function is None or where.within_function[1].line <= where.within_function[0].line:
        return set()
    found = set()
    for frame in where.mine[where.common :]:
        tree = sources.function(frame.file, frame.line)
        loops = (
            [g for g in guards(tree, frame.line) if g.kind == "loop" and not g.in_header] if tree is not None else []
        )
        if frame is where.within_function[0] and any(g.holds(where.within_function[1].line) for g in loops):
            return set()  # it may be in the round before
        found |= {(frame.file, loop.place) for loop in loops}
    return found


def _stages_joined(history: GroupHistory, calls: list[Token]) -> GroupHistory:
    """The history in which the ranks in one stage of a trainer's loop make one call, where the others are in another.

    Example: below fit(), ranks 0 and 2 train, in a broadcast and in backward(), and rank 1 validates → ranks 0 and 2
    make one call.
    """
    stages: dict[str, list[Token]] = {}
    for call in calls:
        mark = stage(call.stack)
        stages.setdefault(mark.stage if mark is not None else "", []).append(call)
    if len(stages) != 2 or "" in stages:
        return history
    first, second = stages.values()
    return _joined(_joined(history, first), second)


def _joined(
    history: GroupHistory, calls: list[Token], *, usual: Sequence[Token] = (), one_site: bool = False
) -> GroupHistory:
    """The history in which these ranks make the call that most of them make, or most of the ``usual`` ones; with
    ``one_site`` from one line as well."""
    most = Counter(call.op for call in usual or calls).most_common(1)[0][0]
    site = next(call.site for call in calls if call.op == most)
    joined = {call.rank: [replace(call, op=most, site=site if one_site else call.site)] for call in calls}
    return replace(history, tokens={**history.tokens, **joined})


def _in_one_loop(sources: Sources, stack: Stack, other: Stack) -> bool:
    """True if both are in the body of one loop of a library's."""
    where = fork(stack, other, frames_of=every_frame)
    pairs = list(zip(where.mine[: where.common + 1], where.theirs[: where.common + 1], strict=False))
    if where.within_function is None and where.frames is not None:
        pairs = pairs[:-1]
    for mine, theirs in pairs:
        tree = sources.function(mine.file, mine.line) if is_library(mine) else None
        if tree is None:
            continue
        loops = [
            {g.place for g in guards(tree, f.line) if g.kind == "loop" and not g.in_header} for f in (mine, theirs)
        ]
        if loops[0] & loops[1]:
            return True
    return False


def apart(history: GroupHistory) -> GroupHistory:
    """The history with sizes that differ by site, so that calls match only if they are at one line."""
    places: dict[object, int] = {}
    tokens: dict[int, Sequence[Token]] = {
        rank: [replace(t, sizes=((places.setdefault(t.site, len(places)),),)) for t in calls]
        for rank, calls in history.tokens.items()
    }
    return replace(history, tokens=tokens)


def ranks_at_other_sites(history: GroupHistory, culprits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The ranks at a further site, by site: stacks do not show the groups, so any of them may be to blame.

    Example: ranks 0 and 1 at line 5, rank 2 at line 7, rank 3 (the culprit) at line 9 → [(2,)].
    """
    by_site: dict[object, list[int]] = {}
    for rank, tokens in history.tokens.items():
        by_site.setdefault(tokens[0].site, []).append(rank)
    if len(by_site) < 3:
        return []
    most = max(len(ranks) for ranks in by_site.values())
    places = [tuple(sorted(ranks)) for ranks in by_site.values() if len(ranks) < most]
    return sorted(place for place in places if not set(place) <= set(culprits))


def others_if_rooted(history: GroupHistory, culprits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The other ranks, one by one, if the culprits are in a rooted call: members leave it as soon as their part is
    done, so the others may have made it as well, all but one.

    Not if the one culprit only waits for what the root sends: had the root or another left the call out, whoever sends
    to that one would wait in it, too. Example: rank 0 waits in gather, ranks 1 and 2 wait in barrier → [(1,), (2,)].
    """
    sources = [_source(token) for rank in culprits for token in history.tokens.get(rank, [])]
    if len(sources) == 1 and sources[0] is not None and sources[0] not in culprits and len(history.tokens) > 2:
        return []
    ops = [token.op for rank in culprits for token in history.tokens.get(rank, [])]
    rooted = all(operation(op).rooted for op in ops)
    others = tuple(rank for rank in history.tokens if rank not in culprits)
    return [(rank,) for rank in others] if rooted and len(others) > 1 else []


def _source(call: Token) -> int | None:
    """The rank whose data the call gives the others, as its frame holds it; None where it is none, or not seen."""
    return number_below_user(call.stack, *names("source_local")) if operation(call.op).rooted else None


def others_if_unnamed(history: GroupHistory, culprits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The other ranks, as one set, if some rank waits in a call without a name: it may be a message of theirs."""
    unnamed = any(not token.named for tokens in history.tokens.values() for token in tokens)
    return [tuple(r for r in history.tokens if r not in culprits)] if unnamed else []


def is_between_librarys_calls(gap: Gap | None) -> bool:
    """True if the call that seems one too many is one that a library makes by itself, as is the others', below lines of
    one function of the user's.

    Unless a condition sets the lines apart, every rank makes both as a rule, and what differs came before.
    Example: rank 3 in the all_gather of FSDP's forward, the others in the reduce_scatter of its backward → True.
    """
    if gap is None or gap.kind != "delete" or gap.mine is None or gap.theirs is None:
        return False
    mine, theirs = gap.mine.stack, gap.theirs.stack
    stages = {mark.stage for mark in (stage(mine), stage(theirs)) if mark is not None}
    if not is_implicit(mine) or not is_implicit(theirs) or len(stages) > 1:
        return False
    where = fork(mine, theirs)
    return where.common > 0 and (where.frames is None or where.within_function is not None)


def is_given_group(stack: Stack) -> bool | None:
    """True if the call got a process group, by the arguments of torch's outermost wrapper; None where there is none."""
    for frame in reversed(below_user(stack)):
        if frame.file.endswith(names("wraps_call")) and frame.locals:
            return any(mark in each.value for each in frame.locals for mark in names("group_shown"))
    return None


def group_shown(stack: Stack) -> tuple[str, tuple[int, ...]] | None:
    """(name, members) of the group that the call is of, as its frame holds it; None where nothing tells.

    Example: the locals `group.name` = 5 and `group.members` = 0-2,7 of all_reduce → ('5', (0, 1, 2, 7)).
    """
    for frame in below_user(stack):
        values = {local.name: local.value for local in frame.locals}
        if "group.members" in values:
            members = members_of(values["group.members"])
            return (values.get("group.name", ""), members) if members else None
    return None


def held_up_in_groups(activities: Mapping[int, Activity]) -> bool:
    """True if a rank is in no call, and the others wait in calls that their frames show to be of several groups: these
    are no places of one sequence, and whom each waits for tells who holds them up."""
    calling = [a for a in activities.values() if a.kind == ActivityKind.IN_COLLECTIVE]
    outside = any(a.kind not in COMMUNICATING for a in activities.values())
    return outside and len({shown for a in calling if (shown := group_shown(a.stack)) is not None}) > 1


def members_of(text: str) -> tuple[int, ...]:
    """The ranks of a text such as '0-2,7'; () for any other text, and for more ranks than a group has."""
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or len(first) > 6 or (dash and (not last.isdecimal() or len(last) > 6)):
            return ()
        found += range(int(first), min(int(last or first), int(first) + _MOST_MEMBERS) + 1)
        if len(found) > _MOST_MEMBERS:
            return ()
    return tuple(found)


def others_if_of_other_groups(history: GroupHistory, culprits: tuple[int, ...]) -> list[tuple[int, ...]]:
    """The other ranks, as one set, if only one side's calls were given a group: nothing says that it is that of all.

    Example: ranks 0 and 2 are in `all_reduce(x, group=lane)`, the others in `barrier()` → one of them may have skipped
    what 0 and 2 wait in.
    """
    given: dict[bool, set[bool | None]] = {True: set(), False: set()}
    for rank, tokens in history.tokens.items():
        given[rank in culprits].update(is_given_group(token.stack) for token in tokens)
    others = tuple(rank for rank in history.tokens if rank not in culprits)
    return [others] if {True, False} == given[True] | given[False] and given[True].isdisjoint(given[False]) else []
