"""The diagnosis of a job of which only logs are left."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangdoc.diagnosis.logs.clashes import at_line_of, clashes, refusals
from hangdoc.diagnosis.logs.code import excerpts
from hangdoc.diagnosis.logs.failed import failures
from hangdoc.diagnosis.logs.known import Known
from hangdoc.diagnosis.logs.missing import behind_without_timeout, missing
from hangdoc.diagnosis.logs.others import all_arrived, facts_only, messages
from hangdoc.diagnosis.logs.reading import Reading, Strength, name_meeting, user_frame
from hangdoc.diagnosis.logs.set_up import barrier_victims, ras, rendezvous
from hangdoc.model.catalogue import cause
from hangdoc.model.diagnosis import Activity, Diagnosis, Divergence, Evidence
from hangdoc.model.kinds import ActivityKind, Confidence, Outcome
from hangdoc.model.logged import WAIT, Logged
from hangdoc.model.message import Does, Message, Sentences, sentence
from hangdoc.model.operations import operation
from hangdoc.model.snapshot import JobSnapshot, Unavailable
from hangdoc.model.writing import Writer

_COUNTS_BUCKETS = "HD111"
_COMPARE = "Compare the branches above these lines: the ranks took different ones."
_NEXT_TIME = Unavailable(
    "journal",
    "a log does not show which calls each rank made, nor its stacks",
    "Next time put `hangdoc watch` in front of the command, or set TORCH_FR_BUFFER_SIZE=2000 and "
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1.",
)


def tells_of_calls(job: JobSnapshot) -> bool:
    """True if the logs tell who is missing, what clashes or who failed, or there are no stacks of two ranks to compare.

    The stack of a time-out shows no more than the line of its wait: it counts where nothing else tells who is missing.
    """
    logged = job.logged
    seen = sum(rank.process is not None for rank in job.ranks)
    if logged is None or not seen:
        return True
    reading = best_reading(Known(job, logged))
    if reading is None:
        return False
    if seen == 1 and (logged.overdue or reading.strength < Strength.FACTS):
        return True
    pasted = any(stack.place.kind != WAIT and stack.rank is not None for stack in logged.stacks)
    weakest = Strength.CIRCLE if pasted else Strength.NOT_SEEN
    return reading.strength <= weakest or reading.strength is Strength.ALL_ARRIVED


def no_more_than_stacks_show(told: Diagnosis, writer: Writer) -> Diagnosis:
    """``told`` by stacks alone, with what only histories show taken back.

    A rank that is past a call with a root has not left it out for that: the root is done with it before the others, and
    rightly goes on. And how many gradient buckets a rank has reduced no stack tells.
    """
    sides = told.divergence.sides if told.divergence is not None else ()
    edits = told.repair.edits if told.repair is not None else ()
    past_root = any(edit.edit == "insert" and operation(edit.call.split()[0]).rooted for edit in edits)
    counted = told.cause is not None and told.cause.code == _COUNTS_BUCKETS
    if len(sides) < 2 or not told.culprits or not (past_root or counted):
        return told
    where: list[Message] = [[Does(each.ranks, "is", "are"), f" in {each.op}", at_line_of(each.stack)] for each in sides]
    plain = replace(told, verdict=writer.write(sentence(*where)), cause=None, repair=None, why="", fix=_COMPARE)
    if not past_root:
        return plain
    doubt = "a root leaves its call before the others, so the stacks do not show which side is wrong"
    pairs = tuple(each.ranks for each in sides)
    return replace(plain, culprits=(), victims=(), confidence=Confidence.POSSIBLE, alternatives=pairs, sure=doubt)


def judged(job: JobSnapshot, logged: Logged, writer: Writer) -> Diagnosis:
    """The strongest reading of a job's logs, as a diagnosis."""
    known = Known(job, logged)
    reading = best_reading(known)
    if reading is None:
        return Diagnosis(
            outcome=Outcome.BLIND,
            verdict="The log tells of no hang and of no failure.",
            fix="Give the logs of all ranks, up to the end of the job.",
            unavailable=(*job.unavailable, _NEXT_TIME),
            world_size=job.world_size,
        )
    return _diagnosis(known, reading, writer)


def told_in_logs(job: JobSnapshot, writer: Writer) -> Iterator[Evidence]:
    """What the outputs of a job that was looked at come to by themselves: torch's watchdog, its reports of
    mismatches."""
    if job.logged is None or job.mode == "log":
        return
    reading = best_reading(Known(job, job.logged))
    if reading is None or reading.strength > Strength.ALL_ARRIVED:
        return
    places = ", ".join(f"{source.file}:{source.line}" for source in reading.sources[:2])
    ranks = reading.culprits or (tuple(sorted(reading.meeting.waiting)) if reading.meeting is not None else ())
    yield Evidence("log", ranks, f"the job's own output ({places}): {writer.write(reading.verdict)}")


def best_reading(known: Known) -> Reading | None:
    """The reading with the strongest evidence; of equal ones the first that names a rank."""
    found = list(_readings(known))
    return min(found, key=lambda each: (each.strength, not each.culprits), default=None)


def _readings(known: Known) -> Iterator[Reading]:
    for way in (
        clashes, refusals, missing, behind_without_timeout, barrier_victims, ras, rendezvous, messages, all_arrived,
        failures, facts_only,
    ):  # fmt: skip
        yield from way(known)


def _diagnosis(known: Known, reading: Reading, writer: Writer) -> Diagnosis:
    attempts = known.logged.attempts
    last = f"This is the last of {attempts} attempts." if attempts > 1 else ""
    waiting = tuple(sorted(reading.meeting.waiting)) if reading.meeting is not None else ()
    return Diagnosis(
        outcome=reading.outcome,
        verdict=" ".join(filter(None, (writer.write(reading.verdict), last))),
        confidence=reading.confidence,
        cause=cause(reading.code) if reading.code else None,
        culprits=tuple(sorted(reading.culprits)),
        alternatives=reading.alternatives,
        victims=tuple(r for r in waiting if r not in reading.culprits) if reading.culprits else (),
        why=writer.write(Sentences(reading.why)),
        fix=writer.write(Sentences(reading.fix)),
        sure=writer.write(reading.sure),
        code=excerpts(known, reading),
        divergence=Divergence(reading.sides) if len(reading.sides) > 1 else None,
        ranks=tuple(_activities(known)),
        evidence=tuple(_evidence(known, reading)),
        unavailable=(*known.job.unavailable, *_missing_next(reading)),
        command=known.job.command,
        world_size=known.world or len(known.ranks) or None,
    )


def _missing_next(reading: Reading) -> tuple[Unavailable, ...]:
    return () if reading.confidence is Confidence.CERTAIN and reading.outcome is Outcome.CRASHED else (_NEXT_TIME,)


def _evidence(known: Known, reading: Reading) -> Iterator[Evidence]:
    """The lines that show it, by file and number."""
    ranks = reading.culprits or (tuple(sorted(reading.meeting.waiting)) if reading.meeting is not None else ())
    for source in dict.fromkeys(reading.sources):
        yield Evidence("log", ranks, f"{source.kind}: {source.file}:{source.line}")
    if reading.meeting is not None:
        others = [m for m in known.meetings if m is not reading.meeting][:4]
        for meeting in others:
            yield Evidence(
                "log", tuple(sorted(meeting.waiting)), f"also overdue: {name_meeting(meeting)}", decides=False
            )


def _activities(known: Known) -> Iterator[Activity]:
    """What each rank did last, as the logs tell it."""
    for rank in known.ranks:
        calls = known.overdue.get(rank, ())
        end = known.ends.get(rank)
        host = end.host if end is not None else ""
        if calls:
            call = calls[0]
            text = f"{call.op}  " + (f"#{call.sequence}" if call.sequence >= 0 else "")
            frame = user_frame(call.stack)
            yield Activity(rank, host, None, ActivityKind.IN_COLLECTIVE, text.strip(), frame, call.stack, op=call.op,
                           group=call.group, sequence=call.sequence if call.sequence >= 0 else None)  # fmt: skip
        elif rank in known.alive:
            yield Activity(rank, host, None, ActivityKind.NOT_VISIBLE, "lived on, no overdue call")
        elif end is not None and (end.signal or end.status) and not end.asked:
            how = f"signal {end.signal}" if end.signal else f"status {end.status}"
            yield Activity(rank, host, None, ActivityKind.EXITED, f"ended ({how})")
        else:
            yield Activity(rank, host, None, ActivityKind.NOT_VISIBLE, "no overdue call in the log")
