"""A round of a loop in which a rank left out the message that another one awaits, and by which condition.

Example: of the program below rank 2 has received a task, and waits for the next one; rank 0 awaits its answer.

    37  def serve(self):
    38      while True:
    39          kind, values = get(0)             # rank 2, for the second time in a row
    40          if kind == "stop":
    41              return
    42          handler = self.handlers.get(kind)
    43          if handler is None:
    44              continue
    45          put(handler(values), 0)           # after each task before

As rank 2 is still in the loop, it went by `if handler is None:`, and not by `if kind == "stop":`. Where it has never
issued such a message, the lines that would do so are those of the loop that it has never run. Where each round before
had several of them, as of `for i in range(self.k):`, and the last one some of these, the conditions are those by which
that inner loop can end. Where the message came every second round, and now for five rounds no more, they are those of
any round.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from hangdoc.diagnosis.bounds import DEEPEST, NAMED, OFTEN
from hangdoc.diagnosis.condition.branch_point import is_of_rank_alone
from hangdoc.diagnosis.condition.ways_past import is_settled, ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.source.guards import CONDITIONS, Guard, guards, loops_around
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.diagnosis.source.syntax import last_name, walk
from hangdoc.model.diagnosis import Activity
from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition
from hangdoc.model.operations import message_way
from hangdoc.model.process import Frame, Stack

_Site = tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class RoundLeftOut:
    """``rank`` went round a loop without the message that ``waiter`` awaits, by one of ``conditions``."""

    rank: int
    waiter: int
    line: Frame
    """From which it would have issued it."""
    conditions: tuple[Condition, ...]
    never: bool
    """It has never issued one."""
    usual: int = 0
    """How many it had issued in each round before, where it issued some of these in the last one."""
    given: int = 0
    """How many of them it issued in its last round."""
    since: int = 0
    """The rounds since it issued the last one, where it never went round so often before without one."""


def round_left_out(case: Case, waiter: Activity, peer: int) -> RoundLeftOut | None:
    """The last round of the peer's, if it waits at the same line as one round before, and has issued nothing for the
    waiter since, as it did in each round before that; None otherwise."""
    journal, stack = case.ranks[peer].journal, user_stack(case.activities[peer].stack)
    messages = journal.point_to_points if journal is not None else ()
    here = _site(stack)
    if journal is None or not messages or not here or _site_of(journal, messages[-1]) != here:
        return None
    if messages[-1].completed:
        return None
    way = "send" if waiter.kind == ActivityKind.RECV else "recv"
    rounds = [at for at, each in enumerate(messages) if _site_of(journal, each) == here]
    given = [at for at, m in enumerate(messages) if m.peer == waiter.rank and message_way(m.op) == way]
    by_round = [[at for at in given if first < at < last] for first, last in pairwise(rounds)]
    counts = list(map(len, by_round))
    if fewer_than_ever(counts):
        before, now = ([journal.stack(messages[at].stack) for at in each] for each in by_round[-2:])
        return _with_fewer(case, waiter, peer, before, now)
    since = longer_than_ever(counts)
    if not counts or counts[-1] or not (all(counts[:-1]) or since):
        return None
    frame, loop = next(((frame, loop) for frame in stack for loop in _loops(case.sources, frame)), (None, None))
    if frame is None or loop is None:
        return None  # an inner loop may have come to that line twice in one round of an outer one: it is not asked
    if not given:
        return _never_issued(case, waiter, peer, frame, loop)
    partner = user_stack(journal.stack(messages[given[-1]].stack))
    at = next((i for i, each in enumerate(partner) if _is_within(loop, frame, each)), -1)
    if at < 0:
        return None
    found = [c for each in partner[:at] for c in _conditions(case, peer, each, None)]
    told = _told(waiter, peer, partner[0], [*found, *_conditions(case, peer, partner[at], loop)], never=False)
    return replace(told, since=since) if told is not None else None


def fewer_than_ever(counts: list[int]) -> bool:
    """True if the last round had some, and fewer than all others, which had equally many. Example: 4, 4, 4, 2."""
    *before, last = counts or [0]
    return len(before) >= OFTEN and len(set(before)) == 1 and 0 < last < before[0]


def longer_than_ever(counts: list[int]) -> int:
    """How many rounds ago the last round with some was, where there never were so many without one; else 0.

    Example: 0, 1, 0, 1, 0, 1, 0, 0, 0 → 3; of a last round that was still to come, 0, 1, 0, 1, 0, 1, 0 → 0.
    """
    with_some = [at for at, count in enumerate(counts) if count]
    apart = [later - earlier for earlier, later in pairwise([-1, *with_some])]
    since = len(counts) - 1 - with_some[-1] if with_some else 0
    return since if len(apart) >= OFTEN and since >= max(apart) else 0


def _with_fewer(case: Case, waiter: Activity, peer: int, before: list[Stack], now: list[Stack]) -> RoundLeftOut | None:
    """The same of a peer that issued fewer; ``before`` and ``now``: the stacks of those of its last two rounds.

    It left an inner loop early where all come from one line, else it went past one of several lines.
    """
    left_out = [_site(user_stack(stack)) for stack in before]
    for stack in now:
        site = _site(user_stack(stack))
        left_out = [each for at, each in enumerate(left_out) if each != site or at != left_out.index(site)]
    if not left_out:
        return None
    stack = next(stack for stack in before if _site(user_stack(stack)) == left_out[0])
    alike = [sum(_site(user_stack(stack)) == left_out[0] for stack in stacks) for stacks in (before, now)]
    on_the_way, left = ways_past(case, stack)
    past = (left or on_the_way) if alike[1] else (on_the_way or left)
    told = _told(waiter, peer, user_stack(stack)[0], past, never=False)
    return replace(told, usual=alike[0] if alike[1] else 0, given=alike[1]) if told is not None else None


def _never_issued(case: Case, waiter: Activity, peer: int, frame: Frame, loop: Guard) -> RoundLeftOut | None:
    """The same of a peer that has never issued such a message: by what the loop has never run."""
    wanted = names("sends_message" if waiter.kind == ActivityKind.RECV else "receives_message")
    for line in _issuing(case.sources, frame, loop, set(wanted)):
        there = Frame(frame.file, line, frame.function)
        if case.table.ran(peer, frame.file, line) is False:
            found = _conditions(case, peer, there, loop)
            if len(found) == 1:
                return _told(waiter, peer, there, found, never=True)
    return None


def _told(waiter: Activity, peer: int, line: Frame, found: list[Condition], *, never: bool) -> RoundLeftOut | None:
    conditions = tuple(dict.fromkeys(found))[-NAMED:]
    return RoundLeftOut(peer, waiter.rank, line, conditions, never) if conditions else None


def _loops(sources: Sources, frame: Frame) -> Iterator[Guard]:
    """The loops around the frame's line, the innermost first."""
    yield from reversed(loops_around(sources.function(frame.file, frame.line), frame.line))


def _is_within(loop: Guard, frame: Frame, other: Frame) -> bool:
    same = other.file == frame.file and plain(other.function) == plain(frame.function)
    return same and other.line is not None and loop.holds(other.line)


def _conditions(case: Case, peer: int, frame: Frame, loop: Guard | None) -> list[Condition]:
    """The conditions by which the peer can have gone past the line, within the loop; by its counters only the first of
    them behind which it has never run a line, where there is one."""
    tree = case.sources.function(frame.file, frame.line)
    found = guards(tree, frame.line) if tree is not None and frame.line is not None else []
    if loop is not None:
        found = [g for g in found if loop.span[0] < g.line and loop.holds(g.line)]
    found = [g for g in found if g.kind in (*CONDITIONS, "return") and not is_of_rank_alone(g)]
    found = [g for g in found if not is_settled(case, g, frame.file)]
    if loop is not None:  # who is still in it did not leave it
        found = [g for g in found if g.kind != "return" or g.goes_on]
    ended = [g for g in found if _never_went_on(case, peer, frame.file, g)]
    return [Condition(g.condition, frame.file, g.line) for g in ended[:1] or found]


def _never_went_on(case: Case, rank: int, file: str, guard: Guard) -> bool:
    """True if the rank has never run what stands under the condition, or follows a jump."""
    choice = case.table.choice(file, guard)
    return choice is not None and all(
        case.table.had(each, choice.under, rank)[0] is False for each in choice.predicates
    )


def _issuing(sources: Sources, frame: Frame, loop: Guard, wanted: set[str]) -> Iterator[int]:
    """The lines of the loop that issue such messages, or call what does."""
    tree = sources.function(frame.file, frame.line)
    calls = [n for n in walk(tree) if isinstance(n, ast.Call) and loop.holds(n.lineno)] if tree is not None else []
    for call in sorted(calls, key=lambda each: each.lineno):
        if call.lineno != frame.line and _issues(sources, last_name(call.func), wanted, DEEPEST):
            yield call.lineno


def _issues(sources: Sources, name: str, wanted: set[str], deep: int) -> bool:
    if name in wanted:
        return True
    found = [node for _, node in sources.user_functions(name)] if deep else []
    inner = {last_name(n.func) for node in found[:1] for n in walk(node) if isinstance(n, ast.Call)}
    return len(found) == 1 and any(_issues(sources, each, wanted, deep - 1) for each in inner - {name})


def _site(stack: Stack) -> _Site:
    return tuple((frame.file, frame.line) for frame in stack)


def _site_of(journal: Journal, message: PointToPoint) -> _Site:
    return _site(user_stack(journal.stack(message.stack)))
