"""HD101, HD104, HD105, HD108: the ranks' sequences of calls diverge, by a call or by its arguments."""

from __future__ import annotations

from hangdoc.diagnosis.blame.arguments import Disagreement
from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token, distinct
from hangdoc.diagnosis.causes.call_counts import call_counts
from hangdoc.diagnosis.causes.deciding import chosen_without_order, item_of, may_run_another, what_decided
from hangdoc.diagnosis.causes.doubts import doubt_about_call, is_read
from hangdoc.diagnosis.causes.finding import Finding, others_of, telling, telling_token
from hangdoc.diagnosis.causes.phrases import (
    at,
    call_at,
    call_name,
    is_awaited,
    line_of,
    place,
    where_they_wait,
)
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.causes.told_by_output import told_by_output
from hangdoc.diagnosis.condition.agreed_before import all_come_to, asks_within, own_count
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.by_value import parted_by_value
from hangdoc.diagnosis.condition.choice import also_on_the_way
from hangdoc.diagnosis.condition.elsewhere.led_block import led_block
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged
from hangdoc.diagnosis.frames.landmarks import Role, has_role, is_implicit
from hangdoc.diagnosis.frames.stacks import lines_of
from hangdoc.diagnosis.source.guards import CONDITIONS
from hangdoc.model.kinds import Confidence
from hangdoc.model.message import Does, Message, Ranks, Values, Verb, joined, sentence
from hangdoc.model.process import Stack


@cause("HD104", "HD105", explains=Disagreement, order=110)
def differing_arguments(case: Case, blame: Blame[Disagreement]) -> Finding | None:
    """HD104 and HD105: the same call everywhere, with other sizes, dtypes or roots."""
    found = blame.found
    token = found.tokens[blame.culprits[0]]
    values = Values(found.values)
    what = "arguments" if found.what == "arguments" else "root"
    culprits = blame.culprits
    stack = token.stack or case.activities[culprits[0]].stack
    chosen, loop = chosen_without_order(case, stack)
    number = "" if found.history.inferred else f" #{token.sequence} of {found.history.label}"
    return Finding(
        "HD104" if found.what == "arguments" else "HD105",
        sentence(
            [
                [Does(culprits, "calls", "call"), " ", call_at(token), f" with different {what} than "],
                [Ranks.of(set(found.values) - set(culprits)), ": ", values],
            ]
        ),
        joined(
            [f"every rank has to pass the same {what} to {token.op}{number}: it got ", values],
            chosen,
        ),
        "iterate in one order on all ranks (`sorted`)" if loop is not None else _fix_arguments(found, stack),
        decided_at=loop,
    )


def _fix_arguments(found: Disagreement, stack: Stack) -> str:
    """The tensors of a library's own call are not the user's to pad: what it works on differs."""
    if found.what != "arguments":
        return "pass the same src/dst (a global rank) on every rank"
    if has_role(stack, Role.BACKWARD):
        return "give every rank the same model: compare its parameters' shapes and dtypes, and which need gradients"
    if is_implicit(stack):
        return "give what the library works on the same shapes and dtypes on every rank"
    if len({each.dtypes for each in found.tokens.values()}) == 1:
        return "give every rank tensors of the same shape (pad, or gather the sizes first)"
    return "give every rank tensors of the same shape and dtype (pad, or gather the sizes first)"


def extra_or_missing_call(case: Case, blame: Blame[Diverged], gap: Gap) -> Finding:
    """HD101 of the side that calls what the others do not, or skips what they call. Rules that know more about the call
    take the sentence and give it their own code."""
    what = _alone(case, blame, gap) if gap.kind == "delete" else _skipping(blame, gap)
    ago = _calls_ago(blame, gap, "end" if case.job.ended else "hang", several=len(case.histories) > 1)
    return Finding(
        "HD101",
        sentence(_either(case, blame, gap))
        if blame.alternatives
        else sentence([what, ago], where_they_wait(case, others_of(case, blame))),
        what_decided(case, blame) or no_condition(case, blame, gap),
        _fix(case, blame, gap),
        doubt_about_call(case, blame, gap) or _unseen(case, blame, gap),
    )


def _unseen(case: Case, blame: Blame[Diverged], gap: Gap) -> str:
    """The doubt about what would be certain where nothing in the source that was read says what decided it; '' where
    something does. Without a source, as of dumps, no more is claimed than the calls say."""
    read = is_read(case, (gap.mine, gap.theirs))
    if not read or blame.found.branch_points or blame.confidence != Confidence.CERTAIN:
        return ""
    if case.execution and parted_by_value(case, (blame.culprits, others_of(case, blame)), gap, ever=True) is not None:
        return ""  # it was recorded
    return "only the output tells what decided it" if told_by_output(case, blame) else "what decided it was not seen"


def _alone(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    """'Rank 1 alone calls barrier at train.py:9'; of a call that others make as well, only how often, where that is
    known."""
    calls: Message = "called" if blame.found.past else Verb(blame.culprits, "calls", "call")
    call = call_name(gap.token)
    named = call if call == gap.token.op else f"a {call}"
    alone = "" if others_call_it(case, blame, gap) else " alone"
    once = " once more than the others" if not alone and _once_more(case, blame, gap) else ""
    return [Ranks(blame.culprits), alone, " ", calls, f" {named}", at(telling_token(gap)), once]


def _once_more(case: Case, blame: Blame[Diverged], gap: Gap) -> bool:
    """True if, by whole histories, each culprit has now made the call one time more than each other rank."""
    history, what = blame.found.alignment.history, (gap.token.op, lines_of(gap.token.site))
    if blame.found.past or history.inferred or history.first > 1:
        return False
    sides = ([history.tokens.get(rank, ()) for rank in ranks] for ranks in (blame.culprits, others_of(case, blame)))
    mine, theirs = (
        # Ranks of equal programs share one list.
        {sum((t.op, lines_of(t.site)) == what for t in calls) for calls in {id(each): each for each in side}.values()}
        for side in sides
    )
    return len(mine) == len(theirs) == 1 and mine.pop() == theirs.pop() + 1


def others_call_it(case: Case, blame: Blame[Diverged], gap: Gap) -> bool:
    """True if ranks that are not to blame have made that call from its line, in any round."""
    alike = gap.token.op, lines_of(gap.token.site)
    others = {rank: case.programs[rank] for rank in others_of(case, blame) if rank in case.programs}
    return any((t.op, lines_of(t.site)) == alike for program, _ in distinct(others) for t in program.tokens)


def _skipping(blame: Blame[Diverged], gap: Gap) -> Message:
    culprits, past, line = blame.culprits, blame.found.past, telling_token(gap)
    skips: Message = "skipped" if past else Verb(culprits, "skips", "skip")
    where: Message = [" that is waited for at " if is_awaited(gap.token) else " at ", place(line)] if line else ""
    what: Message = [Ranks(culprits), " ", skips, f" the {call_name(gap.token)}", where]
    if gap.mine is None or gap.mine.frame is None or past:
        return what
    return [what, " and ", Verb(culprits, "goes", "go"), f" on to {call_name(gap.mine)}", at(telling(gap)[0])]


def _calls_ago(blame: Blame[Diverged], gap: Gap, then: str, *, several: bool) -> str:
    """' (call #3, 6 calls before the hang)'; where there are several groups, the numbers are of one of them."""
    if not blame.found.past:
        return ""
    since = blame.found.alignment.history.issued(gap.ranks[0]) - gap.token.sequence
    if since <= 0:
        return ""
    calls = f"{since} call{'s' if since > 1 else ''}{' of that group' if several else ''}"
    return f" (call #{gap.token.sequence}, {calls} before the {then})"


def _either(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    """'rank 0 is in barrier at …, rank 1 is in broadcast at …: …', where either side may be the culprit."""
    here, there = telling(gap)
    others = others_of(case, blame)
    mine = ["in ", call_name(gap.mine), at(here)] if gap.mine else _now(case, blame.culprits)
    theirs = ["in ", call_name(gap.theirs), at(there)] if gap.theirs else _now(case, others)
    return [
        [Does(blame.culprits, "is", "are"), " ", mine, ", ", Does(others, "is", "are"), " ", theirs],
        ": one side made an extra call, or the other skipped one",
    ]


def _now(case: Case, ranks: tuple[int, ...]) -> Message:
    activity = case.activities[ranks[0]] if ranks else None
    return ["at ", place(activity.where), f" ({activity.text})"] if activity and activity.where else "elsewhere"


def no_condition(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    """Both calls, where no condition was found between them."""
    culprits, others = Ranks(blame.culprits), Ranks(others_of(case, blame))
    mine: Message = [culprits, " called ", _issued(gap.mine)] if gap.mine else [culprits, " called nothing more"]
    theirs: Message = [others, " ", _issued(gap.theirs)] if gap.theirs else [others, " nothing yet"]
    return joined(*_agreed(case, blame, gap, [mine, ", ", theirs, call_counts(case, blame)]))


def _agreed(case: Case, blame: Blame[Diverged], gap: Gap, calls: Message) -> list[Message]:
    """['all ranks agree up to call #5', 'at #6, rank 0 called …'] where both calls have one number; else the calls."""
    mine, theirs, found = gap.mine, gap.theirs, blame.found.alignment
    same = mine and theirs and (mine.group, mine.sequence) == (theirs.group, theirs.sequence)
    if not same or mine is None or found.history.inferred or found.first is not gap:
        return [calls]
    everyone = "all ranks" if len(found.history.members) >= len(case.ranks) else "the ranks of the group"
    before = f"{everyone} agree up to call #{mine.sequence - 1}" if mine.sequence > 1 else ""
    if theirs is not None and _issued(mine) == _issued(theirs):
        return [before]
    return [before, [f"at #{mine.sequence}, " if before else "at the first call, ", calls]]


def _issued(token: Token) -> Message:
    if token.op == END:
        return "had come to the end of the program"
    if is_awaited(token):
        return ["what is waited for at ", line_of(token.frame)]
    where: Message = [" from ", line_of(token.frame)] if token.frame is not None else f" in thread {token.thread}"
    return [call_name(token), where]


def _fix(case: Case, blame: Blame[Diverged], gap: Gap) -> Message:
    point: BranchPoint | None = blame.found.branch_point
    skipped = gap.kind == "delete" and point is not None and point.guarded == 1 and gap.theirs is not None
    call = call_name(gap.theirs if skipped and gap.theirs is not None and gap.theirs.op != END else gap.token)
    line = line_of(telling_token(gap))
    the_call: Message = [f"the {call}", [" at ", line] if line else f" of thread {gap.token.thread}"]
    if point is not None and point.guard.kind == "match" and not is_awaited(gap.token):
        return [
            "let all ranks take the same `case` there (agree on what is matched), or call ",
            the_call,
            " outside of it",
        ]
    if point is not None and point.guard.condition.startswith("for ") and not is_awaited(gap.token):
        loop = point.guard.condition.removesuffix(":")
        return [f"let `{loop}` go over the same items on every rank, or call ", the_call, " outside of it"]
    if point is None or point.guard.kind not in (*CONDITIONS, "decorator"):
        if is_awaited(gap.token):
            return ["make the call that is waited for at ", line, " on every rank of the group, or on none"]
        return ["call ", the_call, " on every rank of the group, or on none"]
    condition = point.guard.condition.removeprefix("if ").removesuffix(":")
    if point.guard.kind in CONDITIONS and item_of(case, blame.found.branch_point, blame.found.gap):
        return f"give the loop the same items on every rank, and let all ranks agree on `{condition}`"
    if point.guard.kind == "decorator" and not point.rank_like:
        return ["do not keep the results of a function that communicates: take ", the_call, " out of it"]
    if point.rank_like:
        made = point.made or (f"{point.registered}()" if point.registered else "")
        if made:
            how = "make" if point.made else "register"
            return ["take ", the_call, f" out of {made}, or {how} {made} on every rank"]
        return ["make ", the_call, f" on every rank, out of the part that depends on `{condition}`, or on none"]
    if may_run_another(case, blame.found.branch_point):
        assert point is not None
        return f"let every rank run the same {point.function}() and decide alike there, or call {call} outside of it"
    return _fix_condition(case, blame, gap, point, call)


def _fix_condition(case: Case, blame: Blame[Diverged], gap: Gap, point: BranchPoint, call: str) -> Message:
    """What to do about a condition that came out differently. To agree on it right there takes all ranks."""
    condition = point.guard.condition.removeprefix("if ").removesuffix(":")
    if asks_within(point, gap):
        return f"call {call} where every rank makes it, and not while `{condition}` is evaluated"
    inside, other = (gap.mine, gap.theirs)[:: -1 if point.guarded else 1]
    block = led_block(case.sources, inside.stack, other.stack) if inside is not None and other is not None else None
    if block is not None:
        return [f"call {call} after ", block, ", where every rank comes to it"]
    several = also_on_the_way(blame.found.branch_points)
    count = own_count(case, point) if not several else ""
    if count:
        return f"let `{count}` be the same on every rank: each of them counts it by itself"
    come = all_come_to(case, point, gap, (blame.culprits, others_of(case, blame)))
    if several:
        if come:
            return f"let all ranks agree on these conditions before they are tested, or call {call} outside of them"
        return (
            "decide these conditions at a point that every rank reaches and pass the answers down, or "
            f"call {call} there"
        )
    if come:
        return (
            f"let all ranks agree on `{condition}` before it is tested (all_reduce or broadcast the value), "
            f"or call {call} outside of it"
        )
    return (
        f"decide `{condition}` at a point that every rank reaches (all_reduce or broadcast the value), and pass the "
        f"answer down, or call {call} there"
    )
