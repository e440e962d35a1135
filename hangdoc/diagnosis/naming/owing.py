"""What the others wait for and the culprits have not given: which thing, where it is waited for, and where the program
gives it.

Example: ranks 0 and 2 wait in `store.get(key)` at 32, and rank 1 in a barrier → the key 'server/1', waited for at 32,
set at 28, a line that rank 1 has never run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hangdoc.diagnosis.bounds import LISTED
from hangdoc.diagnosis.causes.phrases import at
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.frames.stacks import same_line
from hangdoc.diagnosis.hypotheses.suspects import Ranks as RankSet
from hangdoc.diagnosis.needs.need import AMONG_RANKS, Need, NeedKind
from hangdoc.diagnosis.needs.needs import Needs
from hangdoc.diagnosis.needs.resources import naming_it, providing
from hangdoc.diagnosis.needs.shared import came_to
from hangdoc.diagnosis.program.places import Place as Site
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.message import Joined, Message, Place, Ranks, Verb
from hangdoc.model.process import Frame


@dataclass(frozen=True, slots=True)
class Owed:
    """One thing that one side waits for. ``culprits``: those who have not given it."""

    kind: NeedKind
    name: str
    """Which one: the keys, or the object as the program calls it; '' where that is not known."""
    waiting: RankSet
    where: Frame | None
    sites: tuple[Site, ...] = ()
    """The lines of the program that give it, by the name of the same object; () where none is known to."""
    culprits: RankSet = ()
    by_name: bool = True
    """False of lines that are only known to give such a thing."""
    came: bool | None = None
    """True if all culprits have run one of these lines before, False if none of them has run any; else None."""
    asked: bool = False
    """Whoever is to answer waits for another request."""
    holds: bool = False
    """The kernel says that one of the culprits holds it."""
    answers: bool = False
    """A thread of the culprits is to answer."""

    @property
    def is_message(self) -> bool:
        """True of one that others send, or wait to receive."""
        return self.kind in _MESSAGES


def owed_by(case: Case, needs: Needs, culprits: RankSet, need: Need) -> Owed | None:
    """What the culprits owe of that need; None of calls, which say it themselves."""
    waiter = need.waiter.rank
    seen, where = needs.seen(waiter), case.activities[waiter].where
    there = {rank: activity.where for rank, activity in sorted(case.activities.items()) if rank not in culprits}
    waiting = tuple(rank for rank, its in there.items() if rank == waiter or (its and where and same_line(its, where)))
    if need.kind in AMONG_RANKS:
        is_theirs = need.kind in _MESSAGES and case.activities[waiter].peer in culprits
        return Owed(need.kind, "", (waiter,), where, culprits=culprits) if is_theirs else None
    asked = any(each.asked for each in needs.shared if waiter in each.waiting)
    chain = case.chains.get(waiter)
    answers = chain is not None and chain.last.rank in culprits
    if seen is None:
        kind = need.kind if need.kind in _SEEN_BY_CALL else NeedKind.PREDICATE
        return Owed(kind, "", waiting, where, culprits=culprits, asked=asked, answers=answers)
    keys = dict.fromkeys(key for rank in waiting for key in needs.keys(rank))
    name = " and ".join(keys) if keys else next(iter(seen.objects), "")
    by_name = naming_it(needs.program, seen)
    sites = by_name or providing(needs.program, seen)
    kind = seen.resource.need
    held = not {*needs.holders(waiter)}.isdisjoint(culprits)
    if (
        kind == NeedKind.LOCK
        and not held
        and all(_came(case, needs.program, (rank,), seen.lines) is False for rank in culprits)
    ):
        kind = NeedKind.PREDICATE  # who never took it has nothing to release
    # Of what they wait for themselves, it is others who give it; but each may set a key.
    came = _came(case, needs.program, culprits, sites) if waiter not in culprits or kind == NeedKind.KEY else None
    return Owed(
        kind, name, waiting, where, sites, culprits, bool(by_name), came, asked, held and kind == NeedKind.LOCK, answers
    )


_MESSAGES = (NeedKind.RECEIVE, NeedKind.SEND)
_SEEN_BY_CALL = (NeedKind.KEY, NeedKind.ANSWER, NeedKind.LOCK)
"""What the call itself shows, whatever stands at the line."""


def _came(case: Case, program: Program, ranks: RankSet, sites: tuple[Site, ...]) -> bool | None:
    ran = [[came_to(case, program, rank, site) for site in sites] for rank in ranks] if sites else []
    if ran and all(True in each for each in ran):
        return True
    return False if ran and all(came is False for each in ran for came in each) else None


_DONE: Mapping[NeedKind, tuple[str, str]] = {
    NeedKind.KEY: ("set", "the store key"),
    NeedKind.LOCK: ("released", "the lock"),
    NeedKind.EVENT: ("set", "the event"),
}
"""What is done with something that has a name, and what it is called without one."""
_WHAT: Mapping[NeedKind, tuple[str, str]] = {
    NeedKind.ITEM: ("sent what ", " for"),
    NeedKind.RECEIVE: ("sent what ", " for"),
    NeedKind.SEND: ("received what ", " to send"),
    NeedKind.ANSWER: ("done what ", " for"),
    NeedKind.COUNT: ("done what ", " for"),
    NeedKind.FILE: ("written what ", " for"),
    NeedKind.ABSENCE: ("removed what ", " to be gone"),
    NeedKind.SPACE: ("taken what ", " to be taken"),
}
"""The like of a thing that has none: 'sent what ranks 0 and 1 wait for at train.py:9'."""
_GIVEN: Mapping[NeedKind, tuple[str, str]] = {
    NeedKind.KEY: ("such a key", "set"),
    NeedKind.LOCK: ("it", "released"),
    NeedKind.EVENT: ("it", "set"),
    NeedKind.ITEM: ("it", "sent"),
    NeedKind.ANSWER: ("that", "done"),
    NeedKind.COUNT: ("that", "done"),
    NeedKind.FILE: ("it", "written"),
    NeedKind.ABSENCE: ("it", "removed"),
    NeedKind.SPACE: ("it", "taken"),
}


def not_given(owed: Owed) -> Message:
    """'has not set shards/3 in the store, for which ranks 0 and 1 wait at train.py:9 f()', to follow the culprits."""
    waiting, wait = Ranks(owed.waiting), Verb(owed.waiting, "waits", "wait")
    has_not: Message = [Verb(owed.culprits, "has", "have"), " not "]
    if owed.holds:
        holds = Verb(owed.culprits, "holds", "hold")
        return [holds, " the lock for which ", waiting, " ", wait, at(owed.where)]
    if owed.kind in _DONE:
        done, thing = _DONE[owed.kind]
        return [has_not, f"{done} ", _named(owed) or thing, ", for which ", waiting, " ", wait, at(owed.where)]
    if owed.kind == NeedKind.ANSWER and owed.answers:
        return [has_not, "given the answer that ", waiting, " ", wait, " for", at(owed.where)]
    if owed.asked:
        get = Verb(owed.waiting, "gets", "get")
        return [has_not, "made a call without which ", waiting, " ", get, " no answer", at(owed.where)]
    before, after = _WHAT.get(owed.kind, ("done what ends the wait of ", ""))
    return [has_not, before, waiting, [" ", wait, after] if after else "", at(owed.where)]


def _named(owed: Owed) -> str:
    if not owed.name or owed.name in ("store", "_store"):
        return ""
    return f"{owed.name} in the store" if owed.kind == NeedKind.KEY else f"`{owed.name}`"


def provided_at(owed: Owed) -> Message:
    """'such a key is set at train.py:28, where rank 1 has never come'; '' where no line is known to."""
    if not names_lines(owed) or owed.kind not in _GIVEN:
        return ""
    what, given = _GIVEN[owed.kind]
    whose: Message = [", where ", Ranks(owed.culprits), " ", Verb(owed.culprits, "has", "have")]
    came = {True: " come before", False: " never come", None: ""}[owed.came]
    return [f"{what} {'is' if is_sure(owed) else 'may be'} {given} at ", lines_of(owed), [whose, came] if came else ""]


def names_lines(owed: Owed) -> bool:
    """True if few lines are known to give it, or such things."""
    return 0 < len(owed.sites) <= LISTED


def is_sure(owed: Owed) -> bool:
    """True if one line alone names the same object: of several, some may name another that is called so."""
    return owed.by_name and len(owed.sites) == 1


def lines_of(owed: Owed) -> Message:
    """'train.py:28 or train.py:31'."""
    return Joined([Place(*site) for site in owed.sites], " or ")


def lines_shown(owed: Owed) -> tuple[tuple[Frame, Message], ...]:
    """The line of the wait, and the few that end it, each with what it does."""
    wait: Message = [Ranks(owed.waiting), ": ", Verb(owed.waiting, "waits", "wait"), " here"]
    at_wait = [(owed.where, wait)] if owed.where is not None and owed.waiting else []
    named = names_lines(owed) and owed.by_name and owed.kind in _GIVEN
    what, given = _GIVEN.get(owed.kind, ("", ""))
    may = "is" if is_sure(owed) else "may be"
    sites = [(Frame(*site, ""), f"{what} {may} {given} here") for site in owed.sites] if named else []
    return (*at_wait, *sites)
