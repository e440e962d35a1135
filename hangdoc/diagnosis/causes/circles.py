"""HD2xx: ranks wait for each other's messages in a circle."""

from __future__ import annotations

from hangdoc.diagnosis.blame.wait_cycle import WaitCycle
from hangdoc.diagnosis.causes.deciding import subject_of
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import line_of, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.unmatched import alone_under, awaited_under, of_partner
from hangdoc.diagnosis.condition.around_message import ends_its_sends, leave_out_the_next, sent_before
from hangdoc.diagnosis.condition.elsewhere.dispatched import is_looked_up
from hangdoc.diagnosis.condition.first_message import same_way_of_all
from hangdoc.diagnosis.condition.given_micro_batches import number_set_by
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.stacks import site_of
from hangdoc.diagnosis.messages.uneven_loop import UnevenLoop, decides_bound
from hangdoc.model.diagnosis import Activity
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Values, joined, sentence

_MOST_NAMED = 8
"""Ranks of a circle that a sentence names: about two lines of a terminal; chosen by hand."""
_VERBS = {ActivityKind.SEND: "send", ActivityKind.RECV: "receive"}
_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


@cause("HD202", explains=WaitCycle, order=260)
def crossed_partners(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD202: each rank has issued its send to, and its recv from, a partner that chose another one. No order is wrong.

    Example: 0 exchanges with 1, 1 with 2 and 2 with 0.
    """
    ring = blame.found.ring
    if not ring or not all(_both_ways(case, a) for a in ring) or len(ring) < 3:
        return None
    pairs = ", ".join(f"rank {a.rank} with {a.peer}" for a in ring[:_MOST_NAMED])
    return Finding(
        "HD202",
        [
            sentence(
                [
                    [Ranks.of(a.rank for a in ring), " have chosen partners that did not choose them, at "],
                    [place(ring[0].where), f": {pairs}"],
                ]
            ),
            _also_stuck(case, ring),
        ],
        f"each of them has issued both its send and its recv, with one peer: {pairs}; no two of them agree",
        "compute the partners from what all ranks know alike (the step, a generator with a common seed that every "
        "rank draws from equally often), so that the partner of a rank's partner is the rank itself",
    )


@cause("HD202", explains=WaitCycle, order=255)
def odd_schedule(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD202: one rank's pipeline goes through another number of micro-batches than that of the others."""
    loop = blame.found.loop
    if loop is None or loop.guard is not None or not loop.odd:
        return None
    decided = number_set_by(case.sources)
    return Finding(
        "HD202",
        _odd_rounds(case, loop),
        joined(
            _rounds(loop),
            *([subject_of(answer), Joined(answer.tests, " and ")] for answer in decided),
            "each micro-batch is a message from stage to stage, so that some of them never find their partner",
        ),
        "give the schedule the same n_microbatches on every rank: compute it from what all ranks know alike, or "
        "broadcast it",
        decided_at=decided[0].tests[0] if decided else None,
    )


@cause("HD202", explains=WaitCycle, order=265)
def round_without_message(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD202: one rank of the circle has gone round its loop, and has not issued what another one awaits.

    Example: rank 2 took a task for which it has no handler, and waits for the next one; rank 0 waits for its answer.
    """
    left, ring = blame.found.left_out, blame.found.ring
    if left is None:
        return None
    kind = next(a.kind for a in ring if a.rank == left.waiter)
    verb = "send" if kind is ActivityKind.RECV else "receive"
    way = "to" if verb == "send" else "from"
    further = tuple(rank for rank in blame.culprits if rank != left.rank)
    when = "has never" if left.never else "has not"
    come: Message = [f"{when} come to the {verb} {way} rank {left.waiter} at ", line_of(left.line)]
    if left.usual:
        many = f"{left.given} {verb}{'' if left.given == 1 else 's'}"
        come = [f"has issued {many} {way} rank {left.waiter} at ", line_of(left.line)]
    ago = f" in its last {left.since} rounds" if left.since > 1 else " in its last round"
    ago += f", and {left.usual} in each one before" if left.usual else ""
    conditions = alone_under(case, list(left.conditions), left.rank) or left.conditions
    return Finding(
        "HD202",
        [
            sentence(
                [
                    [f"rank {left.rank} waits for its next message at "],
                    [place(case.activities[left.rank].where), ", and ", come],
                    "" if left.never else ago,
                ],
                [f"rank {left.waiter} waits for it at ", place(case.activities[left.waiter].where)],
            ),
            _also_stuck(case, ring),
            [" ", sentence([Does(further, "has", "have"), " left a message out there, too"])] if further else "",
        ],
        joined(
            _steps(ring),
            [
                f"rank {left.rank} has gone round its loop without that message, by ",
                Joined(conditions, " or "),
            ],
        ),
        "send something on every way through a round (a mark for 'nothing comes'), or let the receiver know before it "
        "waits",
        "a message too few and one too many that is awaited look the same",
        decided_at=conditions[-1],
        or_at=conditions[0] if len(conditions) > 1 else None,
    )


@cause("HD202", explains=WaitCycle, order=267)
def skipped_alone(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD202: one rank of the circle has run, and no other rank has, what skips a message.

    Example: ranks 1 and 3 wait for each other, and `if digest in self.seen: ⏎ continue` was run on rank 3 alone.
    """
    ring, rank = blame.found.ring, blame.culprits[0]
    if not blame.found.alone:
        return None
    return Finding(
        "HD202",
        [
            sentence(
                [Ranks.of(a.rank for a in ring), " wait for each other's messages at ", _places(ring)],
                f"rank {rank} has left one out",
            ),
            _also_stuck(case, ring),
        ],
        joined(
            _steps(ring),
            [f"rank {rank} alone has been under ", Joined(blame.found.alone, " and "), ", which skips a message"],
        ),
        "send something on every way through a round (a mark for 'nothing comes'), or let the receiver know before it "
        "waits",
        decided_at=blame.found.alone[0],
    )


@cause("HD201", explains=WaitCycle, order=268)
def another_order(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD201: one rank of the circle has passed its messages in another order than in all its rounds before."""
    ring, by = blame.found.ring, blame.found.new_order
    if not by:
        return None
    rank = blame.culprits[0]
    return Finding(
        "HD201",
        [
            sentence(
                [Ranks.of(a.rank for a in ring), " wait for each other's messages at ", _places(ring)],
                f"rank {rank} has left the order of its rounds before",
            ),
            _also_stuck(case, ring),
        ],
        joined(_steps(ring), ["which message comes next is chosen by ", Joined(by, " and ")]),
        "let both ranks of a pair decide by the same values in which order they pass their messages, or use "
        "batch_isend_irecv, or isend with irecv, so that nobody's first message waits for another's",
        decided_at=by[0],
    )


@cause("HD202", explains=WaitCycle, order=270)
def uneven_messages(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD202: the same lines have passed their messages before, so their order is right, and one side has a message too
    few, or too many."""
    ring, in_turn = blame.found.ring, blame.found.in_turn
    odd = blame.found.loop is not None and bool(blame.found.loop.odd)
    passed = all(_went_well_before(case, a) for a in ring)
    if not ring or in_turn or not (passed or odd) or _is_even(case, ring):
        return None
    if blame.found.loop is None and all(is_looked_up(case.sources, a.stack) for a in ring):
        return None  # the lines are run in the order of a table, which may be another one this time
    ranks = tuple(sorted(a.rank for a in ring))
    loop = blame.found.loop
    by = decides_bound(case, loop) if loop is not None else []
    where: Message = [" at ", _places(ring)] if ring[0].where is not None else ""
    wait = sentence([Ranks(ranks), " wait for each other's messages", where])
    return Finding(
        "HD202",
        _odd_rounds(case, loop) if loop is not None and loop.odd else [wait, _also_stuck(case, ring)],
        joined(
            _steps(ring),
            "the same lines have passed their messages before" if passed else "",
            _rounds(loop) if loop is not None else "",
            [f"`{loop.name}` depends on ", Joined(by, " and ")] if loop is not None and by else "",
        ),
        ["let both sides agree on ", Joined(by, " and ")]
        if by
        else f"give `{loop.name}` the same value on both sides"
        if loop is not None and loop.name
        else "see which side has left a message out, or expects one more than it did before",
        "" if loop is not None else "a message left out and an order that differs look the same",
        by[0] if by else None,
    )


def _is_even(case: Case, ring: tuple[Activity, ...]) -> bool:
    """True if, on devices, each of them sends first and has completed as many sends as receives: only the order of this
    round differs."""
    if not all(case.streams.runs_ahead(a.rank) and a.kind is ActivityKind.SEND for a in ring):
        return False
    messages = [[m.op for m in case.programs[a.rank].journal.point_to_points if m.completed] for a in ring]
    return all(ops.count("send") == ops.count("recv") for ops in messages)


def _odd_rounds(case: Case, loop: UnevenLoop) -> Message:
    usual = {rank: value for rank, value in loop.values.items() if rank not in loop.odd}
    return sentence(
        [
            [Ranks(loop.odd), f" passes its messages in {loop.values[loop.odd[0]]} {_rounds_of(loop)} and "],
            [Ranks.of(usual), f" in {next(iter(usual.values()))} (", line_of(loop.at), ")"],
        ],
        where_they_wait(case, tuple(sorted(usual))),
    )


def _rounds_of(loop: UnevenLoop) -> str:
    return "rounds" if loop.guard is not None else "micro-batches"


def _rounds(loop: UnevenLoop) -> Message:
    if loop.guard is None:
        name = f" ({loop.name} = " if loop.name else " ("
        return ["the schedule has another number of micro-batches", name, Values(loop.values, " | "), ")"]
    condition = Condition(loop.guard.condition, loop.at.file, loop.at.line)
    return [condition, f" does not run equally often: {loop.name} = ", Values(loop.values, " | ")]


@cause("HD202", explains=WaitCycle, order=275)
def sent_before_it_received(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD202: all wait in recv, and one of them has sent before: its order is right, so one message was left out.

    Example: rank 0 gives `self.push(x)` before it waits for the last stage's answer; the stages wait for their
    neighbors, and one of them returns between its recv and its send `if self.sure(x):`.
    """
    ring = blame.found.ring
    if not ring or case.has_history or blame.found.in_turn or any(a.kind is not ActivityKind.RECV for a in ring):
        return None
    sent = {a.rank: line for a in ring if (line := sent_before(case.sources, a.stack)) is not None}
    if not sent:
        return None
    rank, line = next(iter(sent.items()))
    past = list(dict.fromkeys(c for a in ring if a.rank not in sent for c in leave_out_the_next(case.sources, a.stack)))
    by: Message = [": ", Joined(past[:_MOST_CONDITIONS], " or "), " can end a round after its recv and before its send"]
    if not past:
        past = list(dict.fromkeys(each for line in sent.values() for each in ends_its_sends(case.sources, line)))
        by = [": ", Joined(past[:_MOST_CONDITIONS], " or "), " can end the loop that sends before all are sent"]
    return Finding(
        "HD202",
        [
            sentence([Ranks.of(a.rank for a in ring), " each wait for a message at ", _places(ring), ", in a circle"]),
            _also_stuck(case, ring),
        ],
        joined(
            _steps(ring),
            [f"rank {rank} sends at ", line_of(line), " before it waits, so the order is right"],
            ["one of the ranks has left out a message earlier", by if past else ""],
        ),
        "send something on every way through a round (a mark for 'nothing comes'), or let the receiver know before it "
        "waits",
        "which round left its message out was not seen",
        decided_at=past[0] if past else None,
    )


@cause("HD201", explains=WaitCycle, order=280)
def cycle(case: Case, blame: Blame[WaitCycle]) -> Finding | None:
    """HD201: every rank of the circle sends first, or every rank receives first.

    Example: ranks 0 and 1 both wait in `send`, and both have their `recv` on the next line.
    """
    ring = blame.found.ring
    if not ring:
        return None
    where: Message = [" at ", _places(ring)] if ring[0].where is not None else ""
    verbs = {a.kind for a in ring}
    every = "both" if len(ring) == 2 else "all"
    what = f"{every} {_VERBS[ring[0].kind]} first" if len(verbs) == 1 else "wait for each other's messages"
    fix = "use batch_isend_irecv, or isend with irecv, so that nobody's first message waits for another's"
    if verbs == {ActivityKind.SEND}:
        fix = "let even ranks send first and odd ranks receive first, or " + fix
    elif verbs == {ActivityKind.RECV} and blame.found.in_turn is None:
        fix = "see which of them has to send first, and what kept it from that"
    chosen = same_way_of_all(case.sources, ring)
    same: Message = [f"{every} went the same way at ", chosen, ", where partners must differ"] if chosen else ""
    return Finding(
        "HD201",
        [sentence([Ranks.of(a.rank for a in ring), f" {what}", where, ", in a circle"]), _also_stuck(case, ring)],
        joined(_steps(ring), same, *_around(case, blame.found)),
        fix,
        decided_at=chosen,
    )


def _around(case: Case, found: WaitCycle) -> list[Message]:
    """Clauses on the loop in which each has its turn, else on what decides about the messages of two ranks with
    different parts, where stacks alone are there.

    Example: rank 1 waits for a credit `if self.in_flight >= self.window:`, and rank 3 sends one `if self.taken == n:`.
    """
    ring = found.ring
    if found.in_turn is not None:
        return [["each comes to the one that waits for it later in the loop at ", line_of(found.in_turn)]]
    if case.has_history or len(ring) != 2 or len({site_of(a.stack) for a in ring}) != 2:
        return []
    told: list[Message] = []
    for waiter in ring:
        awaited, parted = awaited_under(case, waiter), of_partner(case, waiter)
        if awaited and 0 < len(parted) <= _MOST_CONDITIONS:
            issued: Message = [f"whether rank {waiter.peer} issues what rank {waiter.rank} awaits depends on "]
            told += [[issued, Joined(parted, " and ")], *awaited]
    return told


def _steps(ring: tuple[Activity, ...]) -> str:
    """'rank 0 sends to 1 → rank 1 sends to 0'."""
    steps = (
        f"rank {a.rank} {_VERBS[a.kind]}s {'to' if a.kind == ActivityKind.SEND else 'from'} {a.peer}"
        for a in ring[:_MOST_NAMED]
    )
    return " → ".join(steps)


def _places(ring: tuple[Activity, ...]) -> Message:
    """The first two lines at which the ranks of the circle wait."""
    return Joined(list(dict.fromkeys(place(a.where) for a in ring))[:2], " and ")


def _also_stuck(case: Case, ring: tuple[Activity, ...]) -> Message:
    """The sentence about those that are stuck and not in the circle, after a space; '' where there are none. Those that
    wait in another circle do not wait for this one."""
    inside = {a.rank for a in ring}
    others = case.graph.stuck - inside
    waiting, more = set(inside), set(others)
    while more:
        more = {rank for rank in others - waiting if not waiting.isdisjoint(case.graph.on(rank))}
        waiting |= more
    behind, apart = tuple(sorted(waiting - inside)), tuple(sorted(others - waiting))
    elsewhere: Message = [Does(apart, "waits", "wait"), " in another circle"] if apart else ""
    said = sentence([Does(behind, "waits", "wait"), " for them"] if behind else "", elsewhere)
    return [" ", said] if behind or apart else ""


def _both_ways(case: Case, activity: Activity) -> bool:
    """True if both a send to the peer and a recv from it are under way."""
    journal = case.ranks[activity.rank].journal
    messages = journal.point_to_points if journal is not None else ()
    pending = {m.op for m in messages if not m.completed and m.peer == activity.peer}
    return {"send", "recv"} <= pending


def _went_well_before(case: Case, activity: Activity) -> bool:
    """True if the rank has passed such a message before: from the same line, with the same peer."""
    journal = case.ranks[activity.rank].journal
    if journal is None:
        return False
    here = [m for m in journal.point_to_points if activity.kind in m.op and m.peer == activity.peer]
    waiting = next((m for m in here if not m.completed), None)
    if waiting is None:
        return False
    site = site_of(journal.stack(waiting.stack))
    return any(m.completed and site_of(journal.stack(m.stack)) == site for m in here)
