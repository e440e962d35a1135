"""HD202: a message is there under one tag, and expected under another.

Either the tag is wrong, and what it was computed from decides; or the two lines never pass a message to each other, and
one rank has left out the message that the other one awaits, or awaits one that is not due. Example: rank 1 sends the
data with tag 200, and rank 2 waits for the header with tag 100, which rank 1 sends `if shape != self.announced:`.
"""

from __future__ import annotations

from hangdoc.diagnosis.bounds import NAMED
from hangdoc.diagnosis.causes.deciding import subject_of
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.unmatched import awaited_under, left_out
from hangdoc.diagnosis.condition.matching_message import Matching, matching, of_same_tag, tag_of_both, tag_set_by
from hangdoc.diagnosis.condition.ways_past import around_line
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import same_line
from hangdoc.diagnosis.messages.faults import TagMismatch
from hangdoc.model.kinds import ActivityKind
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
        said = said if any(conditions_in(said)) else _not_expected(case, found)
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


def _by_source(case: Case, found: TagMismatch) -> list[Message]:
    """Clauses on the conditions around both calls and around those that are written with their tags, where stacks alone
    are there to see."""
    clauses: list[Message] = []
    for rank, peer in ((found.receiver, found.sender), (found.sender, found.receiver)):
        waiter = case.activities[rank]
        op = "send" if waiter.kind == ActivityKind.RECV else "recv"
        partner = of_same_tag(case.sources, waiter.where, names(f"{_OPS[op]}_message"))
        given = around_line(case, partner) if partner is not None else []
        if given:
            here: Message = [f"the {op} of the tag that rank {rank} waits with is at ", place(partner), ", under "]
            clauses.append([here, Joined(given, " and "), f": rank {peer} is not there"])
        clauses += awaited_under(case, waiter)
    return clauses


_OPS = {"send": "sends", "recv": "receives"}


def _not_expected(case: Case, found: TagMismatch) -> list[Message]:
    """Clauses on the message that the sender waits in, and for which the receiver has not come to its recv."""
    sender = case.activities[found.sender]
    waits = sender.where is not None and found.frame is not None and same_line(sender.where, found.frame)
    taken = matching(case, sender, found.receiver) if waits else None
    return left_out(case, sender, found.receiver, taken) if taken is not None else []


def _computed(case: Case, found: TagMismatch, partner: Matching | None) -> list[Message]:
    """Clauses on what the tag was computed from, on the rank that strayed; on either, where both did. Where that only
    counts rounds, one with another tag was left out before: on what decides about the messages of the line."""
    awaits = case.activities[found.receiver].where
    lines = {found.sender: found.frame, found.receiver: awaits}
    ranks = [found.strayed] if found.strayed is not None else list(lines)
    answers = [each for rank in ranks for each in tag_set_by(case.sources, lines[rank])]
    told = list(dict.fromkeys(answers))[:NAMED]
    if not told and partner is not None:
        receiver = case.activities[found.receiver]
        late = found.strayed == found.receiver
        return awaited_under(case, receiver) if late else left_out(case, receiver, found.sender, partner)
    if not told and not case.has_history:
        return _by_source(case, found)
    return [[subject_of(answer), Joined(answer.tests, " and ")] for answer in told]
