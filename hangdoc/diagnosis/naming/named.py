"""The name of what happened: by the story that is told of it, or by its form where none is, or has no name."""

from __future__ import annotations

from hangdoc.diagnosis.causes import name_cause
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Explanation, Supposed
from hangdoc.diagnosis.naming.facts import Facts
from hangdoc.diagnosis.naming.words import told


def named(case: Case, blame: Blame[Explanation]) -> Finding:
    """The code and the sentences."""
    if not isinstance(blame.found, Supposed):
        found = name_cause(case, blame)
        circle = blame.culprits and case.graph.stuck.issuperset(blame.culprits)
        if found.code or not circle or not case.program.files:
            return found
    said = told(Facts(case, blame.culprits))
    return Finding(said.code, said.verdict, said.why, said.fix, shown=said.shown)
