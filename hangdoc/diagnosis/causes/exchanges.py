"""HD104 of an all_to_all: what a rank sends is not what another expects."""

from __future__ import annotations

from hangdoc.diagnosis.blame.exchanges import UnequalExchange, sums_text
from hangdoc.diagnosis.bounds import TRIED
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, call_name, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Does, Message, Ranks, Values, joined, sentence

_FIX = (
    "let every rank take its output split sizes from what the others will send it (exchange the counts by an "
    "all_to_all first), and not from numbers of its own"
)


@cause("HD104", explains=UnequalExchange, order=112)
def exchange_of_other_sizes(case: Case, blame: Blame[UnequalExchange]) -> Finding:
    """HD104: the sizes of one pair differ, or those of the group do not add up."""
    found, culprits = blame.found, blame.culprits
    token = found.tokens[culprits[0] if culprits else next(iter(found.tokens))]
    call: Message = [f"{call_name(token)} #{token.sequence} of {found.history.label}", at(token.frame)]
    others = tuple(rank for rank in others_of(case, blame) if rank not in found.tokens)
    return Finding("HD104", sentence(_clash(blame, call), where_they_wait(case, others)), _why(blame), _FIX)


def _clash(blame: Blame[UnequalExchange], call: Message) -> Message:
    found, culprits = blame.found, blame.culprits
    if found.pair is not None:
        sender, receiver = found.pair
        sent = list(found.given[sender].sent[found.history.members.index(receiver)])
        expected = list(found.given[receiver].expected[found.history.members.index(sender)])
        return [f"rank {sender} sends {sent} to rank {receiver} in ", call, f", and rank {receiver} expects {expected}"]
    values = Values({rank: sums_text(each) for rank, each in found.given.items()}, "; ")
    if culprits:
        return [[Does(culprits, "calls", "call"), " "], call, [" with other sizes than ever before: ", values]]
    sums = [each.sums for each in found.given.values()]
    sent, expected = (sum(column) for column in zip(*sums, strict=True))
    members = tuple(sorted(found.tokens))
    return [
        ["the sizes that ", Ranks(members), " pass to "],
        call,
        f" do not add up: {sent:,} elements are sent and {expected:,} expected",
    ]


def _why(blame: Blame[UnequalExchange]) -> Message:
    values = Values({rank: sums_text(each) for rank, each in blame.found.given.items()}, "; ")
    rule = "what one rank sends another has to be what that one expects from it"
    if blame.found.pair is not None or blame.culprits:
        return rule
    sums: Message = "these dumps hold the sum of each rank's sizes, not its splits"
    return joined(rule, [sums, ": ", values] if len(blame.found.given) <= TRIED else sums)
