"""The name of what happened: by the story that is told of it, or by its form where none is, or has no name."""

from __future__ import annotations

from dataclasses import replace

from hangdoc.diagnosis.causes import name_cause
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.execution.parting import Seen
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation, Supposed
from hangdoc.diagnosis.naming.codes import is_one_of
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.words import Told, told
from hangdoc.model.message import Condition, Message, Ranks, conditions_in, joined

_OF_CALLS = ("HD108", "HD112")
"""Names that the calls themselves show, whatever guard lies between them: two threads at once, code that the
interpreter runs when it chooses."""
_OF_GUARDS = ("HD101", "HD102", "HD109")


def named(case: Case, blame: Blame[Explanation]) -> Finding:
    """The code and the sentences."""
    facts = Facts(case, blame.culprits)
    if not isinstance(blame.found, Supposed):
        found = name_cause(case, blame)
        by_guard = isinstance(blame.found, Diverged) and found is not None and found.code in _OF_GUARDS
        if found is not None and not (by_guard and is_one_of(facts, _OF_CALLS)):
            return found
    said = told(facts)
    by = blame.found.by if isinstance(blame.found, Supposed) else None
    if by is not None:
        said = _left_out_by(said, by, blame.culprits)
    return Finding(
        said.code,
        said.verdict,
        said.why,
        said.fix,
        said.doubt,
        decided_at=said.decided_at,
        shown=said.shown,
        reorders=said.code == "HD107",  # each of these ranks makes all of the calls
    )


def _left_out_by(said: Told, by: Seen, culprits: tuple[int, ...]) -> Told:
    """What is said of a rank that left its message out by a test that was recorded."""
    at, who = Condition(by.guard.condition, by.frame.file, by.guard.line), Ranks(culprits)
    why: Message = [who, " left a message out once, and ", at, " came out otherwise there once"]
    fix: Message = ["let ", who, " pass the message whichever way ", at, " goes, or let its peer know that none comes"]
    return replace(said, why=joined(said.why if not any(conditions_in(said.why)) else "", why), fix=fix, decided_at=at)
