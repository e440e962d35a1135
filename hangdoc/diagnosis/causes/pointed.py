"""HD2xx: point to point."""

from __future__ import annotations

from hangdoc.diagnosis import messages
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes.finding import Finding, capital, doing, others_of, place, verb, wait_sentence
from hangdoc.diagnosis.culprit import Blame
from hangdoc.diagnosis.messages import crossed_tags, left_out
from hangdoc.diagnosis.sequences import user_stack
from hangdoc.model.diagnosis import Activity
from hangdoc.model.process import Frame
from hangdoc.model.wording import name_ranks

_KINDS = ("send", "recv")


def cycle(case: Case, blame: Blame) -> Finding | None:
    """HD201: everybody sends (or receives) first."""
    stuck = [case.activities[r] for r in sorted(case.graph.stuck)]
    if blame.kind != "cycle" or not stuck or any(a.kind not in _KINDS for a in stuck):
        return None
    ring = _ring(stuck)
    told = " → ".join(f"rank {a.rank} {a.kind}s {'to' if a.kind == 'send' else 'from'} {a.peer}" for a in ring[:8])
    behind = tuple(a.rank for a in stuck if a not in ring)
    places = list(dict.fromkeys(place(a.where) for a in ring))
    where = f" at {' and '.join(places[:2])}" if places[0] else ""
    verbs = {a.kind for a in ring}
    what = f"all {verbs.copy().pop()} first" if len(verbs) == 1 else "wait for each other's messages"
    fix = "use batch_isend_irecv, or isend with irecv, so that nobody's first message waits for another's"
    if verbs == {"send"}:
        fix = "let even ranks send first and odd ranks receive first, or " + fix
    elif verbs == {"recv"}:
        fix = "let one of them send before it receives, or " + fix
    return Finding(
        "HD201",
        capital(f"{name_ranks(a.rank for a in ring)} {what}{where}, in a circle.")
        + (" " + capital(f"{name_ranks(behind)} {verb(behind, 'waits', 'wait')} behind them.") if behind else ""),
        told,
        fix,
    )


def _ring(stuck: list[Activity]) -> list[Activity]:
    """The ranks of the circle, each before the one that it waits for; all of them where some peer is unknown."""
    by_rank = {a.rank: a for a in stuck}
    way: list[Activity] = []
    here: Activity | None = stuck[0]
    while here is not None and here not in way:
        way.append(here)
        here = by_rank.get(here.peer) if here.peer is not None else None
    return way[way.index(here) :] if here is not None else stuck


def wrong_peer(case: Case, blame: Blame) -> Finding | None:
    """HD202: the message went to another rank than the one that waits for it, or is expected from another."""
    found = messages.wrong_peer(case) if blame.kind == "peer" else None
    if found is None:
        return None
    sends = found.op == "send"
    line = place(found.frame)
    does, missed = ("sends to", "waits for a message from it") if sends else ("waits for a message from", "sends to it")
    what = f"Rank {found.rank} {does} rank {found.took} at {line}, and rank {found.waits} {missed}"
    others = tuple(r for r in others_of(case, blame) if r not in (found.took, found.waits))
    return Finding(
        "HD202",
        what + (f"; {wait_sentence(case, others)}." if others else "."),
        f"all other messages have their partner; rank {found.took} never "
        + ("receives from it" if sends else "sends to it"),
        f"check how rank {found.rank} computes its peer ({'dst' if sends else 'src'}) at {line}",
    )


def wrong_tag(case: Case, blame: Blame) -> Finding | None:
    """HD202: the message is there, under another tag."""
    found = crossed_tags(case) if blame.kind == "tag" else None
    if found is None:
        return None
    receiver = case.activities[found.receiver]
    sent = f" at {place(found.frame)}" if found.frame is not None else ""
    others = tuple(r for r in others_of(case, blame) if r not in (found.receiver, found.sender))
    rest = f"; {wait_sentence(case, others)}" if others else ""
    return Finding(
        "HD202",
        f"Rank {found.sender} sends to rank {found.receiver} with tag {found.sent}{sent}, and rank {found.receiver} "
        f"waits for tag {found.wanted} at {place(receiver.where)}{rest}.",
        f"a message is delivered to a recv of its own tag only: {found.sent} was sent, {found.wanted} is expected",
        "use one tag for the message on both sides",
    )


def missing_partner(case: Case, blame: Blame) -> Finding | None:
    """HD202: a recv without its send, a wrong tag or peer, one micro-batch fewer."""
    if blame.kind != "partner":
        return None
    alone = case.activities[blame.culprits[0]]
    if alone.kind in _KINDS and alone.peer is None:
        return Finding(
            "HD202",
            capital(
                f"{name_ranks(blame.culprits)} {verb(blame.culprits, 'waits', 'wait')} in {doing(alone)} for a partner "
                f"that does not come; {wait_sentence(case, others_of(case, blame))}."
            ),
            f"a message has no partner: either it was not issued, or this {alone.kind} is one too many; stacks do not "
            "show the peer",
            f"give every {alone.kind} its partner: the same number of messages, peer and tag on both sides; `hangdoc "
            "watch` shows the peers",
        )
    waiting = [
        a
        for a in case.activities.values()
        if a.kind in _KINDS and a.peer in blame.culprits and not _answers(case, a.rank, a.peer or 0)
    ]
    if not waiting:
        return None
    skipped = left_out(case)
    first = next((a for a in waiting if skipped is not None and a.rank == skipped.peer), waiting[0])
    peer = first.peer
    assert peer is not None
    here, there = counts(case, first.rank, peer, first.kind)
    told = (
        f"rank {first.rank} is in its {_nth(here)} {first.kind} {'from' if first.kind == 'recv' else 'to'} rank "
        f"{peer}, and rank {peer} has issued {there} {'sends to' if first.kind == 'recv' else 'recvs from'} it"
        if here
        else f"rank {peer} is not on its way to it; how many messages they have passed could not be seen"
    )
    last = _last_message(case, peer, first.rank)
    if skipped is not None and skipped.rank == peer and skipped.frame is not None:
        told += f"; it once went by its {skipped.op} at {place(skipped.frame)}"
    elif last is not None:
        told += f"; its last message with rank {first.rank} was the {last[0]} at {place(last[1])}"
    now = " ".join(doing(case.activities[peer]).split())
    return Finding(
        "HD202",
        capital(
            f"rank {first.rank} waits in {first.kind} {'from' if first.kind == 'recv' else 'to'} rank {peer} at "
            f"{place(first.where)}, which never comes: rank {peer} is in {now}."
        ),
        told,
        f"give every {first.kind} its partner: the same number of messages, peer and tag on both sides"
        + (f" (rank {peer} issues one fewer)" if here else ""),
    )


def counts(case: Case, rank: int, peer: int, kind: str) -> tuple[int, int]:
    """How many of ``kind`` the rank issued with that peer, and how many of the other kind the peer issued with it."""
    other = "send" if kind == "recv" else "recv"
    return _count(case, rank, peer, kind), _count(case, peer, rank, other)


def _last_message(case: Case, rank: int, peer: int) -> tuple[str, Frame] | None:
    """The operation and the line of the last message that ``rank`` issued with ``peer``."""
    journal = case.ranks[rank].journal
    for message in reversed(journal.point_to_points) if journal else ():
        if message.peer == peer and journal is not None:
            frames = user_stack(journal.stack(message.stack))
            return (message.op, frames[0]) if frames else None
    return None


def _count(case: Case, rank: int, peer: int, kind: str) -> int:
    snapshot = case.ranks.get(rank)
    journal = snapshot.journal if snapshot else None
    return sum(1 for p in journal.point_to_points if kind in p.op and p.peer == peer) if journal else 0


def _answers(case: Case, rank: int, peer: int) -> bool:
    other = case.activities[peer]
    return other.kind in _KINDS and other.peer == rank and other.kind != case.activities[rank].kind


def _nth(number: int) -> str:
    suffix = {1: "st", 2: "nd", 3: "rd"}.get(number % 10 if number % 100 not in (11, 12, 13) else 0, "th")
    return f"{number}{suffix}"
