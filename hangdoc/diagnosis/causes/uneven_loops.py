"""HD102 and HD103 of loops: the sides left a loop in different rounds, or one side ran a round once more."""

from __future__ import annotations

import ast
from functools import partial

from hangdoc.diagnosis.calls.alignment import Gap
from hangdoc.diagnosis.calls.history import END, Token
from hangdoc.diagnosis.causes.call_counts import calls_from, calls_in_loop, compared
from hangdoc.diagnosis.causes.counted import agreed_count, agreed_start, counted_from, item_bound
from hangdoc.diagnosis.causes.finding import Finding, others_of
from hangdoc.diagnosis.causes.nested_loops import OtherLoop, other_loop
from hangdoc.diagnosis.causes.phrases import call_at, cited, where_they_wait
from hangdoc.diagnosis.causes.quiet_rounds import RoundWithoutCall, round_without_call
from hangdoc.diagnosis.causes.registry import cause
from hangdoc.diagnosis.condition.branch_point import BranchPoint
from hangdoc.diagnosis.condition.branch_values import counter_values
from hangdoc.diagnosis.condition.elsewhere.decided_back import decided_back
from hangdoc.diagnosis.condition.loops.counting_loop import CountingLoop, began_elsewhere, counting_loop
from hangdoc.diagnosis.condition.loops.ended_by_exception import fell_out
from hangdoc.diagnosis.condition.loops.held import items_held
from hangdoc.diagnosis.condition.loops.iterators import iterator_answers
from hangdoc.diagnosis.condition.loops.left_out import items_left_out
from hangdoc.diagnosis.condition.loops.loop_exit import is_after_loop
from hangdoc.diagnosis.condition.loops.way_out import seen_way_out, surely_left, way_out_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Blame, Diverged, Explanation
from hangdoc.diagnosis.frames.landmarks import Role, has_role
from hangdoc.diagnosis.frames.library import is_library
from hangdoc.diagnosis.source.equal_counts import is_over_fixed
from hangdoc.diagnosis.source.loops import compared_count, is_retry_loop, ways_out
from hangdoc.diagnosis.source.settings import place_of
from hangdoc.diagnosis.source.syntax import walk
from hangdoc.diagnosis.source.values import SideRanks
from hangdoc.model.message import Condition, Does, Joined, Message, Place, Ranks, Values, Verb, joined, sentence
from hangdoc.model.process import Stack


@cause("HD103", explains=Diverged, order=165)
def retried_call(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD103: the culprits are in another round of a loop that only an exception repeats."""
    loop = blame.found.branch_point
    if blame.found.gap is None or loop is None or not loop.uneven or loop.guarded == 1:
        return None
    counts = calls_in_loop(case, blame)
    tree = case.sources.function(loop.file, loop.guard.line)
    if (counts is not None and not counts.theirs) or tree is None or not is_retry_loop(tree, loop.guard.line):
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
            [", and only ", Ranks(culprits), " had one", compared(counts)],
        ],
        "retry only what does not communicate, or let all ranks agree to retry (all_reduce a flag)",
    )


# The first branches are the reasons to answer nothing; the others choose words.
@cause("HD102", explains=Diverged, order=170)
def uneven_iterations(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102: one side has left the loop, the other is still in it, and nothing else explains the difference.

    Example: rank 1 waits in the all_reduce of round 8, rank 0 left the loop after round 7 → rank 0 left it early.
    """
    loop, gap = blame.found.branch_point, blame.found.gap
    if gap is None or loop is None or not loop.uneven:
        return None
    culprits, others = blame.culprits, others_of(case, blame)
    early = loop.guarded == 1  # the others' call is the one inside the loop
    counts = calls_in_loop(case, blame) if not loop.own_arm else None
    if early and not loop.own_arm and fell_out(case, loop, culprits, gap.mine):
        return None
    if not early and counts is not None and not counts.theirs:
        return None  # the others have no such call in any of their rounds
    left, inside = (culprits, others) if early else (others, culprits)
    other = round_without_call(case, blame, loop, gap)
    out = _way_out(case, loop, left, inside)
    dropped = items_left_out(case.sources, loop)[:_MOST_DROPPED] if early and not out else []
    held = items_held(case.sources, loop) if not (dropped or out or loop.own_arm or other.doubt) else []
    token = gap.theirs if early else gap.mine
    doubt = other.doubt or (_TWO_LOOPS if loop.own_arm else "")
    if not doubt and out and token is not None and _asks_own_iterator(loop, token.stack):
        doubt = _ITS_ITERATOR
    nested = other_loop(case, blame.found.branch_points, early=early) if not loop.own_arm else OtherLoop()
    if not doubt and out:
        doubt = _doubt_where(case, loop, left, inside)
    doubt = doubt or nested.doubt
    counting = counting_loop(case, loop, inside) if not (loop.own_arm or out or other.doubt) else None
    if counting is None and not (loop.own_arm or out or other.doubt):
        counting = began_elsewhere(case, loop, (left, inside), abs(counts.mine - counts.theirs) if counts else None)
        doubt = doubt or (_ITS_ROUNDS if counting is not None else "")
    if counting is None and held:
        dropped, doubt = held, doubt or _ITS_ROUNDS
    if len(dropped) > 1:
        doubt = doubt or _SEVERAL_FILTERS
    known = counting is not None or dropped or out or loop.own_arm or other.doubt
    fed = _fed_to(case, loop, (culprits, others)) if not known else []
    doubt = doubt or (_ITS_ROUNDS if fed else "")
    if not (doubt or out or dropped) and item_bound(loop.guard.condition) is not None:
        doubt = _BOUND_OR_ITEMS
    return Finding(
        "HD102",
        sentence(
            [
                [Ranks(culprits), " ", _how_it_differs(culprits, early, other, counting)],
                [" (", Place(loop.file, loop.guard.line), ")"],
            ],
            where_they_wait(case, others),
        ),
        joined(
            [_ended(loop, left, inside), compared(counts), _counters(case, loop)],
            other.why,
            out,
            nested.why,
            _dropped(dropped),
            ["how many items there are may depend on ", Joined(fed, " and ")] if fed else "",
            counted_from(counting) if counting is not None else "",
        ),
        [
            _fix_left_out(dropped)
            or _fix_rounds(
                case,
                loop,
                bool(out),
                bool(out) and surely_left(case, loop, (left, inside)),
                has_role(gap.token.stack, Role.BACKWARD),
                counting,
            ),
            other.fix,
        ],
        doubt,
        next(iter(dropped or fed), None) or (counting.decided_at if counting is not None else None),
        nested.at or (other.skip if blame.found.alignment.history.inferred else None),
    )


_MOST_DROPPED = 2
"""Conditions by which an iterator leaves items out; chosen by hand."""


def _fed_to(case: Case, loop: BranchPoint, ranks: SideRanks) -> list[Condition]:
    """What decides which items a `for` of the user's goes over, or how many, followed back from there."""
    shown = partial(case.values.of, loop.file, loop.function)
    if iterator_answers(case.sources, shown, loop.file, loop.guard.line):
        return []  # told with the loop
    at = place_of(case.sources, loop.file, loop.guard.line) if not loop.of_library else None
    loops = [n for n in walk(at.tree) if isinstance(n, ast.For) and n.lineno == loop.guard.line] if at else []
    if at is None or len(loops) != 1 or is_over_fixed(case.sources, at.tree, loop.guard.line):
        return []
    return decided_back(case, ranks, at, loops[0].iter)


def _dropped(conditions: list[Condition]) -> Message:
    return ["what it goes over may leave items out by ", Joined(conditions, " and ")] if conditions else ""


_ITS_BOUND = "a loop whose bound differs between the ranks looks the same"
_LEFT_EARLY = "a loop that ended by itself and one that was left early look the same"
_SEVERAL_WAYS_OUT = "which of the conditions that leave the loop it was is not seen"
_BOUND_OR_ITEMS = "whether its bound ended the loop, or what it goes over, was not seen"
_TWO_LOOPS = "the two sides run loops of their own"
_ITS_ROUNDS = "a loop that goes over fewer items on some ranks looks the same"
_SEVERAL_FILTERS = "which of the conditions left the items out was not seen"
_ITS_ITERATOR = "an iterator that ended by itself looks the same"


def _asks_own_iterator(loop: BranchPoint, stack: Stack) -> bool:
    """True if the call is made by an iterator of the user's, which the loop asks for its next item: it may end itself.

    A library's iterator that communicates ends on all ranks at once.
    """
    at = next((i for i, f in enumerate(stack) if (f.file, f.line) == (loop.file, loop.line)), 0)
    return loop.guard.in_header and loop.guard.condition.startswith("for ") and at > 0 and not is_library(stack[at - 1])


# The first branches are the reasons to answer nothing; the rest is one Finding.
@cause("HD102", explains=Diverged, order=142)
def left_the_loop(case: Case, blame: Blame[Diverged]) -> Finding | None:
    """HD102 of devices where no source is there to read: by their lines, one side's calls come after a loop that the
    other is in.

    Before the rules that name the call alone: what the loop's end looks like from there is a call left out.
    """
    gap = blame.found.gap
    if not case.streams or gap is None or blame.found.branch_points or gap.token.op == END:
        return None
    frames = [token.frame for token in (gap.mine, gap.theirs) if token is not None and token.frame is not None]
    if any(case.sources.function(frame.file, frame.line) is not None for frame in frames):
        return None
    mine = gap.mine or (gap.token if gap.kind == "delete" else None)
    if mine is None:
        return None
    return _by_lines(case, blame, mine, _calls_of_others(case, gap, others_of(case, blame)))


def _by_lines(case: Case, blame: Blame[Explanation], mine: Token, theirs: list[Token]) -> Finding | None:
    """HD102 where the culprits' call, or one of the others', comes after the loop that the other is in."""
    culprits, others = blame.culprits, others_of(case, blame)
    early = next((t for t in theirs if is_after_loop(case, mine, t)), None)
    # What ends some rounds, or every epoch, was made before: without it, a round more and a call less look the same.
    last = (t for t in theirs if early is None and not _was_made_before(case, t))
    late = next((t for t in last if is_after_loop(case, t, mine)), None)
    at = early or late
    if at is None:
        return None
    inside, outside = (at, mine) if early is not None else (mine, at)
    left, still = (culprits, others) if early is not None else (others, culprits)
    verb, how = ("left", " early") if early is not None else (Verb(culprits, "goes on with", "go on with"), "")
    counted = blame.diverged
    return Finding(
        "HD102",
        sentence([Ranks(culprits), " ", verb, " the loop of ", call_at(inside), how], where_they_wait(case, others)),
        [
            [Ranks(left), " ", Verb(left, "is", "are"), " at ", call_at(outside), ", which comes after it, and "],
            [Ranks(still), " ", Verb(still, "goes", "go"), " on with another round"],
            compared(calls_from(case, blame, counted.alignment.history, inside)) if counted is not None else "",
        ],
        "give every rank the same number of rounds (agree on the count before the loop)",
        "the loop was not read: a call at the end of one of its rounds looks the same",
    )


def _was_made_before(case: Case, call: Token) -> bool:
    program = case.programs.get(call.rank)
    before = program.tokens[: max(0, call.order)] if program is not None else ()
    return any((t.site, t.op) == (call.site, call.op) for t in before)


def _calls_of_others(case: Case, gap: Gap, others: tuple[int, ...]) -> list[Token]:
    """The call that the others made where the sides diverged; or what their devices are at, in other groups."""
    if gap.theirs is not None and gap.theirs.frame is not None:
        return [gap.theirs]
    fronts = (case.streams.fronts.get(rank) for rank in others)
    return list({f.call.site: f.call for f in fronts if f is not None and f.call is not None}.values())


def _how_it_differs(
    culprits: tuple[int, ...], early: bool, other: RoundWithoutCall, counting: CountingLoop | None
) -> Message:
    more = set(counting.left.values()) if counting is not None and not early else set()
    if len(more) == 1 and more != {0}:
        rounds = more.pop() + 1
        return [Verb(culprits, "has", "have"), f" {rounds} more rounds of the loop to go"]
    if not early:
        return [Verb(culprits, "goes", "go"), " on with the loop"]
    if other.quiet:
        return "left the loop after fewer synchronized steps"
    return "left the loop with fewer calls" if other.doubt else "left the loop early"


def _ended(loop: BranchPoint, left: tuple[int, ...], inside: tuple[int, ...]) -> Message:
    if loop.own_arm:
        return [
            [cited(loop.guard, loop.file), " ended on ", Ranks(left), ", and ", Ranks(inside)],
            [" ", Verb(inside, "expects", "expect"), " another round of it"],
        ]
    return [cited(loop.guard, loop.file), " ended on ", Ranks(left), " and not on ", Ranks(inside)]


def _counters(case: Case, loop: BranchPoint) -> Message:
    """' (step = 7 on rank 0 | 8 on rank 1)'; '' where no counter differs."""
    counts = counter_values(loop, case.values)
    shown: list[Message] = [[f"{name} = ", Values(per_rank, " | ")] for name, per_rank in counts.items()]
    return [" (", Joined(shown), ")"] if shown else ""


def _doubt_where(case: Case, loop: BranchPoint, left: tuple[int, ...], inside: tuple[int, ...]) -> str:
    """What else may have ended a loop that its body leaves, too; '' where that shows one place and no other end."""
    if seen_way_out(case, loop, left, inside) is not None:
        return ""
    one = way_out_of(case, loop) is not None
    if surely_left(case, loop, (left, inside)):
        return "" if one else _SEVERAL_WAYS_OUT
    return _ITS_BOUND if one else _LEFT_EARLY


def _way_out(case: Case, loop: BranchPoint, left: tuple[int, ...], inside: tuple[int, ...]) -> Message:
    """At which conditions the ranks ``left`` may have left the loop, or must have; '' where it only ends by itself."""
    tree = case.sources.function(loop.file, loop.guard.line)
    out = ways_out(tree, loop.guard.line) if tree is not None else []
    if tree is None or not out:
        return ""
    seen = seen_way_out(case, loop, left, inside)
    if seen is not None:
        return [Ranks(left), " left it at ", cited(seen, loop.file)]
    conditions = Joined([Condition(condition, loop.file, line) for line, condition in out[:3]], " or ")
    left_at = " left it at " if surely_left(case, loop, (left, inside)) else " may have left it at "
    return [Ranks(left), left_at, conditions]


def _fix_rounds(
    case: Case, loop: BranchPoint, left: bool, surely: bool, trains: bool, counting: CountingLoop | None
) -> Message:
    """What gives all ranks the same rounds. Of a loop that was ``surely`` left, equal data would not. ``trains``: what
    it calls are DDP's reductions of gradients, which Join answers for a rank that has no more data."""
    if counting is not None:
        return agreed_start(counting)
    if loop.own_arm:
        return "end the other ranks' loop with it: a last call that tells them to stop, or a number of rounds agreed on"
    stop = "let all ranks agree on when to stop (all_reduce the flag before anybody leaves the loop)"
    at = place_of(case.sources, loop.file, loop.guard.line) if not loop.of_library else None
    counted = compared_count(at.tree, loop.guard.line) if at is not None and not (left or surely) else None
    if counted is not None:
        return f"let all ranks come to that loop with the same `{counted[0]}` and `{counted[1]}`"
    if surely or loop.guard.condition.startswith("while "):
        return stop
    join = ", or wrap the loop in `with Join([model]):` (torch.distributed.algorithms.join)" if trains else ""
    count = agreed_count(loop.guard.condition, alone=not (left or join), sources=case.sources, at=at)
    return f"{stop + ', or ' if left else ''}{count}{join}"


def _fix_left_out(dropped: list[Condition]) -> str:
    """'' where nothing is known to leave items out."""
    if not dropped:
        return ""
    text = dropped[0].source.removeprefix("if ").removesuffix(":")
    return (
        f"give every rank the same number of items after `{text}` (agree on the count before the loop, or let all stop "
        "with the first that has none left: all_reduce a flag in every round)"
    )
