"""HD2xx: point to point."""

from __future__ import annotations

from hangdoc.diagnosis.blame.message_blame import MissingPartner, is_from_anyone, messages_sent
from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, doing, line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.unmatched import awaited_under, by_evidence, still_possible
from hangdoc.diagnosis.condition.own_peers import decided_around
from hangdoc.diagnosis.condition.way_to_message import issued_further_on, way_to_message
from hangdoc.diagnosis.condition.ways_past import around_line, loop_left, ways_past
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import user_stack
from hangdoc.diagnosis.messages.faults import skipped_by
from hangdoc.diagnosis.source.guards import loops_around
from hangdoc.diagnosis.source.loops import ways_out
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import MESSAGES, ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, conditions_in, joined, sentence
from hangdoc.model.process import Stack
from hangdoc.model.wording import single_spaced


@cause("HD202", explains=MissingPartner, order=290)
def missing_partner(case: Case, blame: Blame[MissingPartner]) -> Finding | None:
    """HD202: a recv without its send, a wrong tag or peer, one micro-batch fewer."""
    alone = case.activities[blame.culprits[0]]
    if alone.kind in MESSAGES and alone.peer is None and blame.found.skipped is None:
        return _peer_unseen(case, blame, alone)
    first = _waiter(case, blame)
    if first is None:
        return None
    peer = first.peer if first.peer is not None else blame.culprits[0]
    here, there = counts(case, first.rank, peer, first.kind)
    now, does = case.activities[peer], "sends" if first.kind == ActivityKind.RECV else "receives"
    fewer = here - there if here is not None and there is not None else 0
    decided = _decided_at(case, blame.found, first, peer)
    return Finding(
        "HD202",
        sentence(
            [
                [f"rank {peer} never {does} what rank {first.rank} waits for in {first.kind}", at(first.where)],
                [": it is ", "" if now.kind in _AT_REST else "in ", single_spaced(now.text), at(now.where)],
            ]
        ),
        joined(_passed(case, first, peer, here, there), *_on_the_way(case, blame.found, first, peer)),
        _fix(case, blame.found, first, peer, decided, fewer),
        decided_at=decided,
    )


def _fix(
    case: Case, found: MissingPartner, waiter: Activity, peer: int, decided: Condition | None, fewer: int
) -> Message:
    """What gives the message its partner, by the line or the condition that left it out, as far as one is known."""
    verb = "send" if waiter.kind == ActivityKind.RECV else "receive"
    if decided is not None:
        return [
            [f"let rank {peer} {verb} whichever way ", decided, " goes (an empty message where there is nothing), or "],
            f"let rank {waiter.rank} know that none comes",
        ]
    skipped = found.skipped if found.skipped is not None and found.skipped.rank == peer else None
    if skipped is not None and skipped.frame is not None:
        return [
            f"let rank {peer} {verb} at ",
            line_of(skipped.frame),
            f" in every round, or let rank {waiter.rank} know that none comes",
        ]
    does = f"{verb}s {fewer} fewer than" if fewer > 0 else f"does not {verb} what"
    return f"see why rank {peer} {does} rank {waiter.rank} waits for"


def _decided_at(case: Case, found: MissingPartner, waiter: Activity, peer: int) -> Condition | None:
    """The condition by which the peer left the message out; None where none is the likeliest."""
    last = _last_message(case, peer, waiter.rank)
    left = found.left
    if left is not None and last is not None and not issued_further_on(case, waiter, peer):
        return _ended_at(case, last[1])
    if left is not None and not case.has_history:
        return left.way_out or Condition(left.condition, left.frame.file, left.frame.line)
    return next(iter(_by_stacks(case, found, waiter, peer)), None)


def _waiter(case: Case, blame: Blame[MissingPartner]) -> Activity | None:
    """A rank that waits for a message of a culprit's: the one whose message the culprit once skipped, else any."""
    waiting = [
        a
        for a in case.activities.values()
        if a.kind in MESSAGES and a.peer in blame.culprits and not _answers(case, a.rank, a.peer or 0)
    ]
    skipped = blame.found.skipped
    robbed = (a for a in waiting if skipped is not None and a.rank == skipped.peer)
    of_anyone = (a for a in case.activities.values() if is_from_anyone(a))
    return next(robbed, next(iter(waiting), next(of_anyone, None)))


def _peer_unseen(case: Case, blame: Blame[MissingPartner], alone: Activity) -> Finding:
    """HD202 of a send or recv whose peer no source shows."""
    any_source = is_from_anyone(alone)
    named = decided_around(case, alone.stack) if not case.has_history else []
    return Finding(
        "HD202",
        sentence(
            [Does(blame.culprits, "waits", "wait"), " in ", doing(alone), " for a partner that does not come"],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            f"a message has no partner: either it was not issued, or this {alone.kind} is one too many",
            "it takes one of any rank" if any_source else "stacks do not show the peer",
            ["whom a rank names there is decided by ", Joined(named, " and ")] if named else "",
        ),
        joined(
            ["let both sides agree on ", Joined(named, " and ")]
            if named
            else f"look for the {'send' if alone.kind == ActivityKind.RECV else 'recv'} that this one waits for",
            "" if any_source or not case.to_see_history else f"to see the peers: {case.to_see_history}",
        ),
    )


def _passed(case: Case, waiter: Activity, peer: int, here: int | None, there: int | None) -> Message:
    """How many messages the waiter expects of its peer, and how many the peer has issued."""
    rank = waiter.rank
    if is_from_anyone(waiter) and not case.has_history:
        return f"rank {rank} takes a message of any rank"
    if is_from_anyone(waiter):
        counted = {r: messages_sent(case, r, rank) for r in sorted(case.activities) if r not in (rank, peer)}
        each = {r: count for r, count in counted.items() if count}
        fewer = messages_sent(case, peer, rank)
        if len(set(each.values())) != 1:
            return f"rank {rank} takes a message of any rank, and rank {peer} has sent it {fewer}"
        sent: Message = [Ranks(tuple(each)), f" sent it {next(iter(each.values()))} each, rank {peer} {fewer}"]
        return [f"rank {rank} takes a message of any rank: ", sent]
    if here is not None and there is not None:
        to, other, back = ("from", "send", "to") if waiter.kind == ActivityKind.RECV else ("to", "recv", "from")
        return (
            f"rank {rank} is in its {_nth(here)} {waiter.kind} {to} rank {peer}, and rank {peer} has issued "
            f"{there} {other}{'' if there == 1 else 's'} {back} it"
        )
    forgetful = [r for r in (rank, peer) if (kept := case.ranks[r].journal) is not None and kept.forgotten]
    if forgetful:
        return _of_the_last(case, forgetful[0], rank, peer, waiter.kind)
    return joined(f"rank {peer} is not on its way to it", "how many messages they have passed could not be seen")


def _on_the_way(case: Case, found: MissingPartner, waiter: Activity, peer: int) -> list[Message]:
    """Clauses on where the peer skipped or last issued a message with the waiter, and what decides whether it does."""
    skipped, left = found.skipped if found.skipped is not None and found.skipped.rank == peer else None, found.left
    last = _last_message(case, peer, waiter.rank)
    clauses: list[Message] = []
    if skipped is not None and skipped.frame is not None:
        did = skipped.told if skipped.never or skipped.fewer > 1 else f"once skipped its {skipped.op}"
        clauses.append([f"it {did}", at(skipped.frame)])
    elif last is not None:
        where = place(next(iter(user_stack(last[1])), None))
        clauses.append([f"its last message with rank {waiter.rank} was the {last[0]} at ", where])
    stack = skipped.stack if skipped is not None else last[1] if last is not None else ()
    if found.alone:
        been: Message = [f"by what it ran or wrote, rank {peer} alone has been under ", Joined(found.alone, " and ")]
        return [*clauses, [been, ", which skips a message"]]
    once = skipped_by(case, skipped) if skipped is not None else None
    if once is not None:
        decided = Condition(once.guard.condition, once.frame.file, once.guard.line)
        clauses.append([decided, f" was {not once.guard.taken} there for the first time"])
    else:
        clauses += _conditions(case, stack, peer, told=left is not None)
    if skipped is not None and skipped.never and skipped.frame is not None and not any(conditions_in(clauses)):
        around = by_evidence(case, around_line(case, skipped.frame), peer)
        clauses.append(["whether it is called depends on ", Joined(around, " and ")] if around else "")
    if parted := _by_stacks(case, found, waiter, peer):
        clauses.append(["whether a rank gets there depends on ", Joined(parted, " and ")])
    if not any(conditions_in(clauses)) and left is None:
        clauses += _awaited(case, waiter, peer)
    named = decided_around(case, waiter.stack) if not case.has_history and not any(conditions_in(clauses)) else []
    if named and left is None:
        clauses.append(["whom a rank names there is decided by ", Joined(named, " and ")])
    if left is not None:
        condition = Condition(left.condition, left.frame.file, left.frame.line)
        by: Message = [", by ", left.way_out] if left.way_out is not None else ""
        clauses.append([Does(left.still, "is", "are"), " still in ", condition, f", which rank {peer} has left", by])
    return clauses


def _awaited(case: Case, waiter: Activity, peer: int) -> list[Message]:
    """A clause on what decides how many messages the waiter expects, where nothing is known of its peer's way: the
    conditions around its own call, else a loop around it that the peer is not in."""
    where = waiter.where
    line = case.sources.line(where.file, where.line) if where is not None else None
    if not any(call in (line or "") for call in names("issues_message")):
        return []  # it was issued at another line
    loop = loop_left(case, waiter.stack, peer)
    found = awaited_under(case, waiter)
    return found or ([[f"how many rank {waiter.rank} expects depends on ", loop]] if loop is not None else [])


def _by_stacks(case: Case, found: MissingPartner, waiter: Activity, peer: int) -> list[Condition]:
    """What may have led the peer past the message, where stacks alone are there to see, or what it alone has run."""
    if found.alone:
        return list(found.alone)
    if case.has_history:
        return []
    given = way_to_message(case, peer)
    each = still_possible(case, given, peer) or given
    return each if len(each) <= NAMED else []


_AT_REST = frozenset(
    {
        ActivityKind.EXITED,
        ActivityKind.ZOMBIE,
        ActivityKind.ABSENT,
        ActivityKind.STOPPED,
        ActivityKind.SLEEPING,
        ActivityKind.COMPUTING,
        ActivityKind.LOCK,
        ActivityKind.PIPE,
        ActivityKind.IO,
        ActivityKind.NOT_VISIBLE,
    }
)


def _conditions(case: Case, stack: Stack, peer: int, *, told: bool) -> list[Message]:
    """What ``ways_past`` has found, as clauses; where that is nothing, the loop that the peer has left, unless it is
    ``told`` already.

    Example: ``for step in steps:`` around ``if batch:`` around ``dist.send(…)`` → 'whether it is called depends on
    `if batch:` (train.py:9)'.
    """
    on_the_way, left = ways_past(case, stack)
    on_the_way = by_evidence(case, on_the_way, peer)
    loop = None if on_the_way or left or told else loop_left(case, stack, peer)
    return [
        ["whether it is called depends on ", Joined(on_the_way, " and ")] if on_the_way else "",
        ["its loop can be left at ", Joined(left, " or ")] if left else "",
        ["how often it is called depends on ", loop] if loop is not None else "",
    ]


def _ended_at(case: Case, stack: Stack) -> Condition | None:
    """The condition on the way to the message by which the rank left the loop as well; None where there is none.

    Example: `while True: ⏎ … ⏎ if token == eos: ⏎ return ⏎ dist.send(…)` → the `if`.
    """
    on_the_way, left = ways_past(case, stack)
    for frame in user_stack(stack):
        tree = case.sources.function(frame.file, frame.line)
        loop = next(reversed(loops_around(tree, frame.line)), None)
        if tree is not None and loop is not None:
            out = [Condition(text, frame.file, line) for line, text in ways_out(tree, loop.line)]
            only = left[0] if len(out) == len(left) == 1 else None
            return next((each for each in reversed(on_the_way) if each in out), only)
    return None


def counts(case: Case, rank: int, peer: int, kind: str) -> tuple[int | None, int | None]:
    """How many of ``kind`` the rank issued with that peer, and how many of the other kind the peer issued with it;
    None where older ones are forgotten or nobody recorded them."""
    other = "send" if kind == "recv" else "recv"
    return _count(case, rank, peer, kind) or None, _count(case, peer, rank, other)


def _of_the_last(case: Case, forgetful: int, rank: int, peer: int, kind: str) -> str:
    """'rank 1 waits in a recv from rank 0; of the last 1000 messages of rank 0, 400 are sends to it (…)'."""
    journal = case.ranks[forgetful].journal
    assert journal is not None
    kept = [p for p in journal.point_to_points if p.peer == (peer if forgetful == rank else rank)]
    way = kind if forgetful == rank else "send" if kind == "recv" else "recv"
    many = sum(way in p.op for p in kept)
    other = peer if forgetful == rank else rank
    return (
        f"rank {peer} is not on its way to it; of the last {len(journal.point_to_points)} messages of rank "
        f"{forgetful}, {many} {'was a' if many == 1 else 'were'} {way}{'' if many == 1 else 's'} "
        f"{'to' if way == 'send' else 'from'} rank {other}, and older ones are forgotten"
    )


def _last_message(case: Case, rank: int, peer: int) -> tuple[str, Stack] | None:
    """The operation and the stack of the last message that ``rank`` issued with ``peer``."""
    journal = case.ranks[rank].journal
    for message in reversed(journal.point_to_points) if journal else ():
        if message.peer == peer and journal is not None:
            stack = journal.stack(message.stack)
            return (message.op, stack) if user_stack(stack) else None
    return None


def _count(case: Case, rank: int, peer: int, kind: str) -> int | None:
    snapshot = case.ranks.get(rank)
    journal = snapshot.journal if snapshot else None
    if journal is None or not journal.has_all_messages:
        return None
    return sum(1 for p in journal.point_to_points if kind in p.op and p.peer == peer)


def _answers(case: Case, rank: int, peer: int) -> bool:
    other = case.activities[peer]
    return other.kind in MESSAGES and other.peer == rank and other.kind != case.activities[rank].kind


def _nth(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{suffix}"
