"""HD305, HD505, HD507 and HD508: all ranks wait at one line, and the culprit there for another round, place or name."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.blame.odd_by_value import OutOfStep
from hangdoc.diagnosis.causes.alone_elsewhere import CODES
from hangdoc.diagnosis.causes.call_conditions import conditions_of_call
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.phrases import cited, place
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import plain
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.needs.identity import Apart
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.syntax import function_name, last_name, walk
from hangdoc.model.kinds import ActivityKind
from hangdoc.model.message import Condition, Joined, Message, Ranks, conditions_in, joined, sentence
from hangdoc.model.process import Frame

_MOST_CONDITIONS = 2
"""Conditions that a sentence names; chosen by hand."""


@cause("HD305", "HD505", "HD507", "HD508", explains=OutOfStep, order=368)
def out_of_step(case: Case, blame: Blame[OutOfStep]) -> Finding:
    """What all wait for is named by a value that is another one on the culprit."""
    found, others = blame.found, others_of(case, blame)
    values, name = dict(found.apart.values), found.apart.name
    others = tuple(rank for rank in others if rank in values)
    mine, theirs = values[blame.culprits[0]], values[others[0]]
    decided = _set_by(found.apart) or _decided(case, blame)
    kind = case.activities[blame.culprits[0]].kind
    from_one = f"let all ranks take `{name}` from one source (broadcast it, or count it from the same start on each)"
    if found.apart.is_round:
        from_one = "let all ranks name alike what they set and wait for: by one store, one prefix and the same counters"
    return Finding(
        "HD305" if kind is ActivityKind.STORE_WAIT else CODES.get(kind, ""),
        sentence(
            [Ranks(blame.culprits), " waits for something else than the others at ", place(found.at)],
            [f"there `{name}` is {mine} on ", Ranks(blame.culprits), f" and {theirs} on ", Ranks(others)],
        ),
        joined("" if found.apart.is_round else f"what they wait for goes by `{name}`", decided),
        f"{from_one}, and give the wait a deadline",
        decided_at=next(conditions_in(decided), None) if not found.apart.variable else None,
    )


def _set_by(apart: Apart) -> Message:
    """Of a value of the environment, which variable gives it, and where."""
    at = apart.definition
    return [f"it is {apart.variable}, by ", Condition(at.text, at.file, at.line)] if apart.variable else ""


def _decided(case: Case, blame: Blame[OutOfStep]) -> Message:
    """Under which conditions it is set anew, or what else led the culprit there."""
    found, name = blame.found, blame.found.apart.name
    set_under = set_anew_under(case, found.at, name)
    if set_under:
        return [f"whether `{name}` is set anew is decided by ", Joined(set_under, " and ")]
    decided = left_by_culprits(case, blame)
    past = conditions_of_call(case.sources, found.at, ()) if not decided else []
    return [Joined(past, " and "), " decides whether a rank comes there in a round"] if past else decided


def set_anew_under(case: Case, at: Frame, name: str) -> list[Condition]:
    """The conditions under which the value is set anew, or counted on, or the function is called that does that: not
    where ranks wait ``at`` that line by it, nor without a condition where its object is made."""
    last, here = name.rpartition(".")[2], plain(at.function).rpartition(".")[2]
    conditions: dict[Condition, None] = {}
    for file, tree in case.sources.user_trees():
        for node in (n for n in walk(tree) if isinstance(n, ast.Assign | ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            function = function_name(tree, node.lineno)
            if last not in map(last_name, targets) or (function == here and "." in name):
                continue
            made = function in names("makes_object")
            own = [cited(g, file) for g in guards(tree, node.lineno) if made and g.kind in CONDITIONS]
            found = own if made else conditions_of_call(case.sources, Frame(file, node.lineno, function), ())
            conditions |= dict.fromkeys(found)
    return list(conditions) if len(conditions) <= _MOST_CONDITIONS else []
