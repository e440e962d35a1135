"""HD101, HD106 and HD107 of jobs whose devices run behind: the calls behind the divergence are there to be compared.

The CPU of such a job goes on issuing calls, so it can be seen whether a call is missing, replaced or only made later.
Where the recorder kept no stacks, operations and sizes are all there is, and the sentences name calls by their numbers.
"""

from __future__ import annotations

from collections.abc import Hashable

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, GroupKey, Token
from hangdoc.diagnosis.causes.diverging import no_condition, parted_finding
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.phrases import at, call_name, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.model.message import Does, Message, Ranks, Verb, joined, sentence


@cause("HD106", explains=Diverged, order=145)
def other_operation(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD106: one call is another on the culprits, or comes at another place, and what follows agrees again."""
    alignment, gap = blame.found.alignment, blame.found.gap
    if not case.streams or gap is None or END in {g.token.op for g in alignment.gaps}:
        return None
    if alignment.history.key not in {h.key for h in case.histories}:
        return None
    if not _is_exchanged(alignment.gaps) and not _is_swapped(case, gap):
        return None
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None or (mine.op, mine.sizes) == (theirs.op, theirs.sizes):
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    return Finding(
        "HD106",
        sentence(
            [
                [Does(culprits, "calls", "call"), " ", _named(case, mine), " where "],
                [Does(others, "calls", "call"), " ", _named(case, theirs)],
            ]
        ),
        no_condition(case, blame, gap),
        "issue the same operation, in the same order, on every rank of the group",
    )


def _is_exchanged(gaps: tuple[Gap, ...]) -> bool:
    """True if each set of ranks has as many calls too many as too few."""
    balance: dict[tuple[int, ...], int] = {}
    for gap in gaps:
        balance[gap.ranks] = balance.get(gap.ranks, 0) + (1 if gap.kind == "delete" else -1)
    return len(gaps) > 1 and not any(balance.values())


@cause("HD101", explains=Diverged, order=188)
def left_out_across_groups(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD101: the order across groups shows that a call is missing, or one too many: what follows agrees again."""
    alignment, gap = blame.found.alignment, blame.found.gap
    if not case.streams or gap is None or END in {g.token.op for g in alignment.gaps}:
        return None
    merged = alignment.history.key not in {h.key for h in case.histories}
    if not merged or _is_swapped(case, gap):
        return None
    return _alone(case, blame, gap)


_MOST_BETWEEN = 16
"""Calls between two that changed places, at most; chosen by hand."""


def _is_swapped(case: Case, gap: Gap) -> bool:
    """True if the culprits make the others' call later, and what follows the two agrees: only their order differs.

    Example: culprits [B, A, C], others [A, B, C] → True; culprits [B, C, A], others [A, B, C] → False: there an A is
    missing, and theirs is the next one.
    """
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None:
        return False
    here, there = _from(case, mine, theirs.group), _from(case, theirs, mine.group)
    if not here or not there or here[0] == there[0] or there[0] not in here[:_MOST_BETWEEN]:
        return False
    again = here.index(there[0])
    swapped = _agree([there[0], *here[:again], *here[again + 1 :]], there)
    return swapped >= max(_agree(here, there[1:]) + 1, _agree(here[1:], there))


def _from(case: Case, call: Token, other: GroupKey) -> list[Hashable]:
    """What the rank issues from that call on in its group and the other one."""
    calls = case.programs[call.rank].tokens[call.order :] if call.rank in case.programs else [call]
    return [(t.group, t.op, t.sizes, t.site) for t in calls if t.group in (call.group, other)]


def _agree(some: list[Hashable], others: list[Hashable]) -> int:
    """How many are the same from the start on."""
    pairs = enumerate(zip(some, others, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(some), len(others)))


@cause("HD101", explains=Diverged, order=231)
def left_out_or_extra(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD101: a call that no stack tells apart is missing on some ranks, or one too many."""
    gap = blame.found.gap
    if not case.streams or gap is None or gap.token.op == END:
        return None
    return _alone(case, blame, gap)


def _alone(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    if gap.token.frame is not None:
        return parted_finding(case, blame, gap)
    culprits, others = blame.culprits, others_of(case, blame)
    extra = gap.kind == "delete"
    what: Message = (
        [Ranks(culprits), " alone ", Verb(culprits, "calls", "call"), " ", _named(case, gap.token)]
        if extra
        else [Does(culprits, "skips", "skip"), " ", _named(case, gap.token)]
    )
    return Finding(
        "HD101",
        sentence(what, where_they_wait(case, others)),
        joined(
            [
                [Ranks(culprits), " issued ", _named(case, gap.mine), ", "],
                [Ranks(others), " ", _named(case, gap.theirs)],
            ],
            "the dumps have no stacks, so the line is not known",
        ),
        "call it on every rank of the group, or on none; to see its line, keep stacks in the dumps "
        "(TORCH_INCLUDE_STACK_TRACE=true)",
        "which line issued the call was not seen",
    )


def _named(case: Case, call: Token | None) -> Message:
    """'all_reduce #5 of default_pg at train.py:61 train()'."""
    if call is None:
        return "nothing more"
    label = next((h.label for h in case.histories if h.key == call.group), call.group[0])
    return [f"{call_name(call)} #{call.sequence} of {label}", at(call.frame)]
