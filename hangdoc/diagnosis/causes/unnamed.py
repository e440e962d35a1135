"""Verdicts without a code of the catalogue: culprits and lines where they are known, and an honest 'cause unknown'.

Their order comes after that of every rule that has a code.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangdoc.diagnosis.causes.deciding import condition_text, values_text
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, doing, last_issued, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.candidates import diverging_guards
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import (
    AllArrived,
    Blame,
    Explanation,
    HeldUpUnseen,
    Nothing,
    OutsideWait,
    UnseenMessages,
)
from hangdoc.diagnosis.state.activity import UNSEEN
from hangdoc.diagnosis.state.unseen import hidden_text
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.message import Does, Message, Ranks, Verb, joined, sentence
from hangdoc.model.wording import single_spaced


@cause(explains=HeldUpUnseen, order=1000)
def held_up_unseen(case: Case, blame: Blame[HeldUpUnseen]) -> Finding:
    """The ranks that were seen only wait, or failed because a peer left: the reason is where nobody has looked."""
    hidden, seen = tuple(sorted(case.hidden)), tuple(sorted(case.seen))
    if case.job.mode == "log":
        return _only_its_stack(case, seen, hidden)
    return Finding(
        "",
        joined(sentence(where_they_wait(case, seen)), sentence(hidden_text(case.job, hidden)), between=" "),
        "what holds them up is with the ranks that were not seen, so the reason is open",
        ["look at ", Ranks(hidden), " as well: `hangdoc attach PID` where ", Verb(hidden, "it runs", "they run")],
    )


def _take(hidden: Iterable[int]) -> Message:
    """How to get the stacks that are not here."""
    whose: Message = Ranks.of(hidden) if hidden else "the other ranks"
    return ["take the stacks of ", whose, " as well (`py-spy dump --pid PID`), and give `hangdoc diagnose` all of them"]


def _only_its_stack(case: Case, seen: tuple[int, ...], hidden: tuple[int, ...]) -> Finding:
    """What the ranks wait in whose stacks are here, where those of the others would tell more."""
    others = hidden_text(case.job, hidden) or "the stacks of the other ranks are not here"
    several = len({(a.where.file, a.where.line) for r in seen if (a := case.activities[r]).where is not None}) > 1
    return Finding(
        "",
        joined(sentence(where_they_wait(case, seen)), sentence(others), between=" "),
        "they are at different lines; whether one of them left the order or a rank whose stack is not here, is open"
        if several
        else "a stack shows what its own rank waits in, and not which rank it waits for, so the reason is open",
        _take(hidden),
    )


@cause(explains=Nothing, order=1005)
def waits_that_stacks_leave_open(case: Case, blame: Blame[Nothing]) -> Finding | None:
    """Pasted stacks that show no rank in a call of which another one is missing."""
    if case.job.mode != "log":
        return None
    return Finding(
        "",
        sentence(where_they_wait(case, tuple(sorted(case.seen)))),
        "whether one of them waits for another, these stacks do not show",
        "`py-spy dump --native --pid PID` on each rank shows what native code waits in",
    )


@cause(explains=Nothing, order=1010)
def waits_on_separate_stores(case: Case, blame: Blame[Nothing]) -> Finding | None:
    """No rank is missing, and yet all wait on the store for the others to join."""
    if any(a.kind != ActivityKind.STORE_WAIT for a in case.activities.values()):
        return None
    first = case.activities[min(case.activities)]
    counted = all(snapshot.identity != "order" for snapshot in case.ranks.values())
    who = "all ranks are there and" if counted else "all ranks that were found"
    return Finding(
        "",
        sentence(
            [f"{who} wait for each other in ", doing(first)],
            "none of them is missing" if counted else "",
        ),
        "they may be waiting on different stores, or on one that holds the keys of an earlier run (a file:// that was "
        "left over, a port that another job uses)",
        "compare MASTER_ADDR, MASTER_PORT and init_method of the ranks, and begin with a fresh file or port",
    )


@cause(explains=Nothing, order=1020)
def launcher_failed(case: Case, blame: Blame[Nothing]) -> Finding | None:
    """Every rank ended well, and the command did not."""
    if not case.job.ended:
        return None
    return Finding(
        "",
        f"The command ended with {_status_text(case.job.exit_status)}, although every rank had ended well.",
        "the launcher failed after its ranks, or an earlier job that it had started did",
        "read the command's own last lines",
    )


def _status_text(status: int | None) -> str:
    return f"signal {-status}" if status is not None and status < 0 else f"status {status}"


@cause(explains=Nothing, order=1030)
def each_by_itself(case: Case, blame: Blame[Nothing]) -> Finding:
    """Of no rank it was seen that it waits for another."""
    verdict = sentence(where_they_wait(case, tuple(sorted(case.seen))))
    return Finding("", verdict, "which rank waits for which could not be seen", "")


@cause(explains=AllArrived, order=1040)
def arrived_without_a_past(case: Case, blame: Blame[AllArrived]) -> Finding:
    """All are in one call, and no history shows where they diverged. With a history, it is HD602."""
    if case.job.mode == "log":
        return _alike_in_their_stacks(case)
    return Finding(
        "",
        "All ranks wait in the same call, and it does not complete.",
        "no call sequences could be read, and stacks alone do not show where the ranks diverged",
        case.to_see_history,
    )


def _alike_in_their_stacks(case: Case) -> Finding:
    """The ranks whose stacks are here are in one call: nobody is seen elsewhere, and more is not seen."""
    seen = tuple(sorted(case.seen))
    whole = not case.hidden and case.job.world_size == len(seen)
    missing = "" if whole else "a rank whose stack is not here may be missing from the call; else "
    return Finding(
        "",
        sentence(where_they_wait(case, seen)),
        f"{missing}they diverged in an earlier round, or the device or the network does not finish the call: stacks do "
        "not show which",
        [
            _take(case.hidden) if not whole else "give the job's log as well",
            "; `hangdoc watch` keeps the calls next time",
        ],
    )


@cause(explains=UnseenMessages, order=1050)
def unseen_messages(case: Case, blame: Blame[UnseenMessages]) -> Finding:
    """All are in a send or recv, and the stacks do not show with whom."""
    return Finding(
        "",
        "All ranks wait for messages of each other, and none arrives.",
        "every rank waits in a send or recv; the stacks do not show with which peer",
        "look for a message whose partner is elsewhere, or whose order differs from its partner's"
        if any(rank.journal is not None for rank in case.job.ranks)
        else case.to_see_history,
    )


@cause(explains=Explanation, order=1060)
def no_rank_to_blame(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """There is no culprit: a command failed whose ranks, as far as they were seen, did not."""
    if blame.culprits:
        return None
    seen = tuple(sorted(case.seen))
    return Finding(
        "",
        "The data does not show which rank failed first.",
        ["no failure of ", Ranks(seen), " was seen"] if seen else "no rank was seen",
        ["read the logs of ", Ranks.of(case.hidden)] if case.hidden else "",
    )


@cause(explains=Explanation, order=1070)
def culprit_unseen(case: Case, blame: Blame[Explanation]) -> Finding | None:
    """No source showed anything of the culprits."""
    if any(case.ranks[rank].identity != UNSEEN for rank in blame.culprits):
        return None
    what: Message = [Does(blame.culprits, "was", "were"), " not found"]
    why = "no process says that it is this rank; one that has not joined yet, has ended or is on another machine "
    why += "does not say so"
    fix = "look at the other processes of the job (`py-spy dump --pid PID`)"
    return Finding("", _with_waiting(case, blame, what), why, fix)


@cause(explains=OutsideWait, order=1075)
def missing_from_its_dump(case: Case, blame: Blame[OutsideWait]) -> Finding | None:
    """Ranks that have not issued what others wait for, and in whose dumps nothing is under way."""
    culprits = blame.culprits
    if case.job.mode != "dump" or any(case.activities[r].kind != ActivityKind.NOT_VISIBLE for r in culprits):
        return None
    waits = [w for w in case.graph.waits if not set(w.on).isdisjoint(culprits)]
    fronts = case.streams.fronts
    wait = min(waits, key=lambda w: fronts[w.waiter].created_ns if w.waiter in fronts else 0, default=None)
    if wait is None:
        return None
    stuck = case.activities[wait.waiter]
    alike = [w.waiter for w in waits if _same_call(case.activities[w.waiter], stuck)]
    owed: Message = [_owed(stuck), ", in which ", Ranks.of(alike), " waited"]
    if stuck.kind in MESSAGES:
        peers = [w.waiter for w in waits if case.activities[w.waiter].kind == stuck.kind]
        owed = [_owed_message(stuck, Ranks.of(sorted({*peers}))), ", which waited for ", "them" if peers[1:] else "it"]
    return Finding(
        "",
        sentence([Does(culprits, "has", "have"), " not issued ", owed, at(stuck.where)]),
        joined(
            ["no call of ", Ranks(culprits), " was under way when the dump was written"],
            last_issued(case, culprits[0]) or "what else it did, a dump does not show",
        ),
        ["look at the log of ", Ranks(culprits), ", or attach to it where it still lives (`hangdoc attach PID`)"],
    )


def _same_call(one: Activity, other: Activity) -> bool:
    """True if both ranks wait in one call."""
    return (one.kind, one.group, one.members, one.sequence) == (other.kind, other.group, other.members, other.sequence)


def _owed(stuck: Activity) -> Message:
    """What the culprit has not issued: the call in which ``stuck`` waits, or the other side of its message."""
    if stuck.kind in MESSAGES:
        return _owed_message(stuck, Ranks((stuck.rank,)))
    return single_spaced(stuck.text)


def _owed_message(stuck: Activity, peers: Ranks) -> Message:
    """'a send to rank 1', 'the recvs from ranks 1 and 6'."""
    op, way = ("send", "to") if stuck.kind == ActivityKind.RECV else ("recv", "from")
    return [f"the {op}s {way} " if len(peers.ranks) > 1 else f"the {op} {way} ", peers]


def _with_waiting(case: Case, blame: Blame[Explanation], what: Message) -> Message:
    return sentence(what, where_they_wait(case, others_of(case, blame)))


def diverged_now(case: Case, blame: Blame[Explanation], others: tuple[int, ...]) -> Message:
    """The condition by which the culprits are now where the others are not; '' where none can be seen."""
    if not others:
        return ""
    stacks = (case.activities[blame.culprits[0]].stack, case.activities[others[0]].stack)
    points = diverging_guards(case.sources, case.values, stacks, (blame.culprits, others))
    now = [p for p in points if not p.uneven][:1]
    if not now:
        return ""
    sides = (blame.culprits, others_of(case, blame))
    return [condition_text(case, now, sides), values_text(case, now[0], sides)]
