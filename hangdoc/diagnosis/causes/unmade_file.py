"""HD508: ranks poll for a file that another one, or one of them, has not made, or not removed."""

from __future__ import annotations

from hangdoc.diagnosis.blame.unmade_file import UnmadeFile, ways_past
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.phrases import at, line_of, where_they_wait
from hangdoc.diagnosis.causes.polled import made_elsewhere
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Condition, Does, Joined, Message, Ranks, Verb, joined, sentence

_MOST_WAYS = 2
"""Ways past the line that a sentence names; chosen by hand."""


@cause("HD508", explains=UnmadeFile, order=377)
def file_not_made(case: Case, blame: Blame[UnmadeFile]) -> Finding:
    """HD508: the culprits were to make, or to remove, the file that the others, or all ranks, poll for."""
    found, culprits = blame.found, blame.culprits
    first = case.activities[found.waiting[0]]
    done, does = ("removed", "removes") if found.removes else ("made", "makes")
    deciding = _deciding(case, blame)
    others = tuple(rank for rank in found.waiting if rank not in culprits)
    return Finding(
        "HD508",
        sentence(
            [
                [Does(culprits, "has", "have"), f" not {done} ", _which(found, culprits), " for which "],
                [Does(others, "polls", "poll"), at(first.where)],
            ],
            where_they_wait(case, tuple(rank for rank in culprits if rank not in found.waiting)),
        ),
        joined(
            [[f"it is {done} at ", line_of(found.made_at)], *_who(found, culprits, does)],
            [Joined(deciding, " or "), " may have led past that line"] if deciding and found.left_by is None else "",
        ),
        f"let the line that {does} it be reached on every way out, an error as well (`finally`), or tell those who "
        "wait that there is none; give the loop a deadline",
        decided_at=deciding[-1] if deciding else found.test,
    )


def _which(found: UnmadeFile, culprits: tuple[int, ...]) -> str:
    return "the file" if not found.own else "its file" if len(culprits) == 1 else "their files"


def _who(found: UnmadeFile, culprits: tuple[int, ...], does: str) -> list[Message]:
    if found.left_by is not None:
        return [", and ", Ranks(culprits), " alone went past that line, by ", found.left_by]
    if found.own:
        return [" by each rank, and ", Ranks(culprits), " never came there"]
    if found.test is None:
        return [", to which ", Ranks(culprits), " alone ", Verb(culprits, "comes", "come")]
    alone: Message = [Ranks(culprits), " alone ", Verb(culprits, "is", "are"), " past it without waiting"]
    return ["; ", found.test, f" decides who {does} it and who waits for it, and ", alone]


def _deciding(case: Case, blame: Blame[UnmadeFile]) -> list[Condition]:
    """The conditions that lead past the line, else the handler of an exception that may."""
    found = blame.found
    if found.left_by is not None:
        return [found.left_by]
    _, deciding = made_elsewhere(case.sources, case.activities[found.waiting[0]].stack) or (None, [])
    # What those who poll have passed says nothing about the culprits' way.
    deciding = deciding or conditions_of_call(case.sources, found.made_at, case.activities[blame.culprits[0]].stack)
    past = ways_past(case.sources, found.made_at, found.test)
    return [each for each in deciding if each != found.test] or past[-_MOST_WAYS:]
