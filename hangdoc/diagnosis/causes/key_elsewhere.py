"""HD305: ranks set their keys in different stores, or under different prefixes, and wait for those of each other."""

from __future__ import annotations

import ast

from hangdoc.diagnosis.blame.key_elsewhere import KeyElsewhere, told_apart
from hangdoc.diagnosis.causes.deciding import subject_of
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.left_traces import left_by_culprits
from hangdoc.diagnosis.causes.phrases import at, cited, line_of, place
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.elsewhere.set_before import set_by
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.model.message import Does, Joined, Message, Ranks, Values, conditions_in, joined, sentence
from hangdoc.model.process import Frame

_LEADS_TO = (*CONDITIONS, "try")
"""Kinds of guards by which a rank alone may come to the line that makes its store."""


@cause("HD305", explains=KeyElsewhere, order=382)
def key_elsewhere(case: Case, blame: Blame[KeyElsewhere]) -> Finding:
    """HD305: each rank has set its key and waits for one that the other side has set, elsewhere."""
    found, culprits = blame.found, blame.culprits
    others = tuple(rank for rank in found.waiting if rank not in culprits)
    first = case.activities[culprits[0]]
    left = left_by_culprits(case, blame)
    made = _made(case, blame, others, told=any(conditions_in(left)))
    return Finding(
        "HD305",
        sentence(
            [
                [Does(culprits, "does", "do"), " not use the same store, or the same prefix, as ", Ranks(others)],
                [": each rank has set its own key (", line_of(found.set_at), ") and waits for another's"],
                [at(first.where)],
            ]
        ),
        joined(
            ["every rank sets its key at ", place(found.set_at), " before it waits, so what it waits for was set"],
            made,
            left,
        ),
        "give every rank the same address and prefix: let one rank choose them and tell the others, by a broadcast or "
        "in the environment",
        decided_at=next((each for said in (left, made) for each in conditions_in(said)), None),
    )


def _made(case: Case, blame: Blame[KeyElsewhere], others: tuple[int, ...], *, told: bool) -> Message:
    """'A store is made at train.py:34, with self.generation = 0 on ranks 0 and 1 | 1 on rank 2'; the first line whose
    function has such a name, or else the only line, with what leads there unless that is ``told``; '' where there are
    several."""
    found = blame.found.made_at
    for made_at in found:
        differing = told_apart(case, blame.culprits, others, made_at)
        if differing:
            shown: list[Message] = [[f"{name} = ", Values(each, " | ")] for name, each in differing.items()]
            made: Message = ["a store is made at ", line_of(made_at), ", with ", Joined(shown, "; ")]
            return joined(made, *(_decided(case, made_at, name) for name in differing))
    tree = case.sources.function(found[0].file, found[0].line) if len(found) == 1 else None
    around = (
        [each for each in guards(tree, found[0].line) if each.kind in _LEADS_TO]
        if tree is not None and not told
        else []
    )
    leads: Message = [", to which ", cited(around[-1], found[0].file), " leads"] if around else ""
    return ["a store is made at ", line_of(found[0]), leads] if len(found) == 1 else ""


def _decided(case: Case, made_at: Frame, name: str) -> Message:
    """What decides the value of that name at the line; '' where the source does not tell."""
    here = place_of(case.sources, made_at.file, made_at.line)
    found = set_by(case.sources, here, ast.parse(name, mode="eval").body) if here is not None else []
    return Joined([[subject_of(answer), Joined(answer.tests, " and ")] for answer in found])
