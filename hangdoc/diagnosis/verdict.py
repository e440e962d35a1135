"""Blame and cause become the diagnosis: outcome, sentences, sides, repair, evidence."""

from __future__ import annotations

import math
from dataclasses import replace

from hangdoc.diagnosis.blame.asking import cannot_be_answered, waits_for_a_person
from hangdoc.diagnosis.blame.deciders import blame
from hangdoc.diagnosis.blame.launcher import waiting_for_nodes
from hangdoc.diagnosis.blame.post_mortem import crashed
from hangdoc.diagnosis.calls.groups import with_every_member, with_shared_members
from hangdoc.diagnosis.causes import name_cause
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.unnamed import parted_now
from hangdoc.diagnosis.causes.wait_chain import ends_at
from hangdoc.diagnosis.context import Case, with_native_frames
from hangdoc.diagnosis.dumps import no_surer_than_its_group, too_little
from hangdoc.diagnosis.evidence import gather
from hangdoc.diagnosis.explanation import Blame, Explanation, Nothing, OutsideWait
from hangdoc.diagnosis.frames.library import with_library_frames
from hangdoc.diagnosis.frames.naming import file_names
from hangdoc.diagnosis.sides import divergence, repair
from hangdoc.diagnosis.state.activity import UNSEEN
from hangdoc.diagnosis.state.unseen import note_hidden
from hangdoc.model.catalogue import cause as catalogue_cause
from hangdoc.model.diagnosis import CulpritProcess, Diagnosis
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.message import Message, Ranks, Sentences, joined, sentence
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot
from hangdoc.model.wording import name_duration
from hangdoc.model.writing import Writer


def diagnose(job: JobSnapshot) -> Diagnosis:
    """The verdict on one snapshot. Never raises on odd data: what could not be seen lowers the confidence."""
    job = with_library_frames(job)
    names = file_names(job)
    return replace(_diagnose(job, Writer(names)), file_names=names.told_apart())


def _diagnose(job: JobSnapshot, writer: Writer) -> Diagnosis:
    job = _over_where_all_have_ended(job)
    case = Case(with_native_frames(with_every_member(with_shared_members(job))))
    if not case.activities:
        waiting = waiting_for_nodes(job)
        return _assemble(case, waiting, _outcome(case, waiting), writer) if waiting is not None else _nobody(job)
    if job.ended:
        found, ended = crashed(case)
        return _assemble(case, found, Outcome.CRASHED if ended else Outcome.HEALTHY, writer)
    if not any((r.process and r.process.looks) or r.journal or r.exit for r in job.ranks):
        return _blind(case, _UNSEEN_JOB, writer)
    if all(_ended_well(case.ranks[rank]) for rank in case.seen):
        return replace(
            _nobody(job), outcome=Outcome.HEALTHY, verdict="All ranks have ended; their launcher is still up."
        )
    found = blame(case)
    if job.mode == "dump":
        found = no_surer_than_its_group(found)
        told = too_little(case, found)
        if told is not None:
            ranks = tuple(case.activities[rank] for rank in sorted(case.activities))
            return replace(_blind(case, told, writer), ranks=ranks)
    return _assemble(case, found, _outcome(case, found), writer)


def _over_where_all_have_ended(job: JobSnapshot) -> JobSnapshot:
    """``job``, as one that has ended where every rank has and not all of them well, though the launcher is still up:
    it, or another hangdoc, has ended those that a first one left behind, so who was ended is not to blame for it."""
    if job.ended or len(job.ranks) < (job.world_size or 1) or any(rank.exit is None for rank in job.ranks):
        return job
    return job if all(map(_ended_well, job.ranks)) else replace(job, ended=True)


def _ended_well(rank: RankSnapshot) -> bool:
    end = rank.exit
    return end is not None and not end.status and not end.signal and not end.exception


def _outcome(case: Case, found: Blame[Explanation]) -> Outcome:
    if found.proved or _will_never_go_on(case, found):
        return Outcome.HANG
    if case.job.mode == "attach":
        return _outcome_of_a_look(case, found)
    if case.job.stalled_for >= case.job.give_up_after and not _working(case, found):
        return Outcome.HANG
    return Outcome.SLOW


def _will_never_go_on(case: Case, found: Blame[Explanation]) -> bool:
    """Can what the culprits wait for not come, however long one waits?"""
    if not isinstance(found.found, OutsideWait):
        return False
    return any(rank in case.deadlocks or cannot_be_answered(case, rank) for rank in found.culprits)


def _outcome_of_a_look(case: Case, found: Blame[Explanation]) -> Outcome:
    """Nobody timed the stall: what the two looks show has to do. Somebody attached because it looks frozen, so a
    rank that waits for something outside counts as hung, one that works does not."""
    moving = [case.activities[rank].moving for rank in case.seen]
    if isinstance(found.found, Nothing) or all(moving):
        return Outcome.HEALTHY if any(moving) else Outcome.SLOW
    asking = isinstance(found.found, OutsideWait) and all(waits_for_a_person(case, rank) for rank in found.culprits)
    return Outcome.SLOW if asking or _working(case, found) else Outcome.HANG


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


_UNSEEN_JOB = Finding(
    "",
    "No rank of the job could be looked at, so hangdoc cannot say why the job does not move.",
    "no rank of the job could be looked at",
    "`hangdoc doctor` shows what blocks it here",
)


def _blind(case: Case, told: Finding, writer: Writer) -> Diagnosis:
    return Diagnosis(
        outcome=Outcome.BLIND,
        verdict=writer.write(told.verdict),
        why=writer.write(Sentences(told.why)),
        fix=writer.write(Sentences(told.fix)),
        evidence=(),
        unavailable=case.job.unavailable,
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size,
    )


def _assemble(case: Case, found: Blame[Explanation], outcome: Outcome, writer: Writer) -> Diagnosis:
    named = _no_hang(case) if outcome == Outcome.HEALTHY and not case.job.ended else name_cause(case, found)
    if isinstance(found.found, OutsideWait) and found.alternatives:
        named = replace(named, why=joined(named.why, parted_now(case, found, found.alternatives[0])))
    if outcome == Outcome.SLOW:
        named = replace(named, verdict=joined(named.verdict, _until_a_hang(case, found), between=" "))
    confidence, sure = _how_sure(case, found, outcome, named.doubt)
    return Diagnosis(
        outcome=outcome,
        verdict=writer.write(named.verdict),
        confidence=confidence,
        cause=catalogue_cause(named.code) if named.code else None,
        culprits=tuple(sorted(found.culprits)),
        alternatives=found.alternatives,
        culprit_processes=found.processes or _culprit_processes(case, found),
        victims=_victims(case, found),
        why=writer.write(Sentences(named.why)),
        fix=writer.write(Sentences(named.fix)),
        sure=sure,
        repair=repair(found, writer),
        divergence=divergence(case, found),
        ranks=tuple(case.activities[rank] for rank in sorted(case.activities)),
        waits=case.graph.waits,
        evidence=gather(case, found, writer),
        unavailable=(*note_hidden(case.job, tuple(sorted(case.hidden))), *case.job.unavailable),
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size or len(case.activities) or None,
        unseen=tuple(sorted(case.hidden | {r for r, rank in case.ranks.items() if rank.identity == UNSEEN})),
    )


def _how_sure(case: Case, found: Blame[Explanation], outcome: Outcome, doubt: str) -> tuple[Confidence, str]:
    """The confidence and its reason: no hang is certain that is not proved, or that has a double."""
    confidence, sure = found.confidence, found.sure
    unproved = outcome == Outcome.HANG and not found.proved
    if confidence == Confidence.CERTAIN and (unproved or doubt):
        confidence = Confidence.LIKELY
    sure += f"; {doubt}" if doubt else ""
    waited = unproved and case.activities and case.job.stalled_for and not _will_never_go_on(case, found)
    return confidence, sure + (f"; waited {name_duration(case.job.stalled_for)} for it" if waited else "")


def _until_a_hang(case: Case, found: Blame[Explanation]) -> str:
    """When a job that is only slow will count as a hang; '' for one that works, and where nobody timed the stall."""
    left = case.job.give_up_after - case.job.stalled_for
    if case.job.mode == "attach" or _working(case, found) or not 0 < left < math.inf:
        return ""
    return f"If nothing moves, it counts as a hang in {name_duration(left)} (--give-up-after)."


def _victims(case: Case, found: Blame[Explanation]) -> tuple[int, ...]:
    if not found.culprits:
        return ()
    return tuple(sorted({w.waiter for w in case.graph.waits} - set(found.culprits)))


def _culprit_processes(case: Case, found: Blame[Explanation]) -> tuple[CulpritProcess, ...]:
    """The culprits' processes; behind each the child that its wait was followed to, where that is the real cause."""
    processes: list[CulpritProcess] = []
    for rank in sorted(found.culprits):
        child = ends_at(case, rank) if isinstance(found.found, OutsideWait) else None
        processes += [_process(case, rank), *([child] if child is not None else [])]
    return tuple(processes)


def _process(case: Case, rank: int) -> CulpritProcess:
    snapshot = case.ranks[rank]
    pid = snapshot.process.pid if snapshot.process else None
    return CulpritProcess(rank, pid, snapshot.host, "rank", case.job.run_id)


def _no_hang(case: Case) -> Finding:
    still = tuple(r for r, a in case.activities.items() if not a.moving and r in case.seen)
    told: Message = ["no rank waits for another (", Ranks(still), " at rest at the moment)"]
    verdict = sentence(["no hang: ", told if still else "all ranks move"])
    return Finding("", verdict, "CPU time, I/O or stacks changed between two looks a second apart", "")
