"""Blame and cause become the diagnosis: outcome, sentences, sides, repair, evidence."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame import blame
from hangdoc.diagnosis.case import Case, with_native_frames
from hangdoc.diagnosis.causes import name_cause
from hangdoc.diagnosis.causes.finding import Finding, capital
from hangdoc.diagnosis.causes.unnamed import parted_now
from hangdoc.diagnosis.crash import crashed
from hangdoc.diagnosis.culprit import Blame, Explanation, Nothing, OutsideWait
from hangdoc.diagnosis.evidence import gather
from hangdoc.diagnosis.launcher import waiting_for_nodes
from hangdoc.diagnosis.members import with_every_member, with_shared_members
from hangdoc.diagnosis.origin import looking_at
from hangdoc.diagnosis.sides import divergence, repair
from hangdoc.model.catalogue import cause as catalogue_cause
from hangdoc.model.diagnosis import CulpritProcess, Diagnosis
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.wording import name_duration, name_ranks


def diagnose(job: JobSnapshot) -> Diagnosis:
    """The verdict on one snapshot. Never raises on odd data: what could not be seen lowers the confidence."""
    with looking_at(job):
        return _diagnose(job)


def _diagnose(job: JobSnapshot) -> Diagnosis:
    case = Case(with_native_frames(with_every_member(with_shared_members(job))))
    if not case.activities:
        waiting = waiting_for_nodes(job)
        return _assemble(case, waiting, _outcome(case, waiting)) if waiting is not None else _nobody(job)
    if job.ended:
        found, ended = crashed(case)
        return _assemble(case, found, Outcome.CRASHED if ended else Outcome.HEALTHY)
    if not any((r.process and r.process.looks) or r.journal or r.exit for r in job.ranks):
        return _blind(case, "no rank of the job could be looked at")
    if all(_ended_well(rank) for rank in case.ranks.values()):
        return replace(
            _nobody(job), outcome=Outcome.HEALTHY, verdict="All ranks have ended; their launcher is still up."
        )
    found = blame(case)
    return _assemble(case, found, _outcome(case, found))


def _ended_well(rank: RankSnapshot) -> bool:
    end = rank.exit
    return end is not None and not end.status and not end.signal and not end.exception


def _outcome(case: Case, found: Blame[Explanation]) -> Outcome:
    if found.proved or (
        isinstance(found.found, OutsideWait) and any(rank in case.deadlocks for rank in found.culprits)
    ):
        return Outcome.HANG
    if case.job.mode == "attach":
        return _outcome_of_a_look(case, found)
    if case.job.stalled_for >= case.job.give_up_after and not _working(case, found):
        return Outcome.HANG
    return Outcome.SLOW


def _outcome_of_a_look(case: Case, found: Blame[Explanation]) -> Outcome:
    """Nobody timed the stall: what the two looks show has to do. Somebody attached because it looks frozen, so a
    rank that waits for something outside counts as hung, one that works does not."""
    moving = [a.moving for a in case.activities.values()]
    if isinstance(found.found, Nothing) or all(moving):
        return Outcome.HEALTHY if any(moving) else Outcome.SLOW
    return Outcome.SLOW if _working(case, found) else Outcome.HANG


def _working(case: Case, found: Blame[Explanation]) -> bool:
    """Do those whom the others wait for (or, where nobody waits, all) still move?"""
    ranks = found.culprits or tuple(case.activities)
    return any(case.activities[r].moving for r in ranks if r in case.activities)


def _nobody(job: JobSnapshot) -> Diagnosis:
    """No rank, and no launcher that is known to wait for some: there is nothing to say about such a program."""
    return Diagnosis(
        outcome=Outcome.HEALTHY if job.mode == "watch" else Outcome.BLIND,
        verdict="No rank of a distributed job was found.",
        unavailable=job.unavailable,
        command=job.command,
        stalled_for=job.stalled_for,
    )


def _blind(case: Case, why: str) -> Diagnosis:
    return Diagnosis(
        outcome=Outcome.BLIND,
        verdict=capital(f"{why}, so hangdoc cannot say why the job does not move."),
        why=why,
        fix="`hangdoc doctor` shows what blocks it here",
        evidence=(),
        unavailable=case.job.unavailable,
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size,
    )


def _assemble(case: Case, found: Blame[Explanation], outcome: Outcome) -> Diagnosis:
    named = _no_hang(case) if outcome == Outcome.HEALTHY and not case.job.ended else name_cause(case, found)
    if isinstance(found.found, OutsideWait) and found.alternatives:
        named = replace(named, why=named.why + parted_now(case, found, found.alternatives[0]))
    victims = _victims(case, found)
    confidence, sure = found.confidence, found.sure
    if outcome == Outcome.HANG and not found.proved and confidence == Confidence.CERTAIN:
        confidence = Confidence.LIKELY
    if named.doubt:
        confidence, sure = (
            Confidence.LIKELY if confidence == Confidence.CERTAIN else confidence,
            f"{sure}; {named.doubt}",
        )
    if outcome == Outcome.HANG and not found.proved and case.activities:
        waited = case.job.stalled_for and not any(rank in case.deadlocks for rank in found.culprits)
        sure += f"; waited {name_duration(case.job.stalled_for)} for it" if waited else ""
    return Diagnosis(
        outcome=outcome,
        verdict=named.verdict,
        confidence=confidence,
        cause=catalogue_cause(named.code) if named.code else None,
        culprits=tuple(sorted(found.culprits)),
        alternatives=found.alternatives,
        culprit_processes=found.processes or tuple(_process(case, rank) for rank in sorted(found.culprits)),
        victims=victims,
        why=named.why,
        fix=named.fix,
        sure=sure,
        repair=repair(found),
        divergence=divergence(case, found),
        ranks=tuple(case.activities[rank] for rank in sorted(case.activities)),
        waits=case.graph.waits,
        evidence=gather(case, found),
        unavailable=case.job.unavailable,
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size or len(case.activities) or None,
    )


def _victims(case: Case, found: Blame[Explanation]) -> tuple[int, ...]:
    if not found.culprits:
        return ()
    return tuple(sorted({w.waiter for w in case.graph.waits} - set(found.culprits)))


def _process(case: Case, rank: int) -> CulpritProcess:
    snapshot = case.ranks[rank]
    pid = snapshot.process.pid if snapshot.process else None
    return CulpritProcess(rank, pid, snapshot.host, "rank", case.job.run_id)


def _no_hang(case: Case) -> Finding:
    still = tuple(r for r, a in case.activities.items() if not a.moving)
    told = f"no rank waits for another ({name_ranks(still)} at rest at the moment)" if still else "all ranks move"
    return Finding("", f"No hang: {told}.", "CPU time, I/O or stacks changed between two looks a second apart", "")
