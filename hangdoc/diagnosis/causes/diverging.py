"""HD1xx: the ranks' call sequences part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, GroupHistory, Token, distinct
from hangdoc.diagnosis.causes.deciding import item_of, may_run_another, what_decided
from hangdoc.diagnosis.causes.finding import Finding, others_of, telling, telling_token
from hangdoc.diagnosis.causes.phrases import (
    at,
    call_at,
    call_name,
    cited,
    doing,
    line_of,
    place,
    where_they_wait,
)
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.candidates import CONDITIONS, Parting, counter_values
from hangdoc.diagnosis.condition.choice import also_on_the_way, skipped_round
from hangdoc.diagnosis.condition.loop_counts import fell_out
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import is_implicit, serves_another_thread
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.frames.stacks import fork, lines_of, same_line, user_stack
from hangdoc.diagnosis.source.queries import ends_alike, has_quiet_rounds, is_retry_loop, ways_out
from hangdoc.model.message import Condition, Does, Joined, Message, Place, Ranks, Values, Verb, joined, sentence
from hangdoc.model.process import Frame


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
    culprits, where = blame.culprits, Place(loop.file, loop.guard.line)
    return Finding(
        "HD103",
        sentence(
            [Does(culprits, "retries", "retry"), " a block that communicates (", where, ")"],
            where_they_wait(case, others_of(case, blame)),
        ),
        [
            ["only an exception starts another round of ", cited(loop.guard, loop.file)],
            [", and only ", Ranks(culprits), " had one", _told_counts(rounds)],
        ],
        "retry only what does not communicate, or let all ranks agree to retry (all_reduce a flag)",
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
    skip = skipped_round(blame.found.partings) if early else None
    by_library = is_implicit(blame.found.gap.token.stack)
    quiet = early and skip is None and by_library and _has_quiet_rounds(case, loop)
    doubt = _EARLY_OR_QUIET if quiet or skip is not None else ""
    how: Message = "left the loop with fewer calls" if doubt else "left the loop early"
    out = _way_out(case, loop, left)
    return Finding(
        "HD102",
        sentence(
            [
                Ranks(culprits),
                [" ", how if early else [Verb(culprits, "runs", "run"), " the loop once more"]],
                [" (", Place(loop.file, loop.guard.line), ")"],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [_ended(loop, left, inside), _told_counts(rounds), _counters(case, loop)],
            ["or one of its rounds skipped the call, at ", cited(skip.guard, skip.file)] if skip is not None else "",
            "or more of its rounds made no call, as under no_sync" if quiet else "",
            out,
        ),
        [_fix_rounds(loop, bool(out), by_library), _fix_skip(skip)],
        doubt,
    )


def _ended(loop: Parting, left: tuple[int, ...], inside: tuple[int, ...]) -> Message:
    return [cited(loop.guard, loop.file), " ended on ", Ranks(left), " and not on ", Ranks(inside)]


def _has_quiet_rounds(case: Case, loop: Parting) -> bool:
    """May a library have made no call in some of the loop's rounds?"""
    tree = case.sources.function(loop.file, loop.guard.line)
    return tree is not None and has_quiet_rounds(tree, loop.guard.line)


def _counters(case: Case, loop: Parting) -> Message:
    """' (step = 7 on rank 0 | 8 on rank 1)'; '' where no counter differs."""
    counts = counter_values(loop, case.values)
    told: list[Message] = [[f"{name} = ", Values(per_rank, " | ")] for name, per_rank in counts.items()]
    return [" (", Joined(told), ")"] if told else ""


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
        return "; or make sure that no rank skips the call in one of its rounds"
    condition = skip.guard.condition.removeprefix("if ").removesuffix(":")
    return f"; or let all ranks agree on `{condition}` in every round"


_EARLY_OR_QUIET = "a loop that ended early and a round without the call look the same"


def _way_out(case: Case, loop: Parting, left: tuple[int, ...]) -> Message:
    """By which condition the ranks may have left the loop, or must have."""
    tree = case.sources.function(loop.file, loop.guard.line)
    out = ways_out(tree, loop.guard.line) if tree is not None else []
    if tree is None or not out:
        return ""
    told = Joined([Condition(condition, loop.file, line) for line, condition in out[:3]], " or ")
    return [Ranks(left), " left it at " if ends_alike(tree, loop.guard.line) else " may have left it at ", told]


@dataclass(frozen=True, slots=True)
class _Counts:
    """How many calls from the line at ``at`` the culprits and the others have made."""

    mine: int
    theirs: int
    at: Frame | None


def _told_counts(counts: _Counts | None) -> Message:
    """': 7 calls from train.py:61 against 8'."""
    if counts is None:
        return ""
    calls = "call" if counts.mine == 1 else "calls"
    return [f": {counts.mine} {calls} from ", line_of(counts.at), f" against {counts.theirs}"]


def _iterations(case: Case, blame: Blame[Diverged]) -> _Counts | None:
    """The calls in the loop that the sides left differently; None where the journal does not reach back to the first
    call, or the sides made equally many."""
    gap = blame.found.gap
    if gap is None or blame.found.alignment.history.first > 1:
        return None
    parting = blame.found.parting
    inside = gap.theirs if parting is not None and parting.guarded == 1 else gap.mine
    return _calls_from(case, blame, blame.found.alignment.history, inside)


def counts_told(case: Case, blame: Blame[Diverged]) -> Message:
    """The same for the call that is one too many or too few; '' where it does not come often."""
    gap = blame.found.gap
    if gap is None or blame.found.alignment.history.first > 1:
        return ""
    counts = _calls_from(case, blame, blame.found.alignment.history, gap.token)
    return _told_counts(counts) if counts is not None and counts.mine and counts.theirs else ""


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
    told = Values(found.values)
    what = "arguments" if found.what == "arguments" else "root"
    culprits = blame.culprits
    number = "" if found.history.inferred else f" #{token.sequence} of {found.history.label}"
    return Finding(
        "HD104" if found.what == "arguments" else "HD105",
        sentence(
            [
                [Does(culprits, "calls", "call"), " ", call_at(token), f" with different {what} than "],
                [Ranks.of(set(found.values) - set(culprits)), ": ", told],
            ]
        ),
        [f"every rank has to pass the same {what} to {token.op}{number}: it got ", told],
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
        sentence(
            [
                ["two threads of ", Ranks.of(several), " communicate on one group, and their order differs "],
                ["between ranks: ", call_at(gap.mine), " is paired with ", call_at(gap.theirs)],
            ]
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
    what = _alone(blame, gap) if gap.kind == "delete" else _skipping(blame, gap)
    ago = _calls_ago(blame, gap, "end" if case.job.ended else "hang")
    return Finding(
        "HD101",
        sentence(_either(case, blame, gap))
        if blame.alternatives
        else sentence([what, ago], where_they_wait(case, others_of(case, blame))),
        what_decided(case, blame) or no_condition(case, blame, gap),
        _fix(case, blame, gap),
        _parted_unseen(case, blame, gap),
    )


def _alone(blame: Blame[Diverged], gap: Gap) -> Message:
    calls: Message = "called" if blame.found.past else Verb(blame.culprits, "calls", "call")
    return [Ranks(blame.culprits), " alone ", calls, f" {call_name(gap.token)}", at(telling_token(gap))]


def _skipping(blame: Blame[Diverged], gap: Gap) -> Message:
    culprits, past, line = blame.culprits, blame.found.past, telling_token(gap)
    skips: Message = "skipped" if past else Verb(culprits, "skips", "skip")
    what: Message = [Ranks(culprits), " ", skips, f" the {call_name(gap.token)}", [" at ", place(line)] if line else ""]
    if gap.mine is None or gap.mine.frame is None or past:
        return what
    return [what, " and ", Verb(culprits, "goes", "go"), f" on to {gap.mine.op}", at(telling(gap)[0])]


def _parted_unseen(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    """What else would look the same, or was not seen: a doubt about what parted the sides."""
    if may_run_another(case, blame.found.parting):
        return "which method the others ran was not seen"
    first = blame.found.parting
    if first is not None and _stands_before_a_loop(first, blame.found.partings):
        return "a loop after it with no round at all looks the same"
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
        diverged is not None and is_library(diverged[0]) and bool(user_stack(gap.mine.stack)) and gap.kind == "delete"
    )
    return "they diverge within a library, whose loops and conditions were not read" if inside else ""


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


def _either(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    """Two ranks, two stories: name both."""
    here, there = telling(gap)
    others = others_of(case, blame)
    mine = [call_name(gap.mine), at(here)] if gap.mine else _now(case, blame.culprits)
    theirs = [call_name(gap.theirs), at(there)] if gap.theirs else _now(case, others)
    return [
        [Does(blame.culprits, "is", "are"), " in ", mine, ", ", Does(others, "is", "are"), " in ", theirs],
        ": one side made an extra call, or the other skipped one",
    ]


def _now(case: Case, ranks: tuple[int, ...]) -> Message:
    return doing(case.activities[ranks[0]]) if ranks else "nothing"


def no_condition(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    """Both calls, where no condition can be told."""
    culprits, others = Ranks(blame.culprits), Ranks(others_of(case, blame))
    mine: Message = [culprits, " called ", _issued(gap.mine)] if gap.mine else [culprits, " called nothing more"]
    theirs: Message = [others, " ", _issued(gap.theirs)] if gap.theirs else [others, " nothing yet"]
    return joined(
        *_agreed(case, blame, gap, [mine, ", ", theirs, counts_told(case, blame)]),
        "the condition that decided it could not be seen",
    )


def _agreed(case: Case, blame: Blame[Diverged], gap: Gap, calls: Message) -> list[Message]:
    """'all ranks agree up to call #5', 'at #6, rank 0 called …', where both sides' calls have one number."""
    mine, theirs, found = gap.mine, gap.theirs, blame.found.alignment
    same = mine and theirs and (mine.group, mine.sequence) == (theirs.group, theirs.sequence)
    if not same or mine is None or found is None or found.history.inferred or found.first is not gap:
        return [calls]
    everyone = "all ranks" if len(found.history.members) >= len(case.ranks) else "the ranks of the group"
    before = f"{everyone} agree up to call #{mine.sequence - 1}" if mine.sequence > 1 else ""
    return [before, [f"at #{mine.sequence}, " if before else "at the first call, ", calls]]


def _issued(token: Token) -> Message:
    where: Message = [" from ", line_of(token.frame)] if token.frame is not None else f" in thread {token.thread}"
    return [token.op, where]


def _fix(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    parting: Parting | None = blame.found.parting
    call = gap.token.op
    line = line_of(telling_token(gap))
    the_call: Message = [f"the {call}", [" at ", line] if line else f" of thread {gap.token.thread}"]
    if parting is None or parting.guard.kind not in (*CONDITIONS, "decorator"):
        return ["call ", the_call, " on every rank of the group, or on none"]
    condition = parting.guard.condition.removeprefix("if ").removesuffix(":")
    if parting.guard.kind in CONDITIONS and item_of(case, blame.found.parting, blame.found.gap):
        return f"give the loop the same items on every rank, and let all ranks agree on `{condition}`"
    if parting.guard.kind == "decorator" and not parting.rank_like:
        return ["do not keep the results of a function that communicates: take ", the_call, " out of it"]
    if parting.rank_like:
        return ["move ", the_call, f" out of the part that depends on `{condition}`, so that every rank calls it"]
    if may_run_another(case, blame.found.parting):
        assert parting is not None
        return f"let every rank run the same {parting.function}() and decide alike there, or call {call} outside of it"
    if also_on_the_way(blame.found.partings):
        return f"let all ranks agree on these conditions before they are tested, or call {call} outside of them"
    return (
        f"let all ranks agree on `{condition}` before it is tested (all_reduce or broadcast the value), "
        f"or call {call} outside of it"
    )
