"""HD101, HD102, HD103 and HD109 of a call that all ranks wait in, and some left out in an earlier round of a loop, or
came to by a way of their own."""

from __future__ import annotations

from hangdoc.diagnosis.blame.odd_past import OddPast
from hangdoc.diagnosis.blame.skipped_round import SkippedRound
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.left_traces import left_by, told
from hangdoc.diagnosis.causes.phrases import at, cited
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.landmarks import is_implicit
from hangdoc.diagnosis.source.queries import raises_under
from hangdoc.model.message import (
    Does,
    Joined,
    Message,
    Place,
    Ranks,
    Values,
    Verb,
    conditions_in,
    joined,
    sentence,
)


@cause("HD101", "HD102", "HD103", "HD109", explains=SkippedRound, order=305)
def skipped_in_a_round(case: Case, blame: Blame[SkippedRound]) -> Finding:
    """HD101: one round of a loop left out the call that all wait in now. HD103: after an exception. HD109: of a call
    that a library makes. HD102: nothing but the count of the loop tells."""
    found, culprits = blame.found, blame.culprits
    handled = any(each.source.startswith("except") for each in found.conditions)
    implicit = is_implicit(case.activities[culprits[0]].stack)
    text = case.activities[culprits[0]].text
    shown: list[Message] = [[f"{name} = ", Values(values, " | ")] for name, values in found.shown.items()]
    differs: Message = [Ranks(culprits), " alone ", Verb(culprits, "has", "have")]
    decided: Message = [differs, " gone another way there at ", Joined(found.conditions, " and ")]
    if found.conditions:
        tested = found.conditions[0].source.removeprefix("if ").removesuffix(":")
        agree = f"let all ranks agree on `{tested}` in every round (all_reduce the flag)"
    else:
        return _less_often(case, blame)
    if handled:
        agree = "let all ranks agree to skip a round after an exception (all_reduce a flag)"
    return Finding(
        "HD103" if handled else "HD109" if implicit else "HD101",
        sentence(
            [
                [Ranks(culprits), f" skipped the {text}", at(found.at)],
                [" in an earlier round of the loop (", Place(found.loop.file, found.loop.line), ")"],
            ],
            "all ranks wait in that call now, each in a round of its own",
        ),
        joined(decided, ["it shows in ", Joined(shown, " and ")] if shown else ""),
        f"{agree}, so that each round communicates alike everywhere",
        "",
        found.conditions[0],
        found.conditions[1] if len(found.conditions) > 1 else None,
    )


def _less_often(case: Case, blame: Blame[SkippedRound]) -> Finding:
    """HD102: the culprits came to a later round of the loop with as many calls, and nothing on the way to the call
    tells them apart."""
    found, culprits, others = blame.found, blame.culprits, others_of(case, blame)
    traces = left_by(case, culprits, others)
    shown: list[Message] = [[f"{name} = ", Values(values, " | ")] for name, values in found.shown.items()]
    return Finding(
        "HD102",
        sentence(
            [
                Does(culprits, "is", "are"),
                " in a later round of the loop (",
                Place(found.loop.file, found.loop.line),
                ")",
            ],
            [Does(others, "waits", "wait"), f" in the same {case.activities[culprits[0]].text}", at(found.at)],
        ),
        joined(
            ["they are in different rounds of ", found.loop, " (", Joined(shown), ")"],
            [Ranks(culprits), " came there with fewer calls: an earlier round left one out, or ended early"],
            traces,
        ),
        "make the call equally often in each round on every rank",
        "that this condition left it out is not seen" if traces else "which condition left it out was not seen",
        next(conditions_in(traces), found.loop),
    )


@cause("HD101", "HD103", explains=OddPast, order=305)
def came_another_way(case: Case, blame: Blame[OddPast]) -> Finding:
    """HD101: all wait in one call, and one rank alone has left a function, or a round, by a condition before it. HD103:
    it raised there, or handled what was raised."""
    found, culprits, others = blame.found, blame.culprits, others_of(case, blame)
    first = found.left[0]
    tree = case.sources.function(first.file, first.line)
    raised = first.guard.kind == "try" or (tree is not None and raises_under(tree, first.guard.line))
    return Finding(
        "HD103" if raised else "HD101",
        sentence(
            [Ranks(culprits), f" came to the {case.activities[culprits[0]].text}", at(found.at), " another way"],
            "all ranks wait in that call now, and it does not complete",
        ),
        joined(
            Joined([told(each, (culprits, others)) for each in found.left]),
            ["who leaves out a call there, or makes one more, is a call apart from the others at the next"],
        ),
        "let all ranks agree there (all_reduce a flag), so that each makes the same calls",
        "which call was left out was not seen",
        cited(first.guard, first.file),
        cited(found.left[1].guard, found.left[1].file) if len(found.left) > 1 else None,
    )
