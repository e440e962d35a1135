"""HD101, HD106 and HD107 of jobs whose CPUs run ahead of their devices: calls after the divergence can be compared.

The CPU of such a job goes on issuing calls, so it can be seen whether a call is missing, replaced or only made later.
Where the recorder kept no stacks, operations and sizes are all there is, and the sentences name calls by their numbers.
"""

from __future__ import annotations

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.blame.crossed_groups import CrossedGroups
from hangdoc.diagnosis.blame.further_faults import Further
from hangdoc.diagnosis.blame.precedent import changed_places, is_another_call
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.exchanged import is_swapped, issued_by_another_thread
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.diverging import extra_or_missing_call, no_condition
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.own_loop import what_it_did
from hangdoc.diagnosis.causes.phrases import at, call_name, where_they_wait
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.model.message import Does, Message, Ranks, Values, Verb, joined, sentence

_OF_EXCHANGE = 2
"""Gaps that two calls make which changed places: one call too many, and one too few."""


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


@cause("HD107", explains=CrossedGroups, order=191)
def groups_crossed(case: Case, blame: Blame[CrossedGroups]) -> Finding:
    """HD107: all have issued both calls, in another order."""
    found, culprits = blame.found, blame.culprits
    first, second = (_label(case, t) for t in (found.mine, found.theirs))
    return Finding(
        "HD107",
        sentence(
            [
                [Does(culprits, "uses", "use"), f" `{first}`", at(found.mine.frame), f" before `{second}`"],
                [at(found.theirs.frame), ", ", Ranks(found.others), " the other way round"],
            ],
            "each side waits for the other",
        ),
        [
            [Does(culprits, "waits", "wait"), " in ", _named(case, found.mine), ", "],
            [Ranks(found.others), " in ", _named(case, found.theirs)],
        ],
        "issue the calls of different groups in the same order on every rank",
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


@cause("HD106", "HD108", explains=Diverged, order=145)
def other_operation(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD106: one call is another on the culprits, or comes at another place, and what follows agrees again."""
    # Each branch refuses what looks like an exchange and is none.
    alignment, gap = blame.found.alignment, blame.found.gap
    if not case.streams or gap is None or END in {g.token.op for g in alignment.gaps}:
        return None
    if alignment.history.key not in {h.key for h in case.histories}:
        return None
    swapped = _may_be_exchanged(alignment.gaps) and is_swapped(case.programs, gap.mine, gap.theirs)
    if not swapped and not _is_exchanged(alignment.gaps):
        return None
    # An exchange has two places, of which either may come first by the clocks of two hosts.
    unlike = next((each for each in (gap, *alignment.gaps) if _are_unlike(each)), None)
    if unlike is None or unlike.mine is None or unlike.theirs is None:
        return None
    mine, theirs = unlike.mine, unlike.theirs
    calls: Message = [
        [Does(blame.culprits, "calls", "call"), " ", _named(case, mine), " where "],
        [Does(others_of(case, blame), "calls", "call"), " ", _named(case, theirs)],
    ]
    if issued_by_another_thread(case.programs, mine, theirs):
        return of_two_threads(calls)
    return Finding(
        "HD106",
        sentence(calls),
        no_condition(case, blame, gap),
        "issue the same operation, in the same order, on every rank of the group",
    )


def of_two_threads(calls: Message) -> Finding:
    """HD108; ``calls``: 'rank 2 calls all_reduce where ranks 0 and 1 call all_gather'."""
    return Finding(
        "HD108",
        sentence(["two threads of each rank communicate on one group, and their order differs between ranks: ", calls]),
        "the calls of two threads reach the group in whatever order the threads run",
        "give each thread a process group of its own (dist.new_group), or issue all collectives from one thread",
        "whether one of the threads waits for the other was not seen",
    )


def _are_unlike(gap: Gap) -> bool:
    """True if the two calls at the gap could never match."""
    mine, theirs = gap.mine, gap.theirs
    if mine is None or theirs is None:
        return False
    return (mine.op, mine.sizes, mine.dtypes) != (theirs.op, theirs.sizes, theirs.dtypes)


def _is_exchanged(gaps: tuple[Gap, ...]) -> bool:
    """True if each set of ranks has as many calls too many as too few."""
    return len(gaps) > 1 and not any(_balance(gaps).values())


def _may_be_exchanged(gaps: tuple[Gap, ...]) -> bool:
    """True if the repair is no larger than two calls that changed places: one gap or two, or as many too many as too
    few. Several calls missing in a row count as one gap, at the end of what is known."""
    places = {(gap.ranks, gap.kind, gap.mine and gap.mine.order): gap for gap in gaps}
    return len(places) <= _OF_EXCHANGE or all(abs(more) <= 1 for more in _balance(gaps).values())


def _balance(gaps: tuple[Gap, ...]) -> dict[tuple[int, ...], int]:
    """Set of ranks → by how many calls it has more too many than too few."""
    balance: dict[tuple[int, ...], int] = {}
    for gap in gaps:
        balance[gap.ranks] = balance.get(gap.ranks, 0) + (1 if gap.kind == "delete" else -1)
    return balance


@cause("HD101", explains=Diverged, order=188)
def left_out_across_groups(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD101: one group's calls, or the order across groups, show that a call is missing, or one too many: what follows
    agrees again. In place of it the culprits made one of another group, and that is no order across groups yet."""
    alignment, gap = blame.found.alignment, blame.found.gap
    if not case.streams or gap is None or END in {g.token.op for g in alignment.gaps}:
        return None
    merged = alignment.history.key not in {h.key for h in case.histories}
    across = gap.mine is not None and gap.theirs is not None and gap.mine.group != gap.theirs.group
    if not (merged or across) or (merged and is_swapped(case.programs, gap.mine, gap.theirs)):
        return None
    return _alone(case, blame, gap)


@cause("HD101", explains=Diverged, order=231)
def left_out_or_extra(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD101: a call that looks like any other, as no stack is known, is missing on some ranks, or one too many."""
    gap = blame.found.gap
    if not case.streams or gap is None or gap.token.op == END:
        return None
    return _alone(case, blame, gap)


def _alone(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    if gap.token.frame is not None:
        return extra_or_missing_call(case, blame, gap)
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
    return [f"{call_name(call)} #{call.sequence} of {_label(case, call)}", at(call.frame)]
