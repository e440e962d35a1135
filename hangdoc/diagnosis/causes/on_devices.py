"""HD101, HD106 and HD107 of jobs whose CPUs run ahead of their devices: calls after the divergence can be compared.

The CPU of such a job goes on issuing calls, so it can be seen whether a call is missing, replaced or only made later.
Where the recorder kept no stacks, operations and sizes are all there is, and the sentences name calls by their numbers.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.blame.further_faults import Further
from hangdoc.diagnosis.blame.precedent import changed_places, is_another_call
from hangdoc.diagnosis.calls.history import Token
from hangdoc.diagnosis.causes.finding import Finding
from hangdoc.diagnosis.causes.own_loop import what_it_did
from hangdoc.diagnosis.causes.phrases import at, call_name
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Message, Ranks, Values, Verb, joined, sentence


@cause("HD101", explains=Disagreement, order=109)
def another_call(case: Case, blame: Blame[Disagreement]) -> Finding | None:
    """HD101: sizes that such calls have had before, but not there: it is another call, and not a wrong size."""
    found, culprits = blame.found, blame.culprits
    if not case.streams or found.what != "arguments" or not culprits or not is_another_call(case, found, culprits):
        return None
    unseen = not all(token.site for token in found.tokens.values())
    to_see = "to see its line, keep stacks in the dumps (TORCH_INCLUDE_STACK_TRACE=true)" if unseen else ""
    return Finding(
        "HD101",
        _calls_another(case, found, culprits),
        joined(
            "calls of both sizes were made before, so one side made an extra call, or skipped one",
            "" if blame.alternatives or unseen else [Ranks(culprits), " left the order that these calls always had"],
        ),
        joined("call it on every rank of the group, or on none", to_see),
        "which lines issued the calls was not seen" if unseen else "",
    )


@cause("HD106", explains=Disagreement, order=108)
def calls_in_another_order(case: Case, blame: Blame[Disagreement]) -> Finding | None:
    """HD106: the culprits make the others' call later, and what follows agrees: two calls of a name changed places."""
    found, culprits = blame.found, blame.culprits
    if not case.streams or found.what != "arguments" or not culprits or not changed_places(case, found, culprits):
        return None
    return Finding(
        "HD106",
        _calls_another(case, found, culprits),
        [Does(culprits, "makes", "make"), " that call later: two calls changed places"],
        "issue the same operation, in the same order, on every rank of the group",
    )


def _calls_another(case: Case, found: Disagreement, culprits: tuple[int, ...]) -> Message:
    """'Rank 1 calls broadcast #9 where ranks 0, 2 and 3 make another call of that name: [64, 100] …'."""
    others = tuple(r for r in found.tokens if r not in culprits)
    return sentence(
        [
            [Does(culprits, "calls", "call"), " ", _named(case, found.tokens[culprits[0]]), " where "],
            [Ranks(others), " ", Verb(others, "makes", "make"), " another call of that name: "],
            Values(found.values),
        ]
    )


def further_sentence(case: Case, fault: Further) -> Message:
    """A fault beside the one that the verdict is about."""
    if fault.left is not None:
        return sentence(["independently of that, ", what_it_did(fault.left)])
    culprits, call = fault.culprits, _named(case, fault.call)
    if fault.what == "alike":
        return sentence([Does(culprits, "does", "do"), " the same among ", Ranks.of({*culprits, *fault.others})])
    how: dict[str, list[Message]] = {
        "arguments": [Does(culprits, "calls", "call"), " ", call, " with other arguments than the rest of the group"],
        "root": [Does(culprits, "calls", "call"), " ", call, " with another root than the rest of the group"],
        "calls": [Does(culprits, "issues", "issue"), " other calls than the rest of the group, from ", call, " on"],
        "late": [Does(culprits, "has", "have"), " not issued ", call, ", in which the rest of the group waits"],
    }
    return sentence(["independently of that, ", *how[fault.what]])


def _label(case: Case, call: Token) -> str:
    return next((h.label for h in case.histories if h.key == call.group), call.group[0])


def _named(case: Case, call: Token | None) -> Message:
    """'all_reduce #5 of default_pg at train.py:61 train()'."""
    if call is None:
        return "nothing more"
    return [f"{call_name(call)} #{call.sequence} of {_label(case, call)}", at(call.frame)]
