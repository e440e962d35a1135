"""Which rank left the order of its siblings: the same stage of the other pipelines of a mesh runs the same program.

Between ranks that pass messages nobody has the same calls as another. But a mesh has several pipelines of one name, and
their ranks of one place issue the same, in groups and with peers of their own. So a rank that left a message out shows
it against its siblings, also in a round before which there was none.

Example: ranks 0 and 1 are the first stages of two pipelines and send three times in each round; rank 1 sends twice, and
goes on as rank 0 does → it left one out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from hangdoc.diagnosis.blame.own_loop import LeftOwnLoop, what_was_done
from hangdoc.diagnosis.bounds import SCANNED
from hangdoc.diagnosis.calls.events import Event, named_group
from hangdoc.diagnosis.calls.history import RankProgram
from hangdoc.diagnosis.calls.message_pairs import Alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.kinds import Confidence
from hangdoc.model.wording import ranks_text


def left_its_siblings(case: Case) -> Blame[LeftOwnLoop] | None:
    """The rank that left its siblings' order, in a job whose devices pass messages; None where none did. Of several,
    each of which left an order that two others keep, the first: the others are faults of their own."""
    found = departures(case)
    if not found or (len(found) > 1 and any(len(each.siblings) < 2 for each in found)):
        return None
    left = min(found, key=lambda each: (each.found.created_ns, each.rank))
    if left.rank not in _involved(case):
        return None
    sure = f"rank {left.rank} left the order that it shares with {ranks_text(left.siblings)}"
    return Blame(left, (left.rank,), proved=bool(case.graph.stuck), confidence=Confidence.LIKELY, sure=sure)


def departures(case: Case) -> list[LeftOwnLoop]:
    """Where ranks left the order of their siblings, one for each such rank; [] where it cannot be told who did."""
    programs = {r: case.programs[r] for r in sorted(case.seen & case.programs.keys())[:SCANNED]}
    if not case.streams or any(program.journal.active_only for program in programs.values()):
        return []
    alone = [each for each in case.messages_alone if not each.message.completed]
    found: list[LeftOwnLoop] = []
    for ranks in _siblings(programs):
        parted = _parted(case, {rank: programs[rank] for rank in ranks}, alone)
        if parted is None:
            return []
        found += parted
    return found


def _involved(case: Case) -> set[int]:
    return {w.waiter for w in case.graph.waits} | {rank for w in case.graph.waits for rank in w.on}


def _siblings(programs: dict[int, RankProgram]) -> list[list[int]]:
    """The ranks of one place in groups of one name and size that pass messages, where there are several; where none
    passes any, those that use groups of the same names and sizes."""
    by_place: dict[Hashable, list[int]] = {}
    messages = any(program.journal.point_to_points for program in programs.values())
    for rank, program in programs.items():
        if messages:
            groups = [named_group(program, name) for name in {m.group for m in program.journal.point_to_points}]
            places = sorted((label, who.index(rank), len(who)) for label, who in groups if rank in who)
        else:
            groups = [named_group(program, name) for name in program.recording.by_group]
            places = sorted((label, 0, len(who)) for label, who in groups)
        if places:
            by_place.setdefault(tuple(places), []).append(rank)
    return [ranks for ranks in by_place.values() if len(ranks) > 1]


def _parted(case: Case, programs: dict[int, RankProgram], alone: list[Alone]) -> list[LeftOwnLoop] | None:
    """The ranks that issued another event than their siblings, each at the first place where it did; None where it
    cannot be told which side did. ``alone``: the messages without a partner."""
    concerned = {rank for each in alone for rank in each.pair}
    lonely = {each.rank for each in alone}
    events = _from_common_start(case, programs)
    keys = _numbered(events)
    found = []
    for at in range(max(map(len, keys.values()), default=0)):
        by_key: dict[int, list[int]] = {}
        for rank, mine in keys.items():
            if at < len(mine):
                by_key.setdefault(mine[at], []).append(rank)
        if len(by_key) < 2:
            continue
        sides = sorted(by_key.values(), key=len)
        odd = _odd(sides, concerned)
        others = tuple(rank for side in sides for rank in side if rank not in odd)
        usual = events[others[0]][at] if others else None
        if not odd or usual is None or not all(_kept_by_its_group(programs[rank], usual, odd) for rank in odd):
            return None
        if any(_is_a_habit(events, rank, at, others) for rank in odd):
            return None
        for rank in odd:
            expected = keys[others[0]][at:]
            what = what_was_done(events[rank], keys[rank], at, expected, usual, lonely=rank in lonely)
            own = _of_its_own(programs, others[0], rank, usual)
            found.append(LeftOwnLoop(rank, what, own, events[rank][at], others))
            del keys[rank]
    return found


def _odd(sides: list[list[int]], concerned: set[int]) -> list[int]:
    """The ranks that left, of sides that differ, the largest one last; [] where it cannot be told."""
    fewer = [rank for side in sides[:-1] for rank in side]
    if len(fewer) < len(sides[-1]):
        return fewer
    left = [side for side in sides if concerned.intersection(side)]
    return left[0] if len(sides) == 2 and len(left) == 1 and len(left[0]) == 1 else []


def _is_a_habit(events: dict[int, list[Event]], rank: int, at: int, others: tuple[int, ...]) -> bool:
    """True if the rank does at that place what it does at other times as well, and the others never do: then it has a
    part of its own. Example: the first rank of its stage alone takes the sampled tokens of each step."""
    role = events[rank][at].role
    return sum(event.role == role for event in events[rank]) > 1 and not any(
        event.role == role for other in others for event in events[other]
    )


def _kept_by_its_group(program: RankProgram, usual: Event, odd: list[int]) -> bool:
    """True if the rank alone of its group left: what all members of a group do is the program's own way."""
    label = usual.role[0]
    groups = (named_group(program, name) for name in program.groups)
    return not any(
        name == label and len(set(members).intersection(odd)) > 1 for name, members in groups if program.rank in members
    )


def _of_its_own(programs: dict[int, RankProgram], sibling: int, rank: int, event: Event) -> Event:
    """The sibling's event as the rank would have issued it: with the peers of its own group."""
    label, members = named_group(programs[sibling], event.group)
    own = (named_group(programs[rank], name) for name in programs[rank].groups)
    mine = next((who for name, who in own if name == label and rank in who and len(who) == len(members)), None)
    if mine is None:
        return event
    return event._replace(peers=tuple(mine[members.index(peer)] for peer in event.peers if peer in members))


def _numbered(events: dict[int, list[Event]]) -> dict[int, list[int]]:
    """``Event.role`` of each as a number, without a line that one rank alone has: the arms of a condition on the rank
    match. Ranks that have one list of events in common have one list of numbers."""
    lists = {id(mine): mine for mine in events.values()}
    having = Counter(map(id, events.values()))
    roles: dict[tuple[Hashable, ...], int] = {}
    for key, mine in lists.items():
        for role in {event.role for event in mine}:
            roles[role] = roles.get(role, 0) + having[key]
    own = {role[:-1] for role, ranks in roles.items() if ranks == 1}
    numbers: dict[Hashable, int] = {}
    number_of = {role: numbers.setdefault(role[:-1] if role[:-1] in own else role, len(numbers)) for role in roles}
    numbered = {key: [number_of[event.role] for event in mine] for key, mine in lists.items()}
    return {rank: numbered[id(mine)] for rank, mine in events.items()}


def _from_common_start(case: Case, programs: dict[int, RankProgram]) -> dict[int, list[Event]]:
    """What each of them issued. Rings forget at different places: then all begin with a collective that all of them
    still have; {} where there is none."""
    events: dict[int, list[Event]] = {}
    shared: dict[Hashable, list[Event]] = {}
    for rank, program in programs.items():
        # In a group of its own a rank waits for nobody, and may do what it likes.
        alone = frozenset(name for name, group in program.groups.items() if len(group.members) == 1)
        issued = case.events.of(rank)
        if (id(issued), alone) not in shared:
            shared[id(issued), alone] = [e for e in issued if e.group not in alone] if alone else issued
        events[rank] = shared[id(issued), alone]
    if not any(program.journal.forgotten for program in programs.values()):
        return events
    places: dict[int, dict[Hashable, int]] = {}
    for mine in events.values():
        if id(mine) not in places:
            indexed = reversed(list(enumerate(mine)))
            places[id(mine)] = {(e.role, e.number): n for n, e in indexed if not e.is_message}
    starts = [next(iter(reversed(at)), None) for at in places.values()]
    start = next((s for s in starts if s is not None and all(s in at for at in places.values())), None)
    if start is None:
        return {}
    begun = {id(mine): mine[places[id(mine)][start] :] for mine in events.values()}
    return {rank: begun[id(mine)] for rank, mine in events.items()}
