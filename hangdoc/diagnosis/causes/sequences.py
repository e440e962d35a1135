"""HD1xx: the ranks' call sequences part."""

from __future__ import annotations

from pathlib import PurePosixPath

from hangdoc.diagnosis.alignment import Gap
from hangdoc.diagnosis.blame import Blame
from hangdoc.diagnosis.branch import Parting, counter_values
from hangdoc.diagnosis.case import Case
from hangdoc.diagnosis.causes.finding import (
    Finding,
    call_name,
    capital,
    condition_text,
    doing,
    others_of,
    place,
    short,
    verb,
    wait_sentence,
)
from hangdoc.diagnosis.landmarks import is_implicit, words
from hangdoc.diagnosis.sequences import END
from hangdoc.model.wording import name_ranks


def uneven_iterations(case: Case, blame: Blame) -> Finding | None:
    """HD102: one side has left the loop, the other is still in it, and nothing else explains the difference."""
    loop = blame.parting
    if blame.gap is None or loop is None or not loop.uneven:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    early = loop.guarded == 1  # the others' call is the one inside the loop
    left, inside = (culprits, others) if early else (others, culprits)
    where = f"{PurePosixPath(loop.file).name}:{loop.guard.line}"
    counts = counter_values(loop, case.values)
    told = "; ".join(
        f"{name} = " + " | ".join(f"{value} on {name_ranks(ranks)}" for value, ranks in _grouped(per_rank))
        for name, per_rank in counts.items()
    )
    why = f"`{loop.guard.condition}` ({where}) ended on {name_ranks(left)} and not on {name_ranks(inside)}"
    why += _iterations(case, blame) + (f" ({told})" if told else "")
    how = "left the loop early" if early else "goes round the loop once more"
    how = how if len(culprits) == 1 else how.replace("goes", "go")
    return Finding(
        "HD102",
        capital(f"{name_ranks(culprits)} {how} ({where}); {wait_sentence(case, others)}."),
        why,
        "give every rank the same number of iterations (DistributedSampler(drop_last=True), or agree on the count "
        "first), or wrap the loop in `torch.distributed.algorithms.Join`",
    )


def _grouped(per_rank: dict[int, str]) -> list[tuple[str, list[int]]]:
    by_value: dict[str, list[int]] = {}
    for rank, value in sorted(per_rank.items()):
        by_value.setdefault(value, []).append(rank)
    return list(by_value.items())


def _iterations(case: Case, blame: Blame) -> str:
    """', after 7 rounds against 8': counted from the journal where it reaches back to the first call."""
    gap, alignment = blame.gap, blame.alignment
    if gap is None or alignment is None or alignment.history.first > 1:
        return ""
    inside = gap.theirs if blame.parting and blame.parting.guarded == 1 else gap.mine
    if inside is None or not inside.site:
        return ""
    history = alignment.history
    counts = [
        sum(t.site == inside.site and t.op == inside.op for t in history.tokens.get(ranks[0], ()))
        for ranks in (blame.culprits, others_of(case, blame))
        if ranks
    ]
    return f": {counts[0]} calls from {short(inside.frame)} against {counts[1]}" if len(counts) == 2 else ""


def order_across_groups(case: Case, blame: Blame) -> Finding | None:
    """HD107: each group's calls match, their order differs between ranks, and no condition leaves one out."""
    gap, alignment = blame.gap, blame.alignment
    if gap is None or alignment is None or gap.mine is None or gap.theirs is None or blame.parting is not None:
        return None
    if gap.mine.group == gap.theirs.group or END in (gap.mine.op, gap.theirs.op):
        return None
    labels = {h.key: h.label for h in case.histories}
    first, second = labels.get(gap.mine.group, "one group"), labels.get(gap.theirs.group, "another")
    others = others_of(case, blame)
    culprits = blame.culprits
    return Finding(
        "HD107",
        capital(
            f"{name_ranks(culprits)} {verb(culprits, 'uses', 'use')} {first} before {second}, {name_ranks(others)} "
            f"{verb(others, 'uses', 'use')} them the other way round; each waits for the other."
        ),
        f"{name_ranks(culprits)} {verb(culprits, 'is', 'are')} in {gap.mine.op} of {first} at {place(gap.mine.frame)}, "
        f"{name_ranks(others)} in {gap.theirs.op} of {second} at {place(gap.theirs.frame)}",
        "issue the calls of different groups in the same order on every rank (sort the keys; do not iterate over sets)",
    )


def implicit_collective(case: Case, blame: Blame) -> Finding | None:
    """HD109: as HD101, but a library communicates on its own."""
    gap = blame.gap
    if gap is None:
        return None
    token = gap.token
    if token.op == END or not is_implicit(token.stack):
        return None
    finding = _parted(case, blame, gap)
    library = words(token.stack) or f"{token.op} inside a library"
    return Finding(
        "HD109",
        finding.verdict,
        f"{short(token.frame)} does not look like communication, but it is: {library} is a collective of all ranks. "
        + finding.why,
        f"let every rank run {place(token.frame) or 'that line'}, or leave the library call out of the "
        "rank-dependent part (for DDP: call the inner `model.module`, or broadcast_buffers=False)",
    )


def collective_on_some_ranks(case: Case, blame: Blame) -> Finding | None:
    """HD101: a branch issues a collective that the others never issue."""
    gap = blame.gap
    if gap is None or gap.token.op == END or not _sites_differ(gap):
        return None
    return _parted(case, blame, gap)


def _sites_differ(gap: Gap) -> bool:
    return gap.mine is None or gap.theirs is None or gap.mine.site != gap.theirs.site


def _parted(case: Case, blame: Blame, gap: Gap) -> Finding:
    culprits, others = blame.culprits, others_of(case, blame)
    alone = verb(culprits, "alone", "alone")
    if gap.kind == "delete":
        what = f"{name_ranks(culprits)} {alone} {verb(culprits, 'calls', 'call')} {call_name(gap.token)}"
        what += f" at {place(gap.token.frame)}" if gap.token.frame else ""
    else:
        what = f"{name_ranks(culprits)} {verb(culprits, 'skips', 'skip')} the {call_name(gap.token)}"
        what += f" of {place(gap.token.frame)}" if gap.token.frame else ""
        if gap.mine is not None and gap.mine.frame is not None:
            what += f" and {verb(culprits, 'goes', 'go')} on to {gap.mine.op} at {place(gap.mine.frame)}"
    verdict = _either(case, blame, gap) if blame.alternatives else f"{what}; {wait_sentence(case, others)}."
    why = condition_text(case, blame) or _no_condition(case, blame, gap)
    return Finding("HD101", capital(verdict), why, _fix(blame, gap))


def _either(case: Case, blame: Blame, gap: Gap) -> str:
    """Two ranks, two stories: name both."""
    mine = f"{call_name(gap.mine)} at {place(gap.mine.frame)}" if gap.mine else _now(case, blame.culprits)
    others = others_of(case, blame)
    theirs = f"{call_name(gap.theirs)} at {place(gap.theirs.frame)}" if gap.theirs else _now(case, others)
    return (
        f"{name_ranks(blame.culprits)} {verb(blame.culprits, 'is', 'are')} in {mine} where {name_ranks(others)} "
        f"{verb(others, 'is', 'are')} in {theirs}: one call too many, or one missing on the other side."
    )


def _now(case: Case, ranks: tuple[int, ...]) -> str:
    return doing(case.activities[ranks[0]]) if ranks else "nothing"


def _no_condition(case: Case, blame: Blame, gap: Gap) -> str:
    mine = f"{gap.mine.op} at {short(gap.mine.frame)}" if gap.mine else _now(case, blame.culprits)
    theirs = f"{gap.theirs.op} at {short(gap.theirs.frame)}" if gap.theirs else "nothing yet"
    return f"the call sequences part at {mine} against {theirs}; the condition that parted them could not be seen"


def _fix(blame: Blame, gap: Gap) -> str:
    parting: Parting | None = blame.parting
    call, where = gap.token.op, short(gap.token.frame)
    if parting is None or parting.guard.kind not in ("if", "return", "expression"):
        return f"let every rank of the group issue the {call} of {where}, or none"
    condition = parting.guard.condition.removeprefix("if ").removesuffix(":")
    if parting.rank_like:
        return f"move the {call} of {where} out of the part that depends on `{condition}`, so that every rank calls it"
    return (
        f"let all ranks agree on `{condition}` before it is tested (all_reduce or broadcast the value), "
        f"or call {call} outside of it"
    )
