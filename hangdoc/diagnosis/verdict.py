"""Blame and cause become the diagnosis: outcome, sentences, sides, repair, evidence."""

from __future__ import annotations

import math
from dataclasses import replace

from hangdoc.diagnosis import dumps
from hangdoc.diagnosis.activity import UNSEEN
from hangdoc.diagnosis.alignment import Gap
from hangdoc.diagnosis.asking import cannot_be_answered, waits_for_a_person
from hangdoc.diagnosis.blame import blame
from hangdoc.diagnosis.branch import describe as describe_branch
from hangdoc.diagnosis.branch import parted
from hangdoc.diagnosis.case import Case, with_native_frames
from hangdoc.diagnosis.causes import name_cause
from hangdoc.diagnosis.causes.finding import (
    Finding,
    capital,
    condition_text,
    doing,
    may_run_another,
    others_of,
    place,
    short,
    telling,
    telling_token,
    verb,
    wait_sentence,
)
from hangdoc.diagnosis.crash import crashed
from hangdoc.diagnosis.culprit import Blame
from hangdoc.diagnosis.evidence import gather
from hangdoc.diagnosis.landmarks import is_implicit, words
from hangdoc.diagnosis.launcher import waiting_for_nodes
from hangdoc.diagnosis.members import with_every_member, with_shared_members
from hangdoc.diagnosis.naming import naming, told_apart
from hangdoc.diagnosis.origin import looking_at
from hangdoc.diagnosis.partings import also_on_the_way, stack_of
from hangdoc.diagnosis.sequences import END, Token, user_stack
from hangdoc.diagnosis.unseen import HIDDEN, note_hidden, told_hidden
from hangdoc.model.catalogue import cause as catalogue_cause
from hangdoc.model.diagnosis import CulpritProcess, Diagnosis, Divergence, Edit, Repair, Side
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.wording import name_duration, name_ranks

_MOST_EDITS = 24
_THINGS = ("io", "pipe", "lock", "file-lock", "store-wait")
"""Kinds of activities whose names do not say what a rank does."""
_PARTICIPLES = (
    "blocked",
    "held",
    "idle",
    "opening",
    "polling",
    "reading",
    "running",
    "sleeping",
    "stopped",
    "stuck",
    "waiting",
)
"""How texts of activities begin that need no 'in' before them."""


def diagnose(job: JobSnapshot) -> Diagnosis:
    """The verdict on one snapshot. Never raises on odd data: what could not be seen lowers the confidence."""
    with looking_at(job), naming(job):
        return replace(_diagnose(job), file_names=told_apart())


def _diagnose(job: JobSnapshot) -> Diagnosis:
    case = Case(with_native_frames(with_every_member(with_shared_members(job))))
    if not case.activities:
        return waiting_for_nodes(job) or _nobody(job)
    if job.ended:
        found, ended = crashed(case)
        return _assemble(case, found, name_cause(case, found), "crashed" if ended else "healthy")
    if not any((r.process and r.process.looks) or r.journal or r.exit for r in job.ranks):
        return _blind(case, "no rank of the job could be looked at")
    if all(_ended_well(case.ranks[rank]) for rank in case.seen):
        return replace(_nobody(job), outcome="healthy", verdict="All ranks have ended; their launcher is still up.")
    found = blame(case)
    if job.mode == "dump":
        return _of_dumps(case, dumps.no_surer_than_its_group(found))
    return _assemble(case, found, name_cause(case, found), _outcome(case, found))


def _of_dumps(case: Case, found: Blame) -> Diagnosis:
    told = dumps.too_little(case, found)
    if told is None:
        return _assemble(case, found, name_cause(case, found) or dumps.behind(case, found), _outcome(case, found))
    verdict, why, fix = told
    ranks = tuple(case.activities[rank] for rank in sorted(case.activities))
    return replace(_blind(case, why), verdict=verdict, fix=fix, ranks=ranks)


def _ended_well(rank: RankSnapshot) -> bool:
    end = rank.exit
    return end is not None and not end.status and not end.signal and not end.exception


def _outcome(case: Case, found: Blame) -> str:
    if found.proved or _will_never_go_on(case, found):
        return "hang"
    if case.job.mode == "attach":
        return _outcome_of_a_look(case, found)
    if case.job.stalled_for >= case.job.give_up_after and not _working(case, found):
        return "hang"
    return "slow"


def _will_never_go_on(case: Case, found: Blame) -> bool:
    """Can what the culprits wait for not come, however long one waits?"""
    if found.kind != "outside":
        return False
    return any(rank in case.deadlocks or cannot_be_answered(case, rank) for rank in found.culprits)


def _outcome_of_a_look(case: Case, found: Blame) -> str:
    """Nobody timed the stall: what the two looks show has to do. Somebody attached because it looks frozen, so a
    rank that waits for something outside counts as hung, one that works does not."""
    moving = [case.activities[rank].moving for rank in case.seen]
    if found.kind == "nothing" or all(moving):
        return "healthy" if any(moving) else "slow"
    person = found.kind == "outside" and all(waits_for_a_person(case, rank) for rank in found.culprits)
    return "slow" if person or _working(case, found) else "hang"


def _working(case: Case, found: Blame) -> bool:
    """Do those whom the others wait for (or, where nobody waits, all) still move?"""
    ranks = found.culprits or tuple(case.activities)
    return any(case.activities[r].moving for r in ranks if r in case.activities)


def _nobody(job: JobSnapshot) -> Diagnosis:
    """No rank, and no launcher that is known to wait for some: there is nothing to say about such a program."""
    return Diagnosis(
        outcome="healthy" if job.mode == "watch" else "blind",
        verdict="No rank of a distributed job was found.",
        unavailable=job.unavailable,
        command=job.command,
        stalled_for=job.stalled_for,
    )


def _blind(case: Case, why: str) -> Diagnosis:
    return Diagnosis(
        outcome="blind",
        verdict=capital(f"{why}, so hangdoc cannot say why the job does not move."),
        why=why,
        fix="`hangdoc doctor` shows what blocks it here",
        evidence=(),
        unavailable=case.job.unavailable,
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size,
    )


def _assemble(case: Case, found: Blame, finding: Finding | None, outcome: str) -> Diagnosis:
    named = _no_hang(case) if outcome == "healthy" and not case.job.ended else finding or _unnamed(case, found)
    if found.kind == "outside" and found.alternatives:
        named = replace(named, why=named.why + _parted_now(case, found, found.alternatives[0]))
    if outcome == "slow":
        named = replace(named, verdict=f"{named.verdict} {_until_a_hang(case, found)}".rstrip())
    victims = _victims(case, found)
    confidence, sure = found.confidence, found.sure
    if outcome == "hang" and not found.proved and confidence == "certain":
        confidence = "likely"
    if named.doubt:
        confidence, sure = "likely" if confidence == "certain" else confidence, f"{sure}; {named.doubt}"
    if outcome == "hang" and not found.proved:
        waited = case.job.stalled_for and not _will_never_go_on(case, found)
        sure += f"; waited {name_duration(case.job.stalled_for)} for it" if waited else ""
    return Diagnosis(
        outcome=outcome,
        verdict=named.verdict,
        confidence=confidence,
        cause=catalogue_cause(named.code) if named.code else None,
        culprits=tuple(sorted(found.culprits)),
        alternatives=found.alternatives,
        culprit_processes=tuple(_process(case, rank) for rank in sorted(found.culprits)),
        victims=victims,
        why=named.why,
        fix=named.fix,
        sure=sure,
        repair=_repair(found),
        divergence=_divergence(case, found),
        ranks=tuple(case.activities[rank] for rank in sorted(case.activities)),
        waits=case.graph.waits,
        evidence=gather(case, found),
        unavailable=(*note_hidden(case.job, tuple(sorted(case.hidden))), *case.job.unavailable),
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size or len(case.activities),
        unseen=tuple(sorted(case.hidden | {r for r, rank in case.ranks.items() if rank.identity == UNSEEN})),
    )


def _until_a_hang(case: Case, found: Blame) -> str:
    """When a job that is only slow will count as a hang; '' for one that works, and where nobody timed the stall."""
    left = case.job.give_up_after - case.job.stalled_for
    if case.job.mode == "attach" or _working(case, found) or not 0 < left < math.inf:
        return ""
    return f"If nothing moves, it counts as a hang in {name_duration(left)} (--give-up-after)."


def _victims(case: Case, found: Blame) -> tuple[int, ...]:
    if not found.culprits:
        return ()
    return tuple(sorted({w.waiter for w in case.graph.waits} - set(found.culprits)))


def _process(case: Case, rank: int) -> CulpritProcess:
    snapshot = case.ranks[rank]
    pid = snapshot.process.pid if snapshot.process else None
    return CulpritProcess(rank, pid, snapshot.host, "rank", case.job.run_id)


# --- a verdict without a cause -----------------------------------------------------------------------------------


def _no_hang(case: Case) -> Finding:
    still = tuple(r for r, a in case.activities.items() if not a.moving and r in case.seen)
    told = f"no rank waits for another ({name_ranks(still)} at rest at the moment)" if still else "all ranks move"
    return Finding("", f"No hang: {told}.", "CPU time, I/O or stacks changed between two looks a second apart", "")


def _status_text(status: int | None) -> str:
    return f"signal {-status}" if status is not None and status < 0 else f"status {status}"


def _unnamed(case: Case, found: Blame) -> Finding:
    """Culprit, lines and an honest 'cause unknown'."""
    if found.kind == HIDDEN:
        return _held_up_unseen(case)
    if found.kind == "nothing" and all(a.kind == "store-wait" for a in case.activities.values()):
        return _all_meet(case)
    if found.kind == "nothing" and case.job.ended:
        return Finding(
            "",
            f"The command ended with {_status_text(case.job.exit_status)}, although every rank had ended well.",
            "the launcher failed after its ranks, or an earlier job that it had started did",
            "read the command's own last lines",
        )
    if found.kind == "nothing":
        busy = sorted({a.text if a.kind in _THINGS else a.kind for r, a in case.activities.items() if r in case.seen})
        text = f"no rank waits for another; they are {', '.join(busy)}."
        return Finding("", capital(text), "the ranks have issued nothing for a while, each by itself", "")
    if found.kind == "arrived" and not case.programs:
        return Finding(
            "",
            "All ranks stand in the same call and it does not complete; what parted them happened earlier.",
            "no call sequences could be read, and the stacks alone do not show the past",
            case.to_see_history,
        )
    if found.kind == "messages":
        return Finding(
            "",
            "All ranks wait for messages of each other, and none arrives.",
            "every rank stands in a send or recv; whom for, the stacks do not show",
            "look for a message whose partner stands elsewhere, or whose order differs from its partner's"
            if any(rank.journal is not None for rank in case.job.ranks)
            else case.to_see_history,
        )
    if not found.culprits:
        what = "The job has ended" if case.job.ended else "The job does not move"
        why = "nothing tells which rank failed first" if case.job.ended else "the wait-for graph names nobody"
        return Finding("", f"{what} and no rank stands out.", why, "")
    others = others_of(case, found)
    first = case.activities[found.culprits[0]]
    link = "" if first.text.startswith(_PARTICIPLES) else "in "
    what = f"{name_ranks(found.culprits)} {verb(found.culprits, 'is', 'are')} {link}{doing(first)}"
    waiting = wait_sentence(case, others)
    if all(case.ranks[rank].identity == UNSEEN for rank in found.culprits):
        what = f"nothing is known of {name_ranks(found.culprits)}"
        why = "no process says that it is this rank: one that has not joined yet, has ended or is on another machine "
        why += "does not"
        fix = "look at the other processes of the job (`py-spy dump --pid PID`)"
        return Finding("", capital(f"{what}; {waiting}." if waiting else f"{what}."), why, fix)
    if found.kind == "outside" and first.kind == "event-loop":
        why = f"no task of {name_ranks(found.culprits)}'s event loop is ready: what it awaits there does not come"
        fix = "see which task should have brought it, and whether that one ended, failed or was never started"
        return Finding("", capital(f"{what}; {waiting}." if waiting else f"{what}."), why, fix)
    why = {
        "cycle": "every one of them waits for another: " + _circle(case) + _parted_now(case, found, others),
        "outside": f"{name_ranks(found.culprits)} {verb(found.culprits, 'waits', 'wait')} for something outside "
        "the job that hangdoc has no name for"
        if not found.alternatives
        else f"what {name_ranks(found.culprits)} {verb(found.culprits, 'waits', 'wait')} for could not be seen",
    }.get(found.kind, "no cause of the catalogue fits")
    return Finding("", capital(f"{what}; {waiting}." if waiting else f"{what}."), why, "")


def _parted_now(case: Case, found: Blame, others: tuple[int, ...]) -> str:
    """The condition by which the culprits stand where the others do not; '' where none can be seen."""
    if not others:
        return ""
    stacks = (case.activities[found.culprits[0]].stack, case.activities[others[0]].stack)
    partings = parted(case.sources, case.values, stacks, (found.culprits, others))
    told = condition_text(case, replace(found, partings=tuple(p for p in partings if not p.uneven)[:1]))
    return f"; {told}" if told else ""


def _held_up_unseen(case: Case) -> Finding:
    """The ranks that were seen only wait, or failed because a peer left: the reason is where nobody has looked."""
    hidden, seen = tuple(sorted(case.hidden)), tuple(sorted(case.seen))
    told = capital(told_hidden(case.job, hidden))
    where = wait_sentence(case, seen)
    return Finding(
        "",
        " ".join(f"{sentence}." for sentence in (capital(where), told) if sentence),
        "what holds them up is with the ranks that were not seen, so the reason is open",
        f"look at {name_ranks(hidden)} as well: `hangdoc attach PID` where {verb(hidden, 'it runs', 'they run')}",
    )


def _all_meet(case: Case) -> Finding:
    """Nobody is missing, and yet they wait for each other on the store."""
    first = case.activities[min(case.activities)]
    counted = all(snapshot.identity != "order" for snapshot in case.ranks.values())
    who, rest = (
        ("All ranks are there and", "; none of them is missing") if counted else ("All ranks that were found", "")
    )
    where = f" at {place(first.where)}" if first.where is not None else ""
    return Finding(
        "",
        f"{who} wait for each other in {first.text}{where}{rest}.",
        "they may be waiting on different stores, or on one that holds the keys of an earlier run (a file:// that was "
        "left over, a port that another job uses)",
        "compare MASTER_ADDR, MASTER_PORT and init_method of the ranks, and begin with a fresh file or port",
    )


def _circle(case: Case) -> str:
    parts = [
        f"rank {w.waiter} waits for {name_ranks(w.on)} ({case.activities[w.waiter].text})"
        for w in case.graph.waits
        if w.waiter in case.graph.stuck
    ]
    return "; ".join(parts[:6])


# --- divergence and repair -----------------------------------------------------------------------------------------


def _divergence(case: Case, found: Blame) -> Divergence | None:
    gap, alignment = found.gap, found.alignment
    if gap is None or alignment is None:
        return None
    others = others_of(case, found)
    here, there = telling(gap)
    both = ((gap.mine, here, found.culprits), (gap.theirs, there, others))
    sides = tuple(_side(case, found, token, frame, ranks) for token, frame, ranks in both if ranks)
    branch = (
        describe_branch(
            found.parting,
            case.sources,
            case.values,
            (found.culprits, others),
            past=found.past,
            doubted=bool(also_on_the_way(found)) or may_run_another(case, found),
        )
        if found.parting
        else None
    )
    return Divergence(sides, branch)


def _side(case: Case, found: Blame, token: Token | None, frame: Frame | None, ranks: tuple[int, ...]) -> Side:
    assert found.alignment is not None
    activity = case.activities[ranks[0]]
    key = token.group if token is not None else found.alignment.history.key
    history = next((h for h in case.histories if h.key == key), found.alignment.history)
    if token is None or token.op == END:
        return Side(ranks, history.label, history.members, None, activity.text, activity.where, activity.stack)
    stack = stack_of(case, token, ranks)
    # What another thread issued stands nowhere in the main thread's stack.
    waits_itself = token.pending and token.thread == "MainThread"
    frame = frame or next(iter(user_stack(stack)), None) or (activity.where if waits_itself else None)
    note = (words(stack) or "") if is_implicit(stack) else ""
    op, note = (note, "") if history.inferred and token.op in note else (token.op, note)
    number = None if history.inferred else token.sequence
    return Side(ranks, history.label, history.members, number, op, frame, stack, token.thread, note)


def _repair(found: Blame) -> Repair | None:
    gap, alignment = found.gap, found.alignment
    if gap is None or alignment is None:
        return None
    if _made_otherwise(gap):
        edits = [Edit(rank, "replace", gap.token.op, gap.token.frame) for rank in gap.ranks]
        text = (
            f"with the others' members at {short(gap.token.frame)} on {name_ranks(gap.ranks)}, all groups are the same"
        )
        return Repair(tuple(edits[:_MOST_EDITS]), text)
    if found.late is not None:
        edits = [Edit(rank, "insert", gap.token.op, gap.token.frame) for rank in gap.ranks]
        where = f"the {gap.token.op} at {short(gap.token.frame)}"
        text = f"with {where} on {name_ranks(gap.ranks)} in the same rounds as on the others, the calls match"
        return Repair(tuple(edits[:_MOST_EDITS]), text)
    edits = []
    for each in alignment.gaps:
        if each.token.op == END:
            continue
        edits += [Edit(rank, each.kind, each.token.op, each.token.frame) for rank in each.ranks]
    if not edits:
        edits = [Edit(rank, "revive", "", None) for rank in found.culprits]
        return Repair(tuple(edits), f"had {name_ranks(found.culprits)} gone on, all calls would match")
    return Repair(tuple(edits[:_MOST_EDITS]), _repair_text(found, len(edits)))


def _made_otherwise(gap: Gap) -> bool:
    """Is it one new_group with other members? To leave it out would mend nothing."""
    return (
        gap.mine is not None
        and gap.theirs is not None
        and gap.token.op == "new_group"
        and (gap.mine.site == gap.theirs.site)
    )


def _repair_text(found: Blame, count: int) -> str:
    gap, alignment = found.gap, found.alignment
    assert gap is not None
    assert alignment is not None
    matching = len([t for t in alignment.consensus if t.op != END])
    line = telling_token(gap)
    where = f" at {short(line)}" if line else ""
    start = "without" if gap.kind == "delete" else "with"
    more = f" and {count - len(gap.ranks)} more like it" if count > len(gap.ranks) else ""
    every = "all" if alignment.history.first == 1 else "the last"  # older ones have left their rings
    calls = f"{every} {matching} calls match" if matching > 1 else "the calls match"
    return f"{start} the {gap.token.op}{where} on {name_ranks(gap.ranks)}{more}, {calls}"
