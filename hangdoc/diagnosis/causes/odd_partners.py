"""HD202: a rank chose another partner for its message than the one that waits for it."""

from __future__ import annotations

from hangdoc.diagnosis.blame.odd_partner import OddPartner
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import place, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.drawn_alone import drawn_alone, may_have_drawn
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame
from hangdoc.model.message import Condition, Does, Joined, Message, joined, sentence


@cause("HD202", explains=OddPartner, order=258)
def odd_partner(case: Case, blame: Blame[OddPartner]) -> Finding:
    """HD202: in an exchange by pairs, a rank has chosen a partner that had another one in that round.

    Example: ranks 0 and 2 are left over, rank 0 has chosen rank 2, and rank 2 has chosen rank 4.
    """
    partners, number = blame.found.partners, blame.found.number
    odd = blame.culprits[0]
    at = place(case.activities[odd].where)
    by = next((rank for rank, peer in partners.items() if peer == odd), None)
    rest = tuple(r for r in others_of(case, blame) if r not in partners)
    drawn, said = _drawn(case, odd)
    if number or blame.found.earlier:
        when = f"round {number}" if number else "an earlier round"
        theirs = partners.get(partners[odd])
        verdict = sentence(
            [f"rank {odd} has chosen rank {partners[odd]} for its partner in {when} at ", at],
            f"that one had rank {theirs}" if theirs is not None else "",
            f"rank {by} had chosen rank {odd}" if by is not None else "",
            where_they_wait(case, others_of(case, blame)),
        )
        went_well = "in the rounds before it, all ranks had chosen each other" if number else ""
    else:
        verdict = sentence(
            [
                [f"rank {odd} has chosen rank {partners[odd]} for its partner at ", at],
                [f", which had another one in that round; rank {by} has chosen rank {odd}, and waits for it"],
            ],
            [Does(rest, "waits", "wait"), " behind them"] if rest else "",
        )
        went_well = "all ranks that have gone past that round had chosen each other"
    return Finding(
        "HD202",
        verdict,
        joined(went_well, said),
        "compute the partners from what all ranks know alike (the step, a generator with a common seed that every "
        "rank draws from equally often), so that the partner of a rank's partner is the rank itself",
        decided_at=drawn[0] if drawn else None,
    )


def _drawn(case: Case, rank: int) -> tuple[list[Condition], Message]:
    """(conditions, the clause on them) of what the rank alone has drawn from the generator that chooses the partners,
    else of what it may have drawn."""
    generator = "from the generator that chooses the partners under "
    if alone := drawn_alone(case, rank):
        return alone, [f"rank {rank} alone has drawn {generator}", Joined(alone, " or ")]
    maybe = may_have_drawn(case, rank)
    return maybe, [f"rank {rank} may have drawn {generator}", Joined(maybe, " or ")] if maybe else ""
