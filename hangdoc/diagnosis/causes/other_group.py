"""HD202: a message is sent in one process group, and awaited in another."""

from __future__ import annotations

from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.messages.other_group import OtherGroup
from hangdoc.diagnosis.source.guards import CONDITIONS, guards
from hangdoc.model.message import Condition, Joined, Message, joined, sentence
from hangdoc.model.process import Frame


@cause("HD202", explains=OtherGroup, order=242)
def other_group(case: Case, blame: Blame[OtherGroup]) -> Finding:
    """HD202: both sides name each other, in two groups."""
    found = blame.found
    under = [each for each in _around(case, found.sent_at) if each in _around(case, found.wanted_at)]
    alike: Message = [Joined(under[-1:], " and "), f" led rank {found.sender} and rank {found.receiver} the same way"]
    return Finding(
        "HD202",
        sentence(
            [
                [f"rank {found.sender} sends to rank {found.receiver} in {found.sent}", at(found.sent_at)],
                [f", and rank {found.receiver} waits for its message in {found.wanted}", at(found.wanted_at)],
            ],
            where_they_wait(case, others_of(case, blame)),
        ),
        joined(
            "a message is delivered within its process group only; all other messages have their partner",
            alike if under else "",
        ),
        "let both ranks of a pair pass the message in the same process group: choose the group by what both of them "
        "know, for example by the rank of the sender alone",
        decided_at=under[-1] if under else None,
    )


def _around(case: Case, frame: Frame) -> list[Condition]:
    """The conditions around the line, those further out first."""
    tree = case.sources.function(frame.file, frame.line)
    around = guards(tree, frame.line) if tree is not None else []
    return [Condition(g.condition, frame.file, g.line) for g in around if g.kind in CONDITIONS]
