"""Ranks that exchange messages in pairs, round by round: which of them has chosen another partner than its own.

Who has gone past a round had its partner in it. Of those that are still in the earliest round, one that names a rank
which is past it, while another one in that round names it, has chosen wrongly. Example: ranks 0 and 2 are in round 7,
all others in later ones, rank 0 has chosen rank 2, and rank 2 has chosen rank 4 → rank 2.

A rank that has gone past it by a message meant for another round has its place in the histories: of the choices of all
rounds, those that cannot both be right share the rank that chose wrongly. Example: in round 5, rank 0 has chosen 3,
rank 3 has chosen 0, rank 1 has chosen 2, and rank 2 has chosen 3 → rank 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.condition.drawn_alone import chooses_by
from hangdoc.diagnosis.condition.last_choice import last_partner
from hangdoc.diagnosis.condition.last_round import rounds_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation
from hangdoc.diagnosis.frames.stacks import Site, site_of, user_stack
from hangdoc.diagnosis.source.message_calls import issued_peers
from hangdoc.diagnosis.source.syntax import enclosing_function
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, Confidence
from hangdoc.model.operations import message_way
from hangdoc.model.wording import ranks_text

_FEWEST = 4
"""Ranks, from which on pairs can be chosen in more than one way, and one left over tells; chosen by hand."""


@dataclass(frozen=True, slots=True)
class OddPartner(Explanation):
    """``partners``: rank → the one that it has chosen, of those that are still in the earliest round; or, in round
    ``number`` of their histories, or in an ``earlier`` one, of all that are known to have been in it."""

    partners: dict[int, int]
    number: int = 0
    earlier: bool = False


def odd_partner(case: Case) -> Blame[OddPartner] | None:
    """The ranks that name a partner who is past their round, while others in that round name them."""
    activities = list(case.activities.values())
    if len(activities) < _FEWEST or any(a.kind not in MESSAGES or a.peer is None for a in activities):
        return None
    if len({site_of(user_stack(a.stack)) for a in activities}) > 1 or not all(
        is_both_ways(case, a) for a in activities
    ):
        return None
    rounds = _rounds(case, activities)
    if rounds is None:
        return None
    return (
        _left_over(activities, rounds) or _odd_in_histories(case, activities) or _odd_as_held(case, activities, rounds)
    )


def _left_over(activities: list[Activity], rounds: dict[int, list[int]]) -> Blame[OddPartner] | None:
    """By those that are still in the earliest round."""
    first = min(rounds.values())
    partners = {a.rank: a.peer for a in activities if rounds[a.rank] == first and a.peer is not None}
    chosen = set(partners.values())
    odd = tuple(sorted(r for r, peer in partners.items() if peer not in partners and r in chosen))
    if not odd or set(partners) - set(odd) != {r for r, peer in partners.items() if peer in odd}:
        return None
    if not all(_agree({r: p for r, p in named.items() if r not in odd}) for named in _by_round(activities, rounds)):
        return None
    sure = f"every rank but {ranks_text(odd)} has chosen a partner that is in its round"
    return Blame(OddPartner(partners), odd, proved=True, confidence=Confidence.LIKELY, sure=sure)


def _odd_in_histories(case: Case, activities: list[Activity]) -> Blame[OddPartner] | None:
    """By the choices of all rounds, where the histories show them."""
    chosen = {a.rank: _chosen(case, a.rank) for a in activities} if case.has_history else {}
    if not chosen or not all(chosen.values()):
        return None
    rounds = [
        {rank: peers[number] for rank, peers in chosen.items() if number < len(peers)}
        for number in range(max(map(len, chosen.values())))
    ]
    odd = odd_one(rounds)
    if odd is None or not _agree(rounds[0]):  # of exchanges with all others in turn, one round has no pairs
        return None
    number = next(number for number, partners in enumerate(rounds) if not _agree(partners))
    sure = f"in every round, the choices of all ranks but {ranks_text((odd,))} agree"
    found = OddPartner(rounds[number], number + 1)
    return Blame(found, (odd,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def _odd_as_held(case: Case, activities: list[Activity], rounds: dict[int, list[int]]) -> Blame[OddPartner] | None:
    """By the choices of this round and the one before, where partners are drawn and no history shows more.

    Example: rank 1 is in round 4 and has chosen 2, rank 2 is in round 5 and has chosen 0, after 3; rank 0 is in round
    6, and had chosen 3 → rank 2, which crosses both.
    """
    if case.has_history or not chooses_by(case, activities[0].rank):
        return None
    held: dict[tuple[int, ...], dict[int, int]] = {}
    for each in activities:
        *outer, now = rounds[each.rank]
        last = last_partner(case, each, now)
        if each.peer is not None:
            held.setdefault((*outer, now), {})[each.rank] = each.peer
        if last is not None:
            held.setdefault((*outer, now - 1), {})[each.rank] = last
    known = [held[number] for number in sorted(held)]
    odd = odd_one(known)
    if odd is None:
        return None
    partners = next(each for each in known if odd in each and not _agree(each))
    sure = f"of the partners that the frames hold, those of rank {odd} alone cross the others'"
    found = OddPartner(partners, earlier=True)
    return Blame(found, (odd,), proved=True, confidence=Confidence.LIKELY, sure=sure)


def odd_one(rounds: list[dict[int, int]]) -> int | None:
    """The only rank that each two choices which cannot both be right have in common; None where there is none.

    ``rounds``: rank → the partner that it has chosen, for each round. Example: [{0: 3, 1: 2, 2: 3, 3: 0}] → 2.
    """
    common: set[int] | None = None
    for pair in (pair for partners in rounds for pair in _crossed(partners)):
        common = pair if common is None else common & pair
        if not common:
            return None
    return common.pop() if common is not None and len(common) == 1 else None


def _crossed(partners: dict[int, int]) -> Iterator[set[int]]:
    """Each two ranks whose choices of one round cannot both be right: one chose the other, which chose a third one; or
    both chose the same one. Of many that chose the same one, each with the first and the last before it."""
    choosing: dict[int, tuple[int, int]] = {}
    for rank, peer in partners.items():
        if partners.get(peer, rank) != rank:
            yield {rank, peer}
        before = choosing.get(peer, ())
        yield from ({rank, other} for other in before)
        choosing[peer] = (before[0] if before else rank, rank)


def _chosen(case: Case, rank: int) -> list[int]:
    """The partners of the rank, round by round; [] where its history does not show an exchange with one in each."""
    journal = case.ranks[rank].journal
    if journal is None or not journal.has_all_messages or not journal.point_to_points:
        return []
    ways: dict[str, list[int]] = {}
    for message in journal.point_to_points:
        ways.setdefault(str(message_way(message.op)), []).append(message.peer)
    both = list(ways.values())
    return both[0] if len(both) == 2 and both[0] == both[1] else []


def _by_round(activities: list[Activity], rounds: dict[int, list[int]]) -> list[dict[int, int]]:
    """For each round, rank → the partner that it has chosen in it."""
    found: dict[tuple[int, ...], dict[int, int]] = {}
    for each in activities:
        if each.peer is not None:
            found.setdefault(tuple(rounds[each.rank]), {})[each.rank] = each.peer
    return list(found.values())


def _agree(partners: dict[int, int]) -> bool:
    """True if these choices of one round can all be right: no two ranks have chosen the same one, and who was chosen
    has not chosen another one."""
    chosen = list(partners.values())
    return len(set(chosen)) == len(chosen) and all(partners.get(peer, rank) == rank for rank, peer in partners.items())


def _rounds(case: Case, activities: list[Activity]) -> dict[int, list[int]] | None:
    """Rank → its round of the exchange: by the messages that it has issued, or by the counters of the loops around
    it."""
    if case.has_history:
        issued = {a.rank: _issued(case, a.rank) for a in activities}
        return {rank: [each] for rank, each in issued.items() if each} if all(issued.values()) else None
    found: dict[int, list[int]] = {}
    for activity in activities[1:]:
        pair = rounds_of(case, activities[0].rank, activity.rank)
        if pair is None:
            return None
        found[activities[0].rank], found[activity.rank] = pair
    return found


def _issued(case: Case, rank: int) -> int:
    """How many messages the rank has issued from the line from which it issued its last one; 0 where some of them are
    forgotten."""
    journal = case.ranks[rank].journal
    if journal is None or not journal.has_all_messages or not journal.point_to_points:
        return 0
    sites: list[Site] = [site_of(journal.stack(message.stack)) for message in journal.point_to_points]
    return sites.count(sites[-1])


def is_both_ways(case: Case, activity: Activity) -> bool:
    """True if the rank has issued a send to its partner and a recv from it, and nothing else in that round."""
    journal = case.ranks[activity.rank].journal
    if journal is not None and journal.is_history:
        pending = {(m.op, m.peer) for m in journal.point_to_points if not m.completed}
        return pending == {("send", activity.peer), ("recv", activity.peer)}
    frame = next(iter(user_stack(activity.stack)), None)
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    if frame is None or tree is None:
        return False
    given = issued_peers(enclosing_function(tree, frame.line))
    return len({message_way(kind) for kind, _ in given}) == len(given) > 1 and len({peer for _, peer in given}) == 1
