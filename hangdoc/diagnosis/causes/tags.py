"""HD202: a message is there under one tag, and expected under another.

Either the tag is wrong, and what it was computed from decides; or the two lines never pass a message to each other, and
one rank has left out the message that the other one awaits, or awaits one that is not due. Example: rank 1 sends the
data with tag 200, and rank 2 waits for the header with tag 100, which rank 1 sends `if shape != self.announced:`.
"""

from __future__ import annotations

from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.unmatched import awaited_under, left_out
from hangdoc.diagnosis.condition.matching_message import Matching, matching, tag_of_both
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.messages.faults import TagMismatch
from hangdoc.model.message import Joined, Message, Ranks, conditions_in, joined, sentence


@cause("HD202", explains=TagMismatch, order=240)
def wrong_tag(case: Case, blame: Blame[TagMismatch]) -> Finding | None:
    """HD202: the message is there, under another tag."""
    found = blame.found
    receiver = case.activities[found.receiver]
    others = tuple(r for r in others_of(case, blame) if r not in (found.receiver, found.sender))
    partner = matching(case, receiver, found.sender)
    apart = partner is not None and not partner.issues(found.frame)
    said = _computed(case, found, partner)
    if apart and partner is not None:
        # Either the receiver awaits a message that was left out, or the sender sends one that is not expected.
        said = left_out(case, receiver, found.sender, partner)
        said = said if any(conditions_in(said)) else []
    if found.alone:
        culprit = Ranks(blame.culprits)
        said = [["by what it ran or wrote, ", culprit, " alone has been under ", Joined(found.alone, " and ")]]
    if found.parted:
        way: Message = [Ranks(blame.culprits), " went another way at ", Joined(found.parted, " and ")]
        said = [[way, " than all other ranks, by what they have run"], *said]
    fix: Message = "use one tag for the message on both sides"
    if written := tag_of_both(case.sources, found.frame, receiver.where):
        fix = f"let both ranks come there from the same state: each computes the tag as `{written}`"
    if found.alone or found.parted or (apart and any(conditions_in(said))):
        fix = "let both ranks decide alike whether the message with that tag is passed"
    cited = list(dict.fromkeys(conditions_in(said)))
    return Finding(
        "HD202",
        sentence(
            [
                [f"rank {found.sender} sends to rank {found.receiver} with tag {found.sent}", at(found.frame)],
                [f", and rank {found.receiver} waits for tag {found.wanted} at ", place(receiver.where)],
            ],
            where_they_wait(case, others),
        ),
        joined(
            f"a message is delivered to a recv of its own tag only: {found.sent} was sent, {found.wanted} is expected",
            *said,
        ),
        fix,
        decided_at=cited[0] if cited else None,
        or_at=cited[1] if apart and len(cited) > 1 else None,
    )


def _computed(case: Case, found: TagMismatch, partner: Matching | None) -> list[Message]:
    """Clauses on what decides about the messages of the line: one with another tag was left out before."""
    if partner is None:
        return []
    receiver = case.activities[found.receiver]
    late = found.strayed == found.receiver
    return awaited_under(case, receiver) if late else left_out(case, receiver, found.sender, partner)
