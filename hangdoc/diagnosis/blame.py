"""Who is to blame? The minimum repair first; then processes that are gone or held; then the graph's roots.

A proved divergence outranks a root of the graph: a rank asleep in correct code is not guilty. Ties between
repairs are broken by a rank guard, then by the ranks' own history; what remains is said to be only possible.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from hangdoc.diagnosis.activity import waits_for_a_key
from hangdoc.diagnosis.alignment import Alignment, all_repairs, cheapest, crossed_before, repairs
from hangdoc.diagnosis.asking import cannot_be_answered, waits_for_a_person
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.creations import missing_creations
from hangdoc.diagnosis.culprit import Blame
from hangdoc.diagnosis.cycle import cycle
from hangdoc.diagnosis.disagreement import Disagreement, disagreement
from hangdoc.diagnosis.inferred import apart, behind_rooted, beside_unnamed, elsewhere_standing, from_stacks
from hangdoc.diagnosis.meeting import meeting_places
from hangdoc.diagnosis.moment import in_its_group, settle
from hangdoc.diagnosis.replay import completes, completing
from hangdoc.diagnosis.sequences import END, GroupHistory, Token, merged, met_unlike
from hangdoc.diagnosis.standing import is_behind
from hangdoc.diagnosis.threads import UNTOLD
from hangdoc.diagnosis.ties import choose, made_later, retell, told_ranks
from hangdoc.diagnosis.unmet import odd_message, partner, unseen_partner
from hangdoc.diagnosis.unseen import all_on_this_host, nobody_seen, only_seen, told_hidden
from hangdoc.diagnosis.waits import IMMOVABLE

_MOST_GROUPS = 8
_MOST_JOINED = 3
_MOST_NAMED = 8


def blame(case: Case) -> Blame:
    """Decide who must change, and how sure that is. A rank that was not seen is never blamed."""
    return only_seen(_blame(case), case.hidden, case.seen)


def _blame(case: Case) -> Blame:
    created = missing_creations(case)
    if created:
        found = _decide(case, created, proved=True)
        if found.confidence == "certain" and found.gap is not None and found.gap.token.frame is None:
            sure = f"{found.sure}; the line that made the group could not be seen"
            return replace(found, confidence="likely", sure=sure)
        if found.confidence == "certain" and not case.programs:
            return replace(found, confidence="likely", sure="the groups of all ranks seen, their call sequences not")
        return found
    diverged = _divergence(case)
    # Stacks alone show a call that is missing before they show its root; a root that differs explains more.
    settled = diverged is not None and diverged.proved and case.programs
    differing = None if settled else _disagreement(case)
    if diverged is not None and differing is None and (diverged.proved or not case.graph.roots):
        return diverged
    immovable = tuple(sorted(r for r in case.graph.roots if case.activities[r].kind in IMMOVABLE))
    if immovable:
        how = "likely" if _ended_in_order(case, immovable) else _how_sure_of_the_end(case, immovable)
        proved = not _looked_at(case, immovable)
        return Blame("gone", immovable, proved=proved, confidence=how, sure=_seen_states(case, immovable))
    if differing is not None:
        return differing
    if case.graph.stuck:
        return diverged or odd_message(case) or partner(case) or _across_groups(case) or _standing(case) or cycle(case)
    unseen = unseen_partner(case)
    if unseen is not None:
        return unseen
    if case.graph.roots:
        roots = _seen_roots(case)
        if not roots:
            return nobody_seen()
        if not case.programs and all(case.activities[r].text == UNTOLD for r in roots):
            # It may as well be a collective, or a message, of those that wait.
            waiting = tuple(sorted({w.waiter for w in case.graph.waits} - set(roots)))
            return Blame("outside", roots, (waiting,) if waiting else (), sure="what they wait in could not be seen")
        # The others wait for ranks that were not seen as well: what these do may explain the rest.
        hidden = tuple(sorted(case.graph.roots & case.hidden))
        sure = "; ".join(filter(None, (_how_many_wait(case), told_hidden(case.job, hidden))))
        how = "possible" if hidden else "likely"
        return _unless_gone_by(case, Blame("outside", roots, confidence=how, sure=sure))
    if any(a.kind == "in-collective" for a in case.activities.values()):
        if not case.programs:
            return Blame("arrived", sure="all stand in the same call; what parted them lies before, out of sight")
        return Blame("arrived", confidence="likely", sure="every rank has entered the same call")
    if case.hidden and any(case.activities[r].kind in ("store-wait", "send", "recv") for r in case.seen):
        return nobody_seen()
    left = tuple(sorted(set(case.activities) - case.ended))
    if case.ended and left and all(waits_for_a_key(case.activities[rank]) for rank in left):
        sure = "the others wait for a store key; who was to set it cannot be seen"
        return Blame("gone", tuple(sorted(case.ended)), (left,), proved=True, sure=sure)
    if case.ended and left:
        return Blame("outside", left, confidence="likely", sure="the other ranks have ended")
    separate = _separate_meetings(case)
    if separate is not None:
        return separate
    still = tuple(sorted(r for r, a in case.activities.items() if a.kind in IMMOVABLE))
    if still:
        return Blame(
            "gone",
            still,
            proved=not _looked_at(case, still),
            confidence=_how_sure_of_the_end(case, still),
            sure=_seen_states(case, still),
        )
    if case.activities and all(a.kind in ("send", "recv") and not a.moving for a in case.activities.values()):
        return Blame("messages", proved=True, sure="which rank each message is for, or from, could not be seen")
    asking = tuple(r for r in sorted(case.activities) if waits_for_a_person(case, r) or cannot_be_answered(case, r))
    if asking:
        return Blame("outside", asking, confidence="likely", sure="no rank waits for another")
    return Blame("nothing", confidence="likely", sure="no rank waits for another")


def _seen_roots(case: Case) -> tuple[int, ...]:
    """The ranks that were seen of those that the others wait for. A message may be to or from one that was not."""
    open_ended = ("send", "recv") if case.hidden else ()
    return tuple(sorted(r for r in case.graph.roots & case.seen if case.activities[r].kind not in open_ended))


def _unless_gone_by(case: Case, found: Blame) -> Blame:
    """Where most ranks wait at one place by hand, on the store or by polling, those who are elsewhere may have gone by
    it: then they are the ones to blame."""
    waiting = tuple(sorted({w.waiter for w in case.graph.waits} - set(found.culprits)))
    stand = {case.activities[r].where for r in found.culprits}
    by_hand = all(case.activities[r].kind in ("sleeping", "store-wait") for r in found.culprits)
    if not by_hand or len(stand) > 1 or len(found.culprits) <= len(waiting) or not waiting:
        return found
    sure = f"{told_ranks(waiting)} may have gone by what the others wait for"
    return replace(found, alternatives=(waiting,), confidence="possible", sure=sure)


def _separate_meetings(case: Case) -> Blame | None:
    """Ranks that wait for the others where the others are not."""
    sides = sorted(meeting_places(case).values(), key=lambda ranks: (len(ranks), ranks[0] == 0))
    if len(sides) < 2:
        return None
    odd = tuple(sorted(rank for ranks in sides[:-1] for rank in ranks))
    tie = len(sides[0]) == len(sides[-1])
    return Blame(
        "apart",
        odd,
        (tuple(sides[-1]),) if tie else (),
        proved=True,
        confidence="possible" if tie else "likely",
        sure="the address that each rank waits at",
    )


def _ended_in_order(case: Case, ranks: tuple[int, ...]) -> bool:
    """Did they end with status 0, and does no collective that they have not issued, nor the store, wait for them?
    Whatever else others wait for may be one call too many."""
    ends = [case.ranks[r].exit for r in ranks]
    needed = any(
        case.activities[w.waiter].kind == "store-wait"
        or (w.source == "journal" and case.activities[w.waiter].kind == "in-collective")
        for w in case.graph.waits
        if not set(w.on).isdisjoint(ranks)
    )
    return not needed and all(end is not None and end.status == 0 and not end.exception for end in ends)


def _how_many_wait(case: Case) -> str:
    waiting = len(case.graph.waits)
    return f"{waiting} ranks wait for it" if waiting > 1 else "one rank waits for it"


def _looked_at(case: Case, ranks: tuple[int, ...]) -> bool:
    """Does a debugger hold each of them? Whoever attached it may let them go on."""
    processes = [case.ranks[r].process for r in ranks]
    return all(p is not None and p.last is not None and p.last.tracer_pid for p in processes)


def _never_seen(case: Case, ranks: tuple[int, ...]) -> bool:
    """Is it only inferred of one of them that it is gone?"""
    return any(case.ranks[r].process is None for r in ranks)


def _how_sure_of_the_end(case: Case, ranks: tuple[int, ...]) -> str:
    return "likely" if _never_seen(case, ranks) and not all_on_this_host(case.job) else "certain"


def _seen_states(case: Case, ranks: tuple[int, ...]) -> str:
    if _never_seen(case, ranks):
        told = "the launcher starts every rank on this host" if all_on_this_host(case.job) else "the ranks meet here"
        return f"{told}, and no process carries {told_ranks(ranks)}"
    kinds = sorted({case.activities[r].kind for r in ranks})
    return f"seen in the process table ({', '.join(kinds)})"


# --- divergence ----------------------------------------------------------------------------------------------------


def _disagreement(case: Case) -> Blame | None:
    """All are in the same call with different arguments."""
    communicating = any(a.kind == "in-collective" for a in case.activities.values())
    found = disagreement(case) if communicating or case.graph.stuck else None
    return blame_of(found, len(found.history.blind)) if found is not None else None


def blame_of(found: Disagreement, unknown: int = 0) -> Blame:
    """The ranks that stand alone with their arguments; both sides where none is in the minority, or would not be if
    ``unknown`` members of the group did as they do."""
    sides = found.sides
    alone = len(sides) > 1 and len(sides[0]) + unknown < len(sides[-1])
    odd = tuple(sorted(r for side in sides[:-1] for r in side)) if alone else sides[0]
    return Blame(
        found.what,
        odd,
        () if alone else tuple(sides[1:]),
        proved=True,
        confidence="certain"
        if alone and found.what == "arguments" and not unknown
        else "likely"
        if alone
        else "possible",
        sure=f"the same call of {'' if unknown else 'all '}{len(found.tokens)} ranks seen"
        + (f", that of {unknown} not" if unknown else ""),
    )


def _standing(case: Case) -> Blame | None:
    """Where no history tells, compare the calls that the ranks stand in, those of the store among them."""
    for history in from_stacks(case.activities, ("in-collective", "store-wait")):
        candidates = repairs(history)
        if candidates and any(case.activities[r].kind == "store-wait" for r in history.tokens):
            return _decide(case, candidates, proved=True)
    if case.programs or any(case.activities[r].kind != "in-collective" for r in case.graph.stuck):
        return None
    # All wait, and everything else that could explain it has been looked at: what stands elsewhere does not match.
    candidates = [found for history in case.histories for found in repairs(apart(history))]
    return _decide(case, candidates, proved=True) if candidates else None


def _across_groups(case: Case) -> Blame | None:
    """Each group by itself matches, and yet they wait for each other: look at the order across the groups."""
    odd = _odd_step(case)
    if odd is not None:
        return odd
    waiting = {(a.group, a.members) for r, a in case.activities.items() if r in case.graph.stuck and a.group}
    groups = [h for h in case.histories if h.key in waiting][:_MOST_GROUPS]
    pairs = [[a, b] for i, a in enumerate(groups) for b in groups[i + 1 :]]
    found: list[list[Alignment]] = []
    for chosen in ([groups] if len(groups) > 2 else []) + pairs:
        history = merged(chosen, case.programs)
        candidates = repairs(history, case.ended) if history is not None else []
        # Two groups show only the ranks that are in both: those to blame must set everybody free.
        enough = [a for a in candidates if case.graph.dissolves(a.culprits)]
        if enough:
            return _decide(case, enough, proved=True)
        found += [candidates] if candidates else []
    if not found:
        return None
    joined = _joined(case, found)
    if joined:
        return _decide(case, joined, proved=True)
    blamed = _decide(case, found[0], proved=True)
    return replace(blamed, confidence="likely") if blamed.confidence == "certain" else blamed


def _odd_step(case: Case) -> Blame | None:
    """The only step that a rank's own order marks as odd and after whose repair everything completes, in a group in
    which some wait for one that waits elsewhere."""
    found: dict[tuple[int, ...], Alignment] = {}
    for history in case.histories if case.programs else ():
        members = case.graph.stuck & set(history.members)
        elsewhere = {r for r in members if (case.activities[r].group, case.activities[r].members) != history.key}
        for candidate in repairs(history, case.ended | elsewhere) if 0 < len(elsewhere) < len(members) else ():
            moved = settle(case, candidate)
            if moved is not candidate and completes(case.programs, case.histories, case.ended, [in_its_group(moved)]):
                found.setdefault(moved.culprits, moved)
    if len(found) != 1:
        return None
    (alignment,) = found.values()
    seen = len(alignment.history.members) - len(alignment.history.blind)
    who = told_ranks(alignment.culprits)
    sure = f"call sequences of the {seen} ranks of the group seen; {who} left a path it had taken before"
    return replace(_decide(case, [alignment], proved=True), confidence="likely", sure=sure)


def _joined(case: Case, found: list[list[Alignment]]) -> list[Alignment]:
    """Repairs of several pairs of groups that only together set everybody free; those that change fewest ranks."""
    passed: dict[tuple[int, ...], Alignment] = {}
    for parts in product(*(candidates[:_MOST_JOINED] for candidates in found[:_MOST_JOINED])):
        gaps = tuple(gap for alignment in parts for gap in alignment.gaps)
        joined = replace(parts[0], gaps=gaps, cost=sum(a.cost for a in parts))
        if joined.culprits not in passed and case.graph.dissolves(joined.culprits):
            passed[joined.culprits] = joined
    fewest = min(map(len, passed), default=0)
    return [joined for ranks, joined in passed.items() if len(ranks) == fewest]


def _divergence(case: Case) -> Blame | None:
    several = [history for history in case.histories if len(history.members) > 1]
    every = [r for r in (all_repairs(h, case.ended & set(h.members)) for h in several) if r]
    if not every:
        return None
    # Only a repair after which everything completes explains the whole, even if it is not the cheapest in its group;
    # where none does alone, the group that parted first explains the others.
    found = [cheapest(alignments) for alignments in every]
    enough: list[Alignment] = []
    for offered in (found, every) if case.programs else ():
        enough = enough or completing(case.programs, case.histories, case.ended, offered)
    candidates = enough or min(found, key=lambda group: min(a.when for a in group))
    history = candidates[0].history
    stuck = bool(case.graph.stuck & set(history.members)) or met_unlike(history)
    blamed = _decide(case, candidates, proved=stuck)
    unproven = blamed.confidence == "certain" and not enough
    return replace(blamed, confidence="likely") if unproven else blamed


def _decide(case: Case, candidates: list[Alignment], *, proved: bool) -> Blame:
    """Choose among equally cheap repairs of one history."""
    history = candidates[0].history
    chosen, tie, partings = choose(case, candidates)
    chosen = _original_calls(case, retell(case, chosen, partings))
    late, partings = made_later(case, chosen, partings)
    others = tuple(a.culprits for a in candidates if a.culprits != chosen.culprits)
    if history.inferred and (
        elsewhere := elsewhere_standing(history, chosen.culprits) or beside_unnamed(history, chosen.culprits)
    ):
        tie, others = "unbroken", tuple(dict.fromkeys((*others, *elsewhere)))
    elif history.inferred and not tie and (perhaps := behind_rooted(history, chosen.culprits)):
        tie, others = "unbroken", tuple(dict.fromkeys((*others, *perhaps)))
    elif history.inferred and not partings and _left_behind(case, chosen):
        tie, others = "unbroken", (*others, tuple(r for r in history.members if r not in chosen.culprits))
    without = {*chosen.culprits, *history.blind}
    rest = tuple(r for r in history.members if r not in without)
    if not tie and rest and _may_be_the_many(case, history, chosen, rest) and not any(p.rank_like for p in partings):
        tie, others = "unbroken", (rest,)
    confidence, sure = _how_sure(case, history, chosen.culprits, tie, proved)
    if confidence == "certain" and (own := crossed_before(chosen)) is not None:
        confidence = "likely"
        sure += f"; rank {own.rank} may have parted from them earlier, at call #{own.sequence}"
    return Blame(
        "divergence",
        chosen.culprits,
        others if tie == "unbroken" else (),
        proved,
        confidence,
        sure,
        chosen,
        tuple(partings),
        late,
    )


def _may_be_the_many(case: Case, history: GroupHistory, chosen: Alignment, rest: tuple[int, ...]) -> bool:
    """Would the culprits not be the fewer if the members that were not seen did as they do?"""
    hidden = case.hidden & set(history.members)
    return bool(hidden) and len(chosen.culprits) + len(hidden) >= len(rest)


def _left_behind(case: Case, alignment: Alignment) -> bool:
    """Do the others stand behind the call that the culprits are said to make alone? Then they have come by it."""
    gap = alignment.first
    if gap is None or gap.kind != "delete" or gap.mine is None or gap.theirs is None:
        return False
    return is_behind(case.sources, gap.theirs.stack, gap.mine.stack) == "behind"


def _original_calls(case: Case, alignment: Alignment) -> Alignment:
    """The calls as they were issued: in a merged history they carry the merged order's numbers."""

    if alignment.history.inferred:
        return alignment

    def original(token: Token) -> Token:
        program = case.programs.get(token.rank)
        return program.token(token.order) if program and token.op != END and token.order >= 0 else token

    gaps = tuple(
        replace(
            gap,
            token=original(gap.token),
            mine=original(gap.mine) if gap.mine else None,
            theirs=original(gap.theirs) if gap.theirs else None,
        )
        for gap in alignment.gaps
    )
    return replace(alignment, gaps=gaps)


def _how_sure(case: Case, history: GroupHistory, culprits: tuple[int, ...], tie: str, proved: bool) -> tuple[str, str]:
    seen = len(history.members) - len(history.blind)
    if history.inferred:
        known = f"stacks of {seen} ranks seen, their call sequences not"
        if tie == "unbroken":
            return "possible", known
        return "likely", f"{known}; {tie}" if tie else known
    whole = not history.blind and len(history.members) == len(case.ranks)
    whole = whole and not history.open
    who = (
        f"all {seen} ranks"
        if whole
        else f"{seen} ranks"
        if history.blind or history.open
        else f"the {seen} ranks of the group"
    )
    sure = f"call sequences of {who} seen"
    if history.blind:
        sure += f", {len(history.blind)} not"
    wrapped = history.first > 1
    if wrapped:
        sure += f" from call #{history.first} on"
    if tie == "unbroken":
        return "possible", sure + "; nothing tells which side is at fault"
    if tie:
        return "likely", f"{sure}; {tie}"
    if history.blind or not proved:
        return "likely", sure
    if 3 * len(culprits) > seen:
        return "likely", f"{sure}; {len(culprits)} of them went one way and {seen - len(culprits)} the other"
    return "certain", sure
