"""HD1xx: the ranks' call sequences part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token, distinct
from hangdoc.diagnosis.causes.finding import (
    Finding,
    call_name,
    capital,
    condition_text,
    doing,
    item_of,
    may_run_another,
    others_of,
    place,
    short,
    telling,
    telling_token,
    told_values,
    verb,
    wait_sentence,
)
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.candidates import CONDITIONS, Parting, counter_values
from hangdoc.diagnosis.condition.choice import also_on_the_way, skipped_round
from hangdoc.diagnosis.condition.loop_counts import fell_out
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import is_implicit, serves_another_thread
from hangdoc.diagnosis.frames.library import library
from hangdoc.diagnosis.frames.naming import file_name
from hangdoc.diagnosis.frames.stacks import fork, lines_of, same_line, user_stack
from hangdoc.diagnosis.source.queries import ends_alike, has_quiet_rounds, is_retry_loop, ways_out
from hangdoc.model.process import Frame
from hangdoc.model.wording import name_ranks


@cause("HD103", explains=Diverged, order=165)
def retried_call(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: the culprits are in another round of a loop that only an exception repeats."""
    loop = blame.found.parting
    if blame.found.gap is None or loop is None or not loop.uneven or loop.guarded == 1:
        return None
    rounds = _iterations(case, blame)
    tree = case.sources.function(loop.file, loop.guard.line)
    if (rounds is not None and not rounds.theirs) or tree is None or not is_retry_loop(tree, loop.guard.line):
        return None
    culprits, where = blame.culprits, f"{_file(loop)}:{loop.guard.line}"
    return Finding(
        "HD103",
        capital(f"{name_ranks(culprits)} {verb(culprits, 'tries', 'try')} again what communicates ({where}); ")
        + wait_sentence(case, others_of(case, blame))
        + ".",
        f"only an exception leads to another round of `{loop.guard.condition}` ({where}), and it came on "
        f"{name_ranks(culprits)} alone{rounds or ''}",
        "try again only what does not communicate, or let all ranks agree (all_reduce a flag) on trying again",
    )


@cause("HD102", explains=Diverged, order=170)
def uneven_iterations(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: one side has left the loop, the other is still in it, and nothing else explains the difference."""
    loop = blame.found.parting
    if blame.found.gap is None or loop is None or not loop.uneven:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    early = loop.guarded == 1  # the others' call is the one inside the loop
    rounds = _iterations(case, blame)
    if not early and rounds is not None and not rounds.theirs:
        return None  # the others have no such call in any of their rounds
    left, inside = (culprits, others) if early else (others, culprits)
    if early and fell_out(case, loop, left, blame.found.gap.mine):
        return None
    where = f"{_file(loop)}:{loop.guard.line}"
    counts = counter_values(loop, case.values)
    told = "; ".join(f"{name} = {told_values(per_rank, separator=' | ')}" for name, per_rank in counts.items())
    why = f"`{loop.guard.condition}` ({where}) ended on {name_ranks(left)} and not on {name_ranks(inside)}"
    why += str(rounds or "") + (f" ({told})" if told else "")
    skip = skipped_round(blame.found.partings)
    doubt = ""
    if early and skip is not None:
        doubt = _EARLY_OR_QUIET
        why += f"; or a round of it went by the call, at `{skip.guard.condition}` ({_file(skip)}:{skip.guard.line})"
    tree = case.sources.function(loop.file, loop.guard.line)
    if (
        early
        and not doubt
        and is_implicit(blame.found.gap.token.stack)
        and tree
        and has_quiet_rounds(tree, loop.guard.line)
    ):
        doubt = _EARLY_OR_QUIET
        why += "; or more of its rounds made no call, as under no_sync"
    out = _way_out(case, loop, left)
    why += out
    how = (
        "left the loop with fewer calls"
        if doubt
        else "left the loop early"
        if early
        else f"{verb(culprits, 'goes', 'go')} round the loop once more"
    )
    return Finding(
        "HD102",
        capital(f"{name_ranks(culprits)} {how} ({where}); {wait_sentence(case, others)}."),
        why,
        _fix_rounds(loop, bool(out), is_implicit(blame.found.gap.token.stack)) + _fix_skip(skip if doubt else None),
        doubt,
    )


def _fix_rounds(loop: Parting, left: bool, by_library: bool) -> str:
    stop = "let all ranks agree on when to stop (all_reduce the flag before anybody leaves the loop)"
    if loop.guard.condition.startswith("while "):
        return stop
    join = ", or wrap the loop in `torch.distributed.algorithms.Join`" if by_library else ""
    count = "give every rank the same number of iterations (agree on the count first; for batches of data: "
    return f"{stop + ', or ' if left else ''}{count}DistributedSampler(drop_last=True)){join}"


def _fix_skip(skip: Parting | None) -> str:
    if skip is None:
        return ""
    if skip.guard.kind not in CONDITIONS:
        return "; or see to it that no rank goes by the call in one of its rounds"
    condition = skip.guard.condition.removeprefix("if ").removesuffix(":")
    return f"; or let all ranks agree on `{condition}` in every round"


_EARLY_OR_QUIET = "a loop that ended early and a round without the call look the same"


def _way_out(case: Case, loop: Parting, left: tuple[int, ...]) -> str:
    """By which condition the ranks may have left the loop, or must have."""
    tree = case.sources.function(loop.file, loop.guard.line)
    out = ways_out(tree, loop.guard.line) if tree is not None else []
    if tree is None or not out:
        return ""
    told = " or ".join(f"`{condition}` ({_file(loop)}:{line})" for line, condition in out[:3])
    alike = ends_alike(tree, loop.guard.line)
    return f"; {name_ranks(left)} {'left it' if alike else 'may have left it'} at {told}"


def _file(parting: Parting) -> str:
    return file_name(parting.file)


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many calls from the line at ``at`` the culprits and the others have made; written ': 7 calls from … against
    8'."""

    mine: int
    theirs: int
    at: Frame | None

    def __str__(self) -> str:
        return f": {self.mine} call{'' if self.mine == 1 else 's'} from {short(self.at)} against {self.theirs}"


def _iterations(case: Case, blame: Blame[Diverged]) -> _Counts | None:
    """The calls in the loop that the sides left differently; None where the journal does not reach back to the first
    call, or the sides made equally many."""
    gap = blame.found.gap
    if gap is None or blame.found.alignment.history.first > 1:
        return None
    parting = blame.found.parting
    inside = gap.theirs if parting is not None and parting.guarded == 1 else gap.mine
    return _calls_from(case, blame, blame.found.alignment.history, inside)


def counts_told(case: Case, blame: Blame[Diverged]) -> str:
    """The same for the call that is one too many or too few; '' where it does not come often."""
    gap = blame.found.gap
    if gap is None or blame.found.alignment.history.first > 1:
        return ""
    counts = _calls_from(case, blame, blame.found.alignment.history, gap.token)
    return str(counts) if counts is not None and counts.mine and counts.theirs else ""


def _calls_from(case: Case, blame: Blame[Diverged], history: GroupHistory, inside: Token | None) -> _Counts | None:
    if inside is None or not inside.site:
        return None
    lines = lines_of(inside.site)
    counts = [
        sum(lines_of(t.site) == lines and t.op == inside.op for t in history.tokens.get(ranks[0], ()))
        for ranks in (blame.culprits, others_of(case, blame))
        if ranks
    ]
    if len(counts) < 2 or counts[0] == counts[1] or history.inferred:
        return None
    return _Counts(counts[0], counts[1], inside.frame)


@cause("HD104", "HD105", explains=Disagreement, order=110)
def differing_arguments(case: Case, blame: Blame[Disagreement]) -> Finding | None:
    """HD104 and HD105: the same call everywhere, with other sizes, dtypes or roots."""
    found = blame.found
    token = found.tokens[blame.culprits[0]]
    told = told_values(found.values)
    what = "arguments" if found.what == "arguments" else "root"
    culprits = blame.culprits
    number = "" if found.history.inferred else f" #{token.sequence} of {found.history.label}"
    return Finding(
        "HD104" if found.what == "arguments" else "HD105",
        capital(
            f"{name_ranks(culprits)} {verb(culprits, 'calls', 'call')} {call_name(token)} at {place(token.frame)} "
            f"with other {what} than {name_ranks(set(found.values) - set(culprits))}: {told}."
        ),
        f"{token.op}{number} needs the same {what} on every rank and got {told}",
        "give every rank tensors of the same shape and dtype (pad, or gather the sizes first)"
        if found.what == "arguments"
        else "pass the same src/dst (a global rank) on every rank",
    )


@cause("HD108", explains=Diverged, order=120)
def two_threads(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD108: two threads of a rank issue on one group; nothing fixes their order."""
    gap = blame.found.gap
    if gap is None or gap.mine is None or gap.theirs is None:
        return None
    group = gap.token.group
    several = [
        rank
        for program, ranks in distinct(case.programs)
        if program.threads(group[0]) > 1 and program.key(group[0]) == group
        for rank in ranks
    ]
    if not several or gap.mine.site == gap.theirs.site:
        return None
    # Both sides make both calls, in another order: a call that never comes is another story.
    if not _overtakes(case, gap.mine, gap.theirs) and not _overtakes(case, gap.theirs, gap.mine):
        return None
    return Finding(
        "HD108",
        capital(
            f"two threads of {name_ranks(several)} communicate on one group, and their order differs between ranks: "
            f"{call_name(gap.mine)} at {place(gap.mine.frame)} meets {call_name(gap.theirs)} at "
            f"{place(gap.theirs.frame)}."
        ),
        "the calls of two threads reach the group in whatever order the threads run, which differs from rank to rank",
        "give each thread a process group of its own (dist.new_group), or issue all collectives from one thread",
        "" if any(_waits_in_two_threads(case, t) for t in (gap.mine, gap.theirs)) else _PERHAPS_IN_TURN,
    )


_PERHAPS_IN_TURN = "whether one of the threads waits for the other was not seen"


def _waits_in_two_threads(case: Case, call: Token) -> bool:
    """Do two threads of the rank wait in calls of the group at once? Then neither waits for the other."""
    program = case.programs.get(call.rank)
    pending = program.pending if program is not None else []
    mine = (t for t in pending if t.group == call.group and not serves_another_thread(t.thread))
    return len({t.thread_id for t in mine} - {0}) > 1


def _overtakes(case: Case, call: Token, other: Token) -> bool:
    """Has another thread of the rank of ``call`` made, behind it, what ``other`` is? The order of one thread's calls
    is the program's own, and so is that of a thread whose work another waits for."""
    program = case.programs.get(call.rank)
    if program is None or not call.thread_id or serves_another_thread(call.thread):
        return False
    behind = (t for t in program.tokens[max(call.order, 0) + 1 :] if t.site == other.site)
    return any(t.thread_id not in (0, call.thread_id) and not serves_another_thread(t.thread) for t in behind)


@cause("HD101", explains=Diverged, order=230)
def collective_on_some_ranks(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD101: a branch issues a collective that the others never issue."""
    gap = blame.found.gap
    if gap is None or gap.token.op == END or not _sites_differ(gap):
        return None
    return parted_finding(case, blame, gap)


def _sites_differ(gap: Gap) -> bool:
    return gap.mine is None or gap.theirs is None or gap.mine.site != gap.theirs.site


def parted_finding(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    """Who calls what the others do not, or leaves out what they call; other rules give it another name."""
    culprits, others = blame.culprits, others_of(case, blame)
    line = telling_token(gap)
    if gap.kind == "delete":
        calls = "called" if blame.found.past else verb(culprits, "calls", "call")
        what = f"{name_ranks(culprits)} alone {calls} {call_name(gap.token)}" + (f" at {place(line)}" if line else "")
    else:
        skips = "skipped" if blame.found.past else verb(culprits, "skips", "skip")
        what = f"{name_ranks(culprits)} {skips} the {call_name(gap.token)}" + (f" of {place(line)}" if line else "")
        if gap.mine is not None and gap.mine.frame is not None and not blame.found.past:
            what += f" and {verb(culprits, 'goes', 'go')} on to {gap.mine.op} at {place(telling(gap)[0])}"
    what += _calls_ago(blame, gap, "end" if case.job.ended else "hang")
    verdict = _either(case, blame, gap) if blame.alternatives else f"{what}; {wait_sentence(case, others)}."
    why = condition_text(case, blame) or no_condition(case, blame, gap)
    return Finding("HD101", capital(verdict), why, _fix(case, blame, gap), _parted_unseen(case, blame, gap))


def _parted_unseen(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    """What else would look the same, or was not seen: a doubt about what parted the sides."""
    if may_run_another(case, blame.found.parting):
        return "which method the others ran was not seen"
    first = blame.found.parting
    if first is not None and _stands_before_a_loop(first, blame.found.partings):
        return "a loop behind it with no round at all looks the same"
    if first is not None and first.guard.kind == "decorator" and any(p.uneven for p in blame.found.partings):
        return "a loop that ended early looks the same"
    if item_of(case, blame.found.parting, blame.found.gap):
        return "which items the others went over was not seen"
    if blame.found.parting is not None or gap.mine is None or gap.theirs is None:
        return ""
    if gap.token.frame is None:
        return "which line issued the call was not seen"
    diverged = fork(gap.mine.stack, gap.theirs.stack, same=same_line, with_library=True).frames
    inside = (
        diverged is not None and library(diverged[0].file) and bool(user_stack(gap.mine.stack)) and gap.kind == "delete"
    )
    return "they part within a library, whose loops and conditions were not read" if inside else ""


def _stands_before_a_loop(first: Parting, partings: Sequence[Parting]) -> bool:
    """Is there a loop between the condition and the call that may have been left, too, and does no value tell?"""
    behind = (p for p in partings if p.uneven and p.guarded == first.guarded)
    return (
        first.guard.kind in CONDITIONS
        and not (first.differs or first.rank_like)
        and any((p.level, p.guard.line) > (first.level, first.guard.line) for p in behind)
    )


def _calls_ago(blame: Blame[Diverged], gap: Gap, then: str) -> str:
    """' (call #3, 6 calls before the hang)'."""
    if not blame.found.past or blame.found.alignment is None:
        return ""
    behind = blame.found.alignment.history.issued(gap.ranks[0]) - gap.token.sequence
    return (
        f" (call #{gap.token.sequence}, {behind} call{'s' if behind > 1 else ''} before the {then})"
        if behind > 0
        else ""
    )


def _either(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    """Two ranks, two stories: name both."""
    here, there = telling(gap)
    mine = f"{call_name(gap.mine)} at {place(here)}" if gap.mine else _now(case, blame.culprits)
    others = others_of(case, blame)
    theirs = f"{call_name(gap.theirs)} at {place(there)}" if gap.theirs else _now(case, others)
    return (
        f"{name_ranks(blame.culprits)} {verb(blame.culprits, 'is', 'are')} in {mine} where {name_ranks(others)} "
        f"{verb(others, 'is', 'are')} in {theirs}: one call too many, or one missing on the other side."
    )


def _now(case: Case, ranks: tuple[int, ...]) -> str:
    return doing(case.activities[ranks[0]]) if ranks else "nothing"


def no_condition(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    """Both calls, where no condition can be told."""
    mine = _call_at(gap.mine) if gap.mine else _now(case, blame.culprits)
    theirs = _call_at(gap.theirs) if gap.theirs else "nothing yet"
    parted = f"the call sequences part at {mine} against {theirs}{counts_told(case, blame)}"
    return f"{parted}; the condition that parted them could not be seen"


def _call_at(token: Token) -> str:
    return f"{token.op} at {short(token.frame)}" if token.frame is not None else f"{token.op} of thread {token.thread}"


def _fix(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    parting: Parting | None = blame.found.parting
    call, where = gap.token.op, short(telling_token(gap)) or f"thread {gap.token.thread}"
    if parting is None or parting.guard.kind not in (*CONDITIONS, "decorator"):
        return f"let every rank of the group issue the {call} of {where}, or none"
    condition = parting.guard.condition.removeprefix("if ").removesuffix(":")
    if parting.guard.kind in CONDITIONS and item_of(case, blame.found.parting, blame.found.gap):
        return f"give the loop the same items on every rank, and let all ranks agree on `{condition}`"
    if parting.guard.kind == "decorator" and not parting.rank_like:
        return f"do not keep the results of a function that communicates: take the {call} of {where} out of it"
    if parting.rank_like:
        return f"move the {call} of {where} out of the part that depends on `{condition}`, so that every rank calls it"
    if may_run_another(case, blame.found.parting):
        assert parting is not None
        return f"let every rank run the same {parting.function}() and decide alike there, or call {call} outside of it"
    if also_on_the_way(blame.found.partings):
        return f"let all ranks agree on these conditions before they are tested, or call {call} outside of them"
    return (
        f"let all ranks agree on `{condition}` before it is tested (all_reduce or broadcast the value), "
        f"or call {call} outside of it"
    )
