"""HD505 and HD508: ranks wait for what they share as processes, and the culprits are past it."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.blame.other_place import OtherPlace
from hangdoc.diagnosis.blame.shared_by_processes import LeftHandover, PassedMeeting, Unset
from hangdoc.diagnosis.blame.unmade_file import ways_past
from hangdoc.diagnosis.blame.unreported import Unreported
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import told
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.ran_alone import ran_alone
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.source.shared_values import GIVEN
from hangdoc.model.message import Condition, Does, Joined, Place, Ranks, Verb, joined, sentence

_MOST_WAYS = 2
"""Ways past the line that a sentence names; chosen by hand."""


@cause("HD505", "HD507", "HD508", explains=Unset, order=378)
def shared_value_not_set(case: Case, blame: Blame[Unset]) -> Finding:
    """HD508: a value in shared memory that ranks poll was not set; HD507: what they wait for in a pipe or a queue was
    not sent; HD505: an event was not set."""
    found, culprits, first = blame.found, blame.culprits, case.activities[blame.found.waiting[0]]
    past = conditions_of_call(case.sources, found.set_at, case.activities[culprits[0]].stack)
    past = [each for each in past if each != found.test] or ways_past(case.sources, found.set_at, found.test)
    past = past[-_MOST_WAYS:]
    done = GIVEN.get(found.signal, "set")
    waits = ("waits", "wait") if found.signal else ("polls", "poll")
    return Finding(
        "HD508" if not found.signal else "HD507" if done in ("sent", "put") else "HD505",
        sentence(
            [Does(culprits, "has", "have"), f" not {done} what ", Does(found.waiting, *waits), " for", at(first.where)],
            where_they_wait(case, culprits),
        ),
        joined(
            [
                [
                    f"it is {done} at ",
                    line_of(found.set_at),
                    "; ",
                    found.test,
                    " decides who comes there and who waits ",
                ],
                ["for it, and ", Ranks(culprits), " alone ", Verb(culprits, "is", "are"), " past it without waiting"],
            ],
            [Joined(past, " or "), " may have led past that line"] if past else "",
        ),
        f"let the line by which it is {done} be reached on every way out, an error as well (`finally`), or tell those "
        "who wait that there is nothing new; give the wait a deadline",
        decided_at=past[-1] if past else found.test,
    )


@cause("HD505", "HD508", explains=PassedMeeting, order=379)
def meeting_passed_by(case: Case, blame: Blame[PassedMeeting]) -> Finding:
    """HD505: a barrier between processes to which not all of them came; HD508: a loop that polls until all have."""
    found = blame.found
    first = case.activities[found.waiting[0]]
    missing = tuple(rank for rank in sorted(case.activities) if rank not in found.waiting)
    stack = case.activities[missing[0]].stack
    met = replace(first.where, function=plain(first.where.function)) if first.where is not None else None
    deciding = conditions_of_call(case.sources, met, stack) if met is not None else []
    if not deciding and met is not None and not found.polled:
        deciding = conditions_of_call(case.sources, met, stack, ("loop",))
    past = ways_past(case.sources, met)[-_MOST_WAYS:] if met is not None and not deciding else []
    place = "loop that waits for all" if found.polled else "barrier between processes"
    waits = ("polls", "poll") if found.polled else ("waits", "wait")
    return Finding(
        "HD508" if found.polled else "HD505",
        sentence(
            [
                [Does(missing, "has", "have"), f" not come to the {place} in which "],
                [Does(found.waiting, *waits), at(first.where)],
            ],
            where_they_wait(case, missing),
        ),
        joined(
            "it ends when every rank has come there",
            [Joined(deciding, " and "), " decides whether a rank comes to it"] if deciding else "",
            [Joined(past, " or "), " may have led past it"] if past else "",
        ),
        "let every rank come there, also one that has nothing to do, or use a barrier of the process group in its "
        "place; give the wait a timeout",
        decided_at=deciding[-1] if deciding else past[-1] if past else None,
    )


@cause("HD102", explains=LeftHandover, order=376)
def left_the_loop_of_values(case: Case, blame: Blame[LeftHandover]) -> Finding:
    """HD102: a rank left the loop in which it exchanged values in shared memory; the others are still in theirs."""
    found, rank = blame.found, blame.culprits[0]
    others = tuple(r for r in sorted(case.activities) if r != rank and r not in found.still)
    still = case.activities[found.still[0]]
    return Finding(
        "HD102",
        sentence(
            [f"rank {rank} has left the loop in which ", Does(found.still, "polls", "poll"), at(still.where)],
            [Does(others, "polls", "poll"), " for it", at(case.activities[others[0]].where)] if others else "",
            where_they_wait(case, (rank,)),
        ),
        joined(
            ["the loop is ", found.loop, ", and all others are still in loops that pass values in shared memory"],
            [found.way_out, " leads out of it"] if found.way_out is not None else "",
        ),
        "let every rank go through as many rounds: agree on the end by a collective, or go on taking and giving what "
        "the others expect until all are done",
        decided_at=found.way_out or found.loop,
    )


@cause("HD508", explains=OtherPlace, order=375)
def elsewhere_in_shared_memory(case: Case, blame: Blame[OtherPlace]) -> Finding:
    """HD508: ranks poll shared memory at one place, and the culprits have gone on to another without their part."""
    found, culprits = blame.found, blame.culprits
    others = tuple(rank for rank in found.readers if rank not in culprits)
    waits, reads = case.activities[found.waiting[0]], case.activities[culprits[0]]
    left = ran_alone(case, (culprits, others))
    parted = left if len(left) <= _MOST_WAYS else []
    loop = Place(found.test.file, found.test.line)
    return Finding(
        "HD508",
        sentence(
            [Does(culprits, "polls", "poll"), f" at {found.name} = {found.here}", at(reads.where)],
            [Does(others, "polls", "poll"), f" there at {found.name} = {found.there}"],
            [
                Does(found.waiting, "waits", "wait"),
                f" for that of all at {found.name} = {found.there}",
                at(waits.where),
            ],
        ),
        joined(
            [
                [
                    "the loop at ",
                    loop,
                    " ends when each of ",
                    Ranks(found.readers),
                    " has done its part at that place; ",
                ],
                [Does(others, "waits", "wait"), " for that place too, so the part that is missing is that of "],
                Ranks(culprits),
            ],
            *(told(each, (culprits, others)) for each in parted),
        ),
        "mark a place in shared memory as done on every way out of what is done there (`finally`), and move on only "
        "together with the mark; give the wait a deadline",
        decided_at=Condition(parted[0].guard.condition, parted[0].file, parted[0].guard.line)
        if len(parted) == 1
        else found.test,
    )


@cause("HD505", "HD507", explains=Unreported, order=377)
def nothing_for_the_launcher(case: Case, blame: Blame[Unreported]) -> Finding:
    """HD507: the program that started the ranks waits for what each of them puts or sends, and one has not; HD505: for
    what each of them sets."""
    found, culprits = blame.found, blame.culprits
    past = conditions_of_call(case.sources, found.given_at, case.activities[culprits[0]].stack)[-_MOST_WAYS:]
    past = past or ways_past(case.sources, found.given_at)[-_MOST_WAYS:]
    done = GIVEN.get(found.signal, "set")
    return Finding(
        "HD507" if done in ("sent", "put") else "HD505",
        sentence(
            [
                [Does(culprits, "has", "have"), f" not {done} what the program that started the ranks waits for"],
                at(found.at),
            ],
            where_they_wait(case, tuple(sorted(case.activities))),
        ),
        joined(
            ["every rank is to do that, at ", line_of(found.given_at)],
            [Joined(past, " or "), " may have led past that line"] if past else "",
        ),
        f"let every rank come to the line by which it is {done}, also one that has nothing to report (an empty result, "
        "or an error); give the wait for it a timeout",
        decided_at=past[-1] if past else None,
    )
