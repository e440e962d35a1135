"""Which process groups each rank made, and in which order.

torch names groups by a counter that every new_group advances, on members and others alike (torch 2.13). If a rank
skips one new_group, its next group gets a number that belongs to another group on the other ranks.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from hangdoc.diagnosis.calls.alignment import Alignment, Gap, repairs
from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.condition.rounds_ahead import is_past_in_round
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import below_user, plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import site_of, user_stack
from hangdoc.diagnosis.source.guards import Guard, guards, loops_around
from hangdoc.diagnosis.source.queries import calls_of, group_calls
from hangdoc.diagnosis.source.syntax import enclosing_function, function_name, last_name
from hangdoc.model.journal import Journal
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.process import Frame, Stack

_LABEL = "new_group"
LOCAL = "new_group by members"
"""What the groups are called whose members alone make them (`use_local_synchronization=True`): torch 2.13 names such a
group after its members and the number of groups that the rank has made before, so unequal numbers never meet."""
_WHILE_MAKING = (ActivityKind.STORE_WAIT, ActivityKind.IN_COLLECTIVE)
"""What a rank is seen to do in new_group: it waits for the other members' addresses, in the store or in the backend."""
_Making = tuple[int, Stack, tuple[int, ...]]
"""A group's number, where the rank makes it, its members as far as they are known."""


def missing_creations(case: Case) -> list[Alignment]:
    """The repairs after which all ranks number their groups alike; empty unless some rank waits for a group.

    One alignment for each explanation. Example: rank 0 made group 3 of (0, 1) and group 4 of (0, 2), rank 2 made
    group 3 of (0, 2) → rank 2 left out the call of new_group that made (0, 1).
    """
    making = {rank: now for rank in case.activities if (now := _making(case, rank)) is not None}
    if not making:
        return _uneven_before_local_group(case)
    history = _history(case, making)
    by_number: dict[int, list[Token]] = {}
    for tokens in history.tokens.values():
        for token in tokens:
            by_number.setdefault(token.sequence, []).append(token)
    for number in sorted(by_number):
        sides = sides_of(by_number[number])
        if len(sides) == 2:
            found = _left_out_by_either(history, sides) or _unlike(history, sides)
            if found:
                return [fewer for each in found for fewer in _fewest_changed(case, each)]
    return []


def _uneven_before_local_group(case: Case) -> list[Alignment]:
    """The repairs after which ranks that make a group by themselves have made equally many before.

    Example: rank 0 made (0,) and makes (0, 1), rank 1 makes (0, 1) as its first → (0,) is extra on rank 0.
    """
    waiting: dict[tuple[int, ...], dict[int, Stack]] = {}
    for rank, activity in case.activities.items():
        found = _made_by_members(activity.stack) if activity.kind == ActivityKind.STORE_WAIT else None
        if found is not None:
            waiting.setdefault(found[1], {})[rank] = found[0]
    for members, stacks in sorted(waiting.items()):
        if any(not _living_groups(case.ranks[rank].journal) for rank in stacks):
            uneven = _uneven_by_ports(case, members, stacks)
            if uneven:
                return uneven
            continue
        made = {rank: _living_groups(case.ranks[rank].journal) for rank in stacks}
        if len({len(groups) for groups in made.values()}) > 1:
            return repairs(_local_history(members, stacks, made))
    return []


_Made = list[tuple[Stack, tuple[int, ...]]]
"""Where a rank made each group, and who is in it."""


def _living_groups(journal: Journal | None) -> _Made:
    """The groups that torch counts for the name of the next one: those that the rank has not destroyed."""
    groups = [group for group in journal.groups if not group.destroyed] if journal is not None else []
    return [(journal.stack(g.created_at) if journal and g.created_at >= 0 else (), g.members) for g in groups]


def _local_history(members: tuple[int, ...], now: Mapping[int, Stack], made: Mapping[int, _Made]) -> GroupHistory:
    """The groups that the members made, and the one that they are making ``now``, as calls of new_group."""
    history = GroupHistory((LOCAL, members), tuple(sorted(now)), _LABEL)
    for rank in history.members:
        groups = [*made[rank], (now[rank], members)]
        history.tokens[rank] = [
            Token(rank, history.key, number, _LABEL, site_of(stack), (some,), (), number == len(groups), -1, 0, stack)
            for number, (stack, some) in enumerate(groups, 1)
        ]
    return history


def _uneven_by_ports(case: Case, members: tuple[int, ...], now: Mapping[int, Stack]) -> list[Alignment]:
    """The same where no journal tells of the groups: gloo listens on one port for each.

    The ranks whose number of ports is the odd one in the whole job are to blame; either side where none is. Example: of
    four ranks, 0 and 1 make (0, 1); rank 0 listens on 3 ports, the others on 2 → rank 0 made one group more.
    """
    ports = {rank: case.own_ports(rank) for rank in case.seen}
    counts = Counter(ports[rank] for rank in now)
    if len(counts) != 2 or not min(counts):
        return []
    most, fewest = max(counts), min(counts)
    # Of what was made before nothing is known but the number.
    history = _local_history(members, now, {rank: [((), ())] * ports[rank] for rank in now})
    history.inferred = True
    more, less = (tuple(rank for rank in sorted(now) if ports[rank] == count) for count in (most, fewest))
    extra, pending = history.tokens[more[0]][-2], history.tokens[less[0]][-1]
    made, missing = Gap("delete", more, extra, extra, pending), Gap("insert", less, extra, pending, extra)
    usual = Counter(ports.values()).most_common(2)
    odd = usual[0][0] if len(usual) < 2 or usual[0][1] > usual[1][1] else None
    gaps = [made] if odd == fewest else [missing] if odd == most else [made, missing]
    return [Alignment(history, len(gap.ranks), (gap,), tuple(history.tokens[less[0]])) for gap in gaps]


def _made_by_members(stack: Stack) -> tuple[Stack, tuple[int, ...]] | None:
    """(the stack from torch's frame on, the members) of the group that its members alone make; None elsewhere."""
    local = any(each.name == "use_local_synchronization" and each.value == "True" for f in stack for each in f.locals)
    for number, frame in enumerate(stack):
        if local and plain(frame.function) in names("group_constructor"):
            values = {each.name: each.value for each in frame.locals}
            members = _numbers(values.get("global_ranks_in_group", ""))
            return (stack[number:], members) if members else None
    return None


def sides_of(tokens: list[Token]) -> list[list[Token]]:
    """The calls of one number, apart by the group that each makes.

    Of a call that is only known not to make what others wait for (``_with_pending``), it is the one that they have made
    who do not wait. Example: ranks 0 and 1 make (0, 1), rank 2 made (2,), rank 3 is past that number → [[those of 0 and
    1], [those of 2 and 3]].
    """
    unknown = [token for token in tokens if not token.site and not (token.sizes and token.sizes[0])]
    made: list[list[Token]] = []
    for token in tokens:
        if token in unknown:
            continue
        alike = next((side for side in made if _same_call(side[0], token)), None)
        if alike is None:
            made.append([token])
        else:
            alike.append(token)
    passed = [side for side in made if not any(token.pending for token in side)]
    if unknown and len(passed) == 1 and len(made) > 1:
        passed[0].extend(unknown)
    elif unknown:
        made.append(unknown)
    return made


def _same_call(a: Token, b: Token) -> bool:
    """True if both make the same group: equal members or, where these are not known yet, the same line."""
    known = all(token.sizes is not None and token.sizes[0] for token in (a, b))
    return a.sizes == b.sizes if known else a.site == b.site


def _left_out_by_either(history: GroupHistory, sides: list[list[Token]]) -> list[Alignment]:
    """The repairs by which one of the two sides skipped the other's group: none, one or both."""
    here, there = sides
    found = (_left_out(history, here, there), _left_out(history, there, here))
    return [alignment for alignment in found if alignment is not None]


def _left_out(history: GroupHistory, without: list[Token], having: list[Token]) -> Alignment | None:
    """The repair if the ranks of ``without`` skipped the group that those of ``having`` made under this number.

    They did if other ranks made the group of ``without`` later; else None. Who is no member of it shows nothing of it.
    Example: ``having`` made A, B, ``without`` made B → A is missing on ``without``.
    """
    mine, theirs = without[0], having[0]
    skipping = {token.rank for token in without}
    others = (tokens for rank, tokens in history.tokens.items() if rank not in skipping)
    later = (t for tokens in others for t in tokens if t.sequence > theirs.sequence)
    if not any(_same_call(mine, token) for token in later):
        return None
    ranks = tuple(sorted(token.rank for token in without))
    gap = Gap("insert", ranks, theirs, mine, theirs)
    return Alignment(history, len(ranks), (gap,), tuple(history.tokens[theirs.rank]))


def _fewest_changed(case: Case, left_out: Alignment) -> list[Alignment]:
    """The repair that changes the fewest ranks, where lines that have run tell of those that are no members: the group
    is made by the ranks that left it out, or no longer by those that made it; both where as many have as have not.

    Example: rank 3 made (3,) and rank 0 did not; ranks 1 and 2, members of neither, have not run its line → extra on 3.
    """
    gap, history = left_out.gaps[0], left_out.history
    frame = gap.token.frame
    by_line = case.table.split(history.members, frame.file, frame.line) if frame is not None else None
    if gap.kind != "insert" or by_line is None or not set(gap.ranks) <= set(by_line.never):
        return [left_out]  # the line may make several groups
    without = by_line.never
    having = tuple(rank for rank in history.members if rank in by_line.ran or rank == gap.token.rank)
    missing = replace(gap, ranks=without)
    extra = Gap("delete", having, gap.token, gap.token, gap.mine)
    fewest = min(len(without), len(having))
    return [Alignment(history, fewest, (g,), left_out.consensus) for g in (missing, extra) if len(g.ranks) == fewest]


def _unlike(history: GroupHistory, made: list[list[Token]]) -> list[Alignment]:
    """The repairs if one number belongs to two groups and a rank still waits: the minority made an extra group.

    ``made``: the tokens of one side, the tokens of the other. What either side would have made next is not known.
    Example: rank 0 makes (0,) as number 3, ranks 1 and 2 make (1, 2) → (0,) is extra on rank 0.
    """
    if not any(token.pending for tokens in made for token in tokens):
        return []
    fewest = min(map(len, made))
    found = []
    # Who is in the call still stands for its side: what it sees now is of that call.
    sides = [sorted(tokens, key=lambda token: (not token.pending, token.rank)) for tokens in made]
    for mine, theirs in (sides, sides[::-1]):
        ranks = tuple(sorted(token.rank for token in mine))
        if len(mine) == fewest:
            gap = Gap("delete", ranks, mine[0], mine[0], theirs[0])
            found.append(Alignment(history, fewest, (gap,), tuple(history.tokens[theirs[0].rank])))
    return found


def _history(case: Case, making: Mapping[int, _Making]) -> GroupHistory:
    """Every rank's groups as calls of new_group: the number is torch's own, ``sizes`` holds the members."""
    world = tuple(sorted(case.ranks))
    journals = {rank: s.journal for rank, s in case.ranks.items() if s.journal is not None}
    # If no call was recorded, the probe may still know the groups; a rank without any group shows nothing then.
    journals = {rank: journal for rank, journal in journals.items() if case.programs or journal.groups}
    history = GroupHistory((_LABEL, world), world, _LABEL, inferred=not journals)
    passed = {} if journals else _passed(case, making)
    history.blind = tuple(rank for rank in world if not any(rank in known for known in (journals, making, passed)))
    for rank in sorted({*journals, *making, *passed}):
        made = _made(journals[rank]) if rank in journals else iter(passed.get(rank, ()))
        history.tokens[rank] = [
            Token(rank, history.key, number, _LABEL, site_of(stack), (members,), (), pending, -1, 0, stack)
            for number, (stack, members, pending) in sorted(_with_pending(case, rank, made, making).items())
        ]
    return history


def _with_pending(
    case: Case, rank: int, made: Iterator[_Making], making: Mapping[int, _Making]
) -> dict[int, tuple[Stack, tuple[int, ...], bool]]:
    """Number → (where the rank makes that group, its members, whether the rank is still making it)."""
    found = {number: (stack, members, False) for number, stack, members in made}
    if rank in making:
        number, stack, members = making[rank]
        found.setdefault(number, (stack, members, True))
        # Others still wait for it in an earlier group: under that number it made something else.
        for earlier in {other for other, _, wanted in making.values() if other < number and rank in wanted}:
            found.setdefault(earlier, (_only_other_call(case, stack) if number - earlier == 1 else (), (), False))
    return found


def _passed(case: Case, making: Mapping[int, _Making]) -> dict[int, list[_Making]]:
    """Rank → what it has made, of ranks without a journal: those that have certainly left the call in which others
    still make a group, and the makers, who made another one under the number before theirs.

    Example: rank 0 makes group 2 at line 40, rank 2 is at line 41 of the same function → rank 2 made that group as
    number 1, which was another group on rank 0.
    """
    found: dict[int, list[_Making]] = {}
    for maker, (number, stack, members) in making.items():
        ahead = [rank for rank, a in case.activities.items() if rank not in making and rank in members]
        ahead = [rank for rank in ahead if is_past_in_round(case, rank, maker)]
        if number > 1 and ahead:
            found[maker] = [(number - 1, _only_other_call(case, stack), ())]
            found.update({rank: [(number - 1, stack, members)] for rank in ahead})
    return found


def _only_other_call(case: Case, stack: Stack) -> Stack:
    """Where the user's code makes a group before ``stack`` does, with the way there, if that is one place; else ().

    Example: main:40 makes a group, and main:36 calls pair_group(), which makes one at 29 → pair_group:29, main:36.
    """
    here = {(frame.file, frame.line) for frame in stack}
    calls = ((file, tree, line) for file, tree in case.sources.user_trees() for line in group_calls(tree))
    places = {(file, line): function_name(tree, line) for file, tree, line in calls if (file, line) not in here}
    way, inner = user_stack(stack), below_user(stack)
    if not places and way:  # one function makes all groups: who else calls it?
        inner, way = (*inner, way[0]), way[1:]
        places = _other_calls_of(case, inner[-1], way[:1])
    if len(places) != 1:
        return ()
    (place, function), *_ = places.items()
    found = (*(replace(frame, locals=()) for frame in inner), Frame(*place, function))
    for at, frame in enumerate(way):
        tree = case.sources.function(frame.file, frame.line)
        if tree is None:
            break
        around = guards(tree, frame.line)
        lines = [place[1]] if (frame.file, plain(frame.function)) == (place[0], function) else []
        lines = lines or calls_of(enclosing_function(tree, frame.line), function)
        loop = next(reversed(loops_around(tree, frame.line)), None)
        if loop is not None and not (len(inner) > len(below_user(stack)) and _is_in_every_round(around, loop, lines)):
            break  # an earlier round may have made it in this line
        if (frame.file, plain(frame.function)) == (place[0], function):
            return (*found, *way[at + 1 :]) if place[1] < frame.line else ()
        if len(lines) == 1 and lines[0] < frame.line:
            return (*found, Frame(frame.file, lines[0], frame.function), *way[at + 1 :])
    return ()


def _other_calls_of(case: Case, maker: Frame, caller: Stack) -> dict[tuple[str, int], str]:
    """(file, line) → function of the other calls of the function that makes groups, on what has the same name.

    Example: `audit = groups.get(members)` is on the stack → the line of `self.groups.get(pair)`, and no `options.get`.
    """
    calls = case.sources.user_calls(plain(maker.function).rpartition(".")[2])
    of = {(f.file, f.line) for f in caller}
    now = {_receiver(each.call) for each in calls if (each.file, each.call.lineno) in of}
    return {
        (each.file, each.call.lineno): getattr(each.function, "name", "<module>")
        for each in calls
        if _receiver(each.call) in now and (each.file, each.call.lineno) not in of
    }


def _receiver(call: ast.Call) -> str:
    return last_name(call.func.value) if isinstance(call.func, ast.Attribute) else ""


def _is_in_every_round(around: list[Guard], loop: Guard, lines: list[int]) -> bool:
    """True if every rank comes to the line in each round of the loop, so that no earlier round set the ranks apart, and
    the other call is made in that loop as well."""
    within = around[around.index(loop) + 1 :]
    return not any(guard.kind != "try" for guard in within) and len(lines) == 1 and loop.holds(lines[0])


def _made(journal: Journal) -> Iterator[_Making]:
    """The groups that the rank has made."""
    for group in journal.groups:
        if group.name.isdigit() and group.members:
            stack = journal.stack(group.created_at) if group.created_at >= 0 else ()
            yield int(group.name), stack, group.members


def _making(case: Case, rank: int) -> _Making | None:
    """The group that the rank is making now: from its journal, or from the locals of torch's own frame."""
    journal, activity = case.ranks[rank].journal, case.activities[rank]
    seen = _making_on_stack(activity.stack) if activity.kind in _WHILE_MAKING else None
    for wait in journal.store_waits if journal is not None else ():
        if wait.operation == "group" and wait.keys and wait.keys[0].isdigit():
            number = int(wait.keys[0])
            members = seen[2] if seen is not None and seen[0] == number else ()
            return number, journal.stack(wait.stack) if journal is not None else (), members
    return seen


def _making_on_stack(stack: Stack) -> _Making | None:
    """The group that torch's frame on the stack is making, by its locals."""
    for number, frame in enumerate(stack):
        if plain(frame.function) in names("group_constructor"):
            values = {local.name: local.value.strip("\"'") for local in frame.locals}
            name = values.get("group_name", "")
            if name.isdigit():
                return int(name), stack[number:], _numbers(values.get("global_ranks_in_group", ""))
    return None


def _numbers(text: str) -> tuple[int, ...]:
    """'[0, 1, 2]' as numbers; () for what is no whole list of them."""
    whole = re.fullmatch(r"\[\d+(, \d+)*\]", text)
    return tuple(int(number) for number in re.findall(r"\d+", text)) if whole else ()
