"""The steps from a snapshot to a diagnosis, in their order. ``_diagnose`` names them; each has a module of its own.

1. activity        what every rank does now                         context.Case.activities  state.activity
2. wait-for graph  who waits for whom                               context.Case.graph       state.wait_graph
3. minimum repair  the fewest changed calls after which all match   blame.deciders           calls.alignment, repair
4. divergence      the first call of that repair                    blame.divergences        condition.divergence_point
5. ties            which of several equally small repairs to name   blame.tie_break
6. branch          the condition at which the sides diverged        condition.choice         condition.candidates
7. cause           a code, a title and the sentences for it         causes                   causes.registry

Steps 3 to 6 are one question, "who is to blame?": ``blame`` answers it, and the Blame it returns carries the repair,
the divergence, the alternatives of a tie and the branch.
"""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.further_faults import further_faults, with_further
from hangdoc.diagnosis.blame.launcher import waiting_for_nodes
from hangdoc.diagnosis.blame.post_mortem import crashed
from hangdoc.diagnosis.branch_tables import branch_table, with_moment
from hangdoc.diagnosis.call_tables import call_tables
from hangdoc.diagnosis.calls.groups import with_every_member, with_shared_members
from hangdoc.diagnosis.calls.numbers import with_aligned_numbers
from hangdoc.diagnosis.causes.deciding import answers_to_conditions, with_answers
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.led_there import is_around_wait, what_led_there
from hangdoc.diagnosis.causes.left_traces import with_traces
from hangdoc.diagnosis.causes.likeliest import likeliest
from hangdoc.diagnosis.causes.nearest import new_decision, raised_under
from hangdoc.diagnosis.causes.on_devices import further_sentence
from hangdoc.diagnosis.causes.told_by_output import (
    doubted_by_output,
    told_by_output,
    unknown_writer,
    with_output,
    with_written,
)
from hangdoc.diagnosis.causes.unnamed import diverged_now
from hangdoc.diagnosis.causes.wait_chain import ends_at
from hangdoc.diagnosis.code_excerpts import code_excerpts
from hangdoc.diagnosis.confidence import how_sure
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.dumps import end_of_wait, not_shown, read
from hangdoc.diagnosis.evidence import gather, timed_out, written_evidence
from hangdoc.diagnosis.explanation import Blame, Explanation, OutsideWait, Supposed
from hangdoc.diagnosis.frames.library import with_library_frames
from hangdoc.diagnosis.frames.naming import file_names
from hangdoc.diagnosis.frames.native_places import with_native_frames
from hangdoc.diagnosis.hypotheses.blamed import blame
from hangdoc.diagnosis.logs.code import with_branch
from hangdoc.diagnosis.logs.judge import judged, no_more_than_stacks_show, tells_of_calls, told_in_logs
from hangdoc.diagnosis.naming.named import named as named_of
from hangdoc.diagnosis.outcome import has_nothing_to_do, outcome_of, until_a_hang
from hangdoc.diagnosis.reason.provisions import is_library_file
from hangdoc.diagnosis.recorded import caught_evidence, ran_evidence, recorded_evidence
from hangdoc.diagnosis.sides import divergence, repair
from hangdoc.diagnosis.source.backward_lines import with_backward_lines
from hangdoc.diagnosis.state.aborted_calls import with_aborted_calls
from hangdoc.diagnosis.state.activity import UNSEEN
from hangdoc.diagnosis.state.endings import ended_well
from hangdoc.diagnosis.state.told_ends import with_told_ends
from hangdoc.diagnosis.state.unseen import note_hidden
from hangdoc.model.catalogue import cause as catalogue_cause
from hangdoc.model.collector import without_collector
from hangdoc.model.diagnosis import Branch, CulpritProcess, Diagnosis, Divergence
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.model.message import Message, Ranks, Sentences, conditions_in, joined, sentence
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.writing import Writer


def diagnose(job: JobSnapshot) -> Diagnosis:
    """The verdict on one snapshot; of several jobs in one folder of dumps the worst, with the others. Never raises on
    odd data: what could not be seen lowers the confidence."""
    with without_collector():
        if not job.others:
            return _judged(job)
        each = [replace(_judged(one), job=one.run_id) for one in (job, *job.others)]
        worst, *others = sorted(each, key=lambda found: _WORST_FIRST.index(found.outcome))
        return replace(worst, others=tuple(others))


_WORST_FIRST = (Outcome.HANG, Outcome.CRASHED, Outcome.BLIND, Outcome.SLOW, Outcome.HEALTHY)


def _judged(job: JobSnapshot) -> Diagnosis:
    job = with_library_frames(job)
    names = file_names(job)
    return replace(_diagnose(job, Writer(names)), file_names=names.distinguished())


def _diagnose(job: JobSnapshot, writer: Writer) -> Diagnosis:
    if job.mode == "log" and job.logged is not None and tells_of_calls(job):
        told = judged(job, job.logged, writer)
        return with_branch(told, _looked_at(job, writer)) if job.sources and told.culprits else told
    looked = _looked_at(job, writer)
    return no_more_than_stacks_show(looked, writer) if job.mode == "log" else looked


def _looked_at(job: JobSnapshot, writer: Writer) -> Diagnosis:
    """The diagnosis of what processes, stacks and calls show."""
    case = prepared(job)
    # 1. Activity. The case computes it on first use.
    nothing_to_blame = _without_activity(case, writer)
    if nothing_to_blame is not None:
        return nothing_to_blame
    if case.job.ended:
        found, went_wrong = crashed(case)
        return _name_and_assemble(case, found, Outcome.CRASHED if went_wrong else Outcome.HEALTHY, writer)
    # 2. Wait-for graph: ``case.graph``, on first use as well. 3. Minimum repair, 4. divergence, 5. ties, 6. branch.
    found = blame(case)
    if job.mode == "dump":
        return _of_dumps(case, found, writer)
    # 7. Cause.
    return _name_and_assemble(case, found, outcome_of(case, found), writer)


def prepared(job: JobSnapshot) -> Case:
    """The job as the steps work on it: the calls of all sources numbered alike, native frames and ends put in."""
    job = _ended_if_all_ranks_have(job)
    job = with_backward_lines(with_aborted_calls(with_aligned_numbers(with_told_ends(job))))
    return Case(with_native_frames(with_every_member(with_shared_members(job))))


def _of_dumps(case: Case, found: Blame[Explanation], writer: Writer) -> Diagnosis:
    """The diagnosis of a job that only dumps show."""
    reading = read(case, found)
    if reading.said is None:
        named = named_of(case, reading.found)
        found, named = _with_further(case, reading.found, named)
        named = replace(named, verdict=joined(named.verdict, end_of_wait(case), between=" "))
        told = _assemble(case, found, named, reading.outcome, writer)
        return replace(told, unavailable=not_shown(case, reading.outcome))
    ranks = tuple(case.activities[rank] for rank in sorted(case.activities))
    said = reading.said
    if reading.outcome == Outcome.HANG:
        said = replace(said, verdict=joined(said.verdict, end_of_wait(case), between=" "))
    evidence = tuple(timed_out(case, ()))
    unseen = tuple(sorted(case.hidden))
    perhaps = reading.found.alternatives if reading.outcome == Outcome.HANG and not reading.found.culprits else ()
    told = replace(_blind(case, said, writer), outcome=reading.outcome, alternatives=perhaps)
    return replace(told, ranks=ranks, evidence=evidence, unseen=unseen, unavailable=not_shown(case, reading.outcome))


def _with_further(case: Case, found: Blame[Explanation], named: Finding) -> tuple[Blame[Explanation], Finding]:
    """The blame and its name, with the faults of other groups."""
    further = further_faults(case, found)
    also = [further_sentence(case, each) for each in further]
    return with_further(found, further), replace(named, verdict=joined(named.verdict, *also, between=" "))


def _without_activity(case: Case, writer: Writer) -> Diagnosis | None:
    """The diagnosis of a job without any rank, with none that was seen, or whose ranks have all ended well; else
    None."""
    job = case.job
    if not case.activities:
        waiting = waiting_for_nodes(job)
        if waiting is None:
            return _nobody(job)
        return _name_and_assemble(case, waiting, outcome_of(case, waiting), writer)
    if job.ended:
        return None
    if not any((r.process and r.process.looks) or r.journal or r.exit for r in job.ranks):
        return _blind(case, _UNSEEN_JOB, writer)
    if all(ended_well(case.ranks[rank]) for rank in case.seen):
        verdict = "All ranks have ended; their launcher is still up."
        return replace(_nobody(job), outcome=Outcome.HEALTHY, verdict=verdict)
    return None


def _ended_if_all_ranks_have(job: JobSnapshot) -> JobSnapshot:
    """``job``, marked as ended if every rank has ended and at least one of them failed, though the launcher is up.

    The launcher, or another hangdoc, then ended the ranks that outlived the first failure. A rank that was ended
    that way is not to blame, and only the post-mortem knows how to leave it out.
    """
    if job.ended or len(job.ranks) < (job.world_size or 1) or any(rank.exit is None for rank in job.ranks):
        return job
    return job if all(map(ended_well, job.ranks)) else replace(job, ended=True)


def _nobody(job: JobSnapshot) -> Diagnosis:
    """The diagnosis of a program without ranks, and without a launcher that is known to wait for some."""
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


def _blind(case: Case, reason: Finding, writer: Writer) -> Diagnosis:
    """The diagnosis of a job of which too little was seen; ``reason`` says what is missing and how to get it."""
    return Diagnosis(
        outcome=Outcome.BLIND,
        verdict=writer.write(reason.verdict),
        why=writer.write(Sentences(reason.why)),
        fix=writer.write(Sentences(reason.fix)),
        evidence=(),
        unavailable=case.job.unavailable,
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size,
    )


def _name_and_assemble(case: Case, found: Blame[Explanation], outcome: Outcome, writer: Writer) -> Diagnosis:
    named = _named(case, found, outcome)
    if outcome == Outcome.HANG:
        found, named = _with_further(case, found, named)
    return _assemble(case, found, named, outcome, writer)


def _named(case: Case, found: Blame[Explanation], outcome: Outcome) -> Finding:
    """The blame with its cause, and with what the outcome adds to the sentences."""
    named = _no_hang(case) if outcome == Outcome.HEALTHY and not case.job.ended else named_of(case, found)
    if isinstance(found.found, OutsideWait) and found.alternatives:
        said = diverged_now(case, found, found.alternatives[0])
        at = named.decided_at or next(conditions_in(said), None)
        named = replace(named, why=joined(named.why, said), decided_at=at)
    told = (each for each in conditions_in(named.why) if not is_around_wait(case, found, each))
    if found.culprits and named.decided_at is None and not any(told) and not has_nothing_to_do(case, found):
        said = what_led_there(case, found)
        news = not set(conditions_in(named.why)).issuperset(conditions_in(said))
        why = joined(named.why, said) if news or not any(conditions_in(said)) else named.why
        named = replace(named, why=why, decided_at=next(conditions_in(said), None))
    if outcome == Outcome.SLOW:
        named = replace(named, verdict=joined(named.verdict, until_a_hang(case, found), between=" "))
    if case.job.mode == "log":
        named = replace(named, verdict=joined(named.verdict, _how_numbered(case, found), between=" "))
    return named


def _how_numbered(case: Case, found: Blame[Explanation]) -> str:
    """Which process is meant where pasted stacks do not say their ranks; '' where they do."""
    ranks = [rank for rank in found.culprits or sorted(case.seen) if case.ranks[rank].identity == "order"]
    process = case.ranks[ranks[0]].process if ranks else None
    if process is None:
        return ""
    meant = f"rank {ranks[0]} is process {process.pid} here" if process.pid else "they are numbered as they were given"
    return f"The stacks do not say their ranks: {meant}."


def _assemble(case: Case, found: Blame[Explanation], named: Finding, outcome: Outcome, writer: Writer) -> Diagnosis:
    # Of a message, the rank gave either end another part to play.
    by_rank = not (isinstance(found.found, Supposed) and named.code == "HD202")
    sides = with_answers(case, divergence(case, found, named), by_rank=by_rank)
    new, anew = _new_decision(case, found, sides) if not named.recorded else (None, "")
    recorded = new is not None or named.recorded or (found.diverged is not None and found.diverged.is_recorded)
    told = told_by_output(case, found)
    doubts = [named.doubt, "" if recorded else doubted_by_output(sides, told)]
    if told and not recorded:  # what one side wrote besides is no reason where the reason was seen
        doubts.append(unknown_writer(told, named))
        named = with_output(told, named)
        sides = with_written(case, with_answers(case, divergence(case, found, named), by_rank=by_rank), told)
    if new is not None:
        sides = Divergence(sides.sides if sides is not None else (), new)
    branch = sides.branch if sides is not None else None
    answered = answers_to_conditions(case, named.why, branch, by_rank=by_rank)
    cited = tuple(conditions_in(named.why))
    traced, left, unlinked = with_traces(case, found, sides, doubted=any(doubts), cited=cited)
    if recorded and unlinked:
        left = unlinked = ""  # where they parted was seen, and it goes by none of that
    else:
        sides = traced
    sides = with_moment(case, sides, found.culprits)
    branch = sides.branch if sides is not None else None
    confidence, sure = how_sure(case, found, named, outcome, "; ".join(filter(None, (*doubts, unlinked))), branch)
    sides, raised = _with_raised(case, found, sides, named.why)
    branch = sides.branch if sides is not None else None
    nearest: Message = ""
    if outcome == Outcome.HANG and confidence != Confidence.CERTAIN and _is_unsaid(case, branch, named):
        likely, nearest = likeliest(case, found, branch)
        branch = likely or branch
        sides = Divergence(sides.sides if sides is not None else (), likely) if likely is not None else sides
    return Diagnosis(
        outcome=outcome,
        verdict=writer.write(named.verdict),
        confidence=confidence,
        cause=catalogue_cause(named.code) if named.code else None,
        culprits=tuple(sorted(found.culprits)),
        alternatives=found.alternatives,
        culprit_processes=found.processes or _culprit_processes(case, found),
        victims=_victims(case, found),
        why=writer.write(Sentences(joined(named.why, anew, answered, raised, left, nearest))),
        fix=writer.write(Sentences(named.fix)),
        sure=sure,
        repair=repair(found, named, writer),
        divergence=sides,
        code=code_excerpts(case, found, named, sides, writer),
        calls=call_tables(case, found, writer),
        branches=branch_table(case, found.culprits, others_of(case, found), branch, writer),
        ranks=tuple(case.activities[rank] for rank in sorted(case.activities)),
        waits=case.graph.waits,
        evidence=(
            *written_evidence(told),
            *ran_evidence(case, found, sides, writer),
            *recorded_evidence(case, found, sides, writer),
            *caught_evidence(case, found, sides, writer),
            *gather(case, found, writer),
            *told_in_logs(case.job, writer),
        ),
        unavailable=(
            *note_hidden(case.job, tuple(sorted(case.hidden))),
            *case.sources.unread(),
            *case.job.unavailable,
        ),
        command=case.job.command,
        stalled_for=case.job.stalled_for,
        world_size=case.job.world_size or len(case.activities) or None,
        unseen=tuple(sorted(case.hidden | {r for r, rank in case.ranks.items() if rank.identity == UNSEEN})),
    )


def _new_decision(case: Case, found: Blame[Explanation], sides: Divergence | None) -> tuple[Branch | None, Message]:
    if not case.execution:
        return None, ""
    return new_decision(case, found, sides)


def _with_raised(
    case: Case, found: Blame[Explanation], sides: Divergence | None, said: Message
) -> tuple[Divergence | None, Message]:
    if sides is None or sides.branch is None or sides.branch.kind != "try":
        return sides, ""
    branch, words = raised_under(case, found, sides.branch, said)
    return replace(sides, branch=branch), words


def _is_unsaid(case: Case, branch: Branch | None, named: Finding) -> bool:
    """True if no condition is told, or one of a library's where the program's own tests were recorded."""
    if branch is None:
        return not any(conditions_in(named.why))
    return bool(case.execution) and branch.moment is None and is_library_file(branch.file)


def _victims(case: Case, found: Blame[Explanation]) -> tuple[int, ...]:
    if not found.culprits:
        return ()
    return tuple(sorted({w.waiter for w in case.graph.waits} - set(found.culprits)))


def _culprit_processes(case: Case, found: Blame[Explanation]) -> tuple[CulpritProcess, ...]:
    """The culprits' processes; after each the child that its wait was followed to, where that is the real cause."""
    processes: list[CulpritProcess] = []
    for rank in sorted(found.culprits):
        child = ends_at(case, rank) if isinstance(found.found, OutsideWait) else None
        processes += [_process(case, rank), *([child] if child is not None else [])]
    return tuple(processes)


def _process(case: Case, rank: int) -> CulpritProcess:
    snapshot = case.ranks[rank]
    pid = (snapshot.process.pid or None) if snapshot.process else None  # 0: a stack without its pid
    return CulpritProcess(rank, pid, snapshot.host, "rank", case.job.run_id)


def _no_hang(case: Case) -> Finding:
    still = tuple(r for r, a in case.activities.items() if not a.moving and r in case.seen)
    moves: Message = ["the job moves, with ", Ranks(still), " at rest at the moment"]
    verdict = sentence(["no hang: ", moves if still else "all ranks move"])
    return Finding("", verdict, "CPU time, I/O or stacks changed between two looks a second apart", "")
