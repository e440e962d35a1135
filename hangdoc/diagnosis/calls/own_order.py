"""Where a rank broke its own earlier order: a call that never came before after the calls that had just come.

A program repeats itself, so its calls so far say which come next: the longest run of its latest calls that it has made
before, and what came after that run then (prediction by the longest context, as of Rissanen's context trees, 1983; the
runs are those of "A Sense of Self for Unix Processes", Forrest et al., IEEE S&P 1996). Where something else comes, the
rank has left its own order. Its siblings leave theirs at the same place where the program goes from one part to
another; what only one of them leaves is where it went another way. That takes no majority: of two ranks as of many.

Example: after rounds of actor, critic on both, rank 0 goes on with actor and rank 1 with critic → rank 1. What a rank
issues in several threads has an order in each of them, and none across them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import COMPARED, FEWEST, SCANNED, TRIED
from hangdoc.diagnosis.calls.history import RankProgram
from hangdoc.diagnosis.frames.stacks import Site, site_of
from hangdoc.model.journal import PointToPoint


@dataclass(frozen=True, slots=True)
class Step:
    """One call, or one batch of messages, as a rank's program repeats it."""

    key: Hashable
    """What makes two steps of one rank the same: the group or the peers, the operations, the site."""
    place: Hashable
    """What makes steps of two ranks the same: the operations and the site."""
    thread: int = 0
    on: Hashable = ""
    """The group and the operation, or the peers: wherever in the program it is made."""


@dataclass(frozen=True, slots=True)
class Break:
    """A step that never followed the ``context`` steps before it, which the rank has made several times before."""

    step: Step
    at: int
    """Its place among the rank's steps that are read."""
    context: int
    is_newest: bool
    is_known: bool
    """The rank has made such a call on that group before: else it goes on to another part of the program."""


def steps(program: RankProgram) -> list[Step]:
    """The newest that the rank issued, calls and batches of messages in one order.

    Of a device only what it has come to: what was issued later is no reason why it waits.
    """
    journal = program.journal
    calls, messages = journal.calls, journal.point_to_points
    if program.recording.runs_ahead and program.pending:
        front = program.recording.pending[0]
        calls, until = calls[: front + 1], calls[front].created_ns
        messages = tuple(each for each in messages if each.created_ns <= until)
    sites: dict[int, Site] = {}
    found: list[tuple[int, int, Step]] = []
    for place, call in enumerate(calls[-SCANNED:]):
        at = program.site(call)
        found.append(
            (
                call.created_ns,
                place,
                Step((call.group, call.op, at), (call.op, at), call.thread_id, (call.group, call.op)),
            )
        )
    for place, batch in enumerate(_batches(messages[-SCANNED:])):
        first = batch[0]
        if first.stack not in sites:
            sites[first.stack] = site_of(journal.stack(first.stack))
        ways = tuple(sorted((message.op, message.peer) for message in batch))
        ops = tuple(op for op, _ in ways)
        step = Step((first.group, ways, sites[first.stack]), (ops, sites[first.stack]), first.thread_id, ways)
        found.append((first.created_ns, SCANNED + place, step))
    found.sort(key=lambda each: each[:2])
    return [step for _, _, step in found[-SCANNED:]]


def _batches(messages: Sequence[PointToPoint]) -> list[list[PointToPoint]]:
    """Those of one batch together, the others alone."""
    found: dict[Hashable, list[PointToPoint]] = {}
    for at, message in enumerate(messages):
        found.setdefault((message.group, message.batch) if message.batch else at, []).append(message)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class Order:
    """Where a rank left its own order, and whether its newest step keeps it: what came last has come there before."""

    breaks: tuple[Break, ...]
    keeps: bool


def own_order(sequence: Sequence[Step]) -> Order:
    """Where the steps leave the order of those before them. Linear in the steps.

    Example: a b a b a b b → the last b: the longest context that came before more than once is 'a b', and then came a.
    """
    followers: dict[int, Counter[Hashable]] = {}
    numbers: dict[tuple[int, Hashable], int] = {}
    contexts: list[int] = []  # those that end before the step, the shortest first
    found: list[tuple[Counter[Hashable], int, Break]] = []
    keeps, made = False, set[Hashable]()
    for at, step in enumerate(sequence):
        keeps = False
        for length in range(len(contexts), 0, -1):
            after = followers.get(contexts[length - 1])
            if after is not None and after.total() >= FEWEST:
                keeps = step.key in after
                if not keeps:
                    found.append(
                        (after, after.total(), Break(step, at, length, at == len(sequence) - 1, step.on in made))
                    )
                break
        made.add(step.on)
        for context in contexts:
            followers.setdefault(context, Counter())[step.key] += 1
        # A context is the one before it without this step, and the step: 0 is the empty one.
        longer = [0, *contexts][:TRIED]
        contexts = [numbers.setdefault((before, step.key), len(numbers) + 1) for before in longer]
    # What comes so more often than the other way before has become its order: the first rounds are full of it.
    return Order(tuple(each for after, before, each in found if after[each.step.key] <= before), keeps)


def order_of_threads(sequence: Sequence[Step]) -> Order:
    """The same of steps that several threads issued. The newest step of all is the last thread's."""
    threads: dict[int, list[Step]] = {}
    for step in sequence:
        threads.setdefault(step.thread, []).append(step)
    found = [own_order(own) for own in threads.values()]
    if len(found) == 1:
        return found[0]
    keeps = any(order.keeps for order, own in zip(found, threads.values(), strict=True) if own[-1] is sequence[-1])
    return Order(tuple(each for order in found for each in order.breaks), keeps)


def own_orders(programs: Mapping[int, RankProgram], first: Collection[int] = ()) -> dict[int, Order]:
    """Rank → its own order, of ranks of so many kinds; those of the ranks ``first`` come first."""
    kinds: dict[Hashable, list[int]] = {}
    for rank in (*(each for each in first if each in programs), *programs):
        messages = programs[rank].journal.point_to_points
        key = id(programs[rank].recording), id(messages) if messages else 0
        if key in kinds or len(kinds) < COMPARED:
            kinds.setdefault(key, []).append(rank)
    found = {key: order_of_threads(steps(programs[ranks[0]])) for key, ranks in kinds.items()}
    return {rank: found[key] for key, ranks in kinds.items() for rank in ranks}


def own_breaks(orders: Mapping[int, Order]) -> dict[int, list[Break]]:
    """Rank → where it left its own order, and at most half of the ranks did so there."""
    there = Counter(place for order in orders.values() for place in {each.step.place for each in order.breaks})
    found = {r: [b for b in order.breaks if 2 * there[b.step.place] <= len(orders)] for r, order in orders.items()}
    return {rank: breaks for rank, breaks in found.items() if breaks}


def left_together(orders: Mapping[int, Order]) -> list[tuple[int, ...]]:
    """The ranks that leave their own order now, by the step at which they do."""
    found: dict[Hashable, list[int]] = {}
    for rank, breaks in sorted(own_breaks(orders).items()):
        if breaks[-1].is_newest:
            found.setdefault(breaks[-1].step.place, []).append(rank)
    return [tuple(ranks) for ranks in found.values()]
