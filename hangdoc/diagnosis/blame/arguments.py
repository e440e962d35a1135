"""One call of all ranks that cannot complete: its arguments or roots differ, or a message has no partner."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import GroupHistory, Token
from hangdoc.diagnosis.calls.recorded_tokens import pending_numbers
from hangdoc.diagnosis.calls.unlike_calls import unlike_calls_paired
from hangdoc.diagnosis.condition.rounds_ahead import rounds_of
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.frames.landmarks import number_below_user
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.stacks import Site, user_stack
from hangdoc.diagnosis.source.message_calls import root_of_round
from hangdoc.model.operations import operation


@dataclass(frozen=True, slots=True)
class Disagreement(Explanation):
    """One call on which ranks disagree. ``what``: 'arguments' or 'root'; ``values``: rank → its value, in words."""

    what: str
    history: GroupHistory
    tokens: dict[int, Token]
    values: dict[int, str]
    gone_on: str = ""
    """The value of the side whose root is in another call, where the other side's root is in this one: a root waits for
    all of its group, so that one has taken itself for no root."""

    @property
    def site(self) -> Site | None:
        """The site that all ranks called from; None where it differs, or was not seen."""
        sites = {token.site for token in self.tokens.values()}
        return next(iter(sites)) or None if len(sites) == 1 else None

    @property
    def sides(self) -> list[tuple[int, ...]]:
        """The ranks of each value, the rarest value first. Example: {0: 'a', 1: 'b', 2: 'a'} → [(1,), (0, 2)]."""
        by_value: dict[str, list[int]] = {}
        for rank, value in self.values.items():
            by_value.setdefault(value, []).append(rank)
        return sorted((tuple(sorted(ranks)) for ranks in by_value.values()), key=lambda ranks: (len(ranks), ranks))


def disagreement(case: Case, *, ended: bool = False) -> Disagreement | None:
    """The first call that every member of its group issued with different arguments or roots.

    ``ended``: the job is over, so the last call of each group counts even if it returned. Example: all ranks are in
    broadcast #4, with root 0 on ranks 0 and 1 and root 2 on rank 2 → 'root', values {0: '0', 1: '0', 2: '2'}.
    """
    return next((d for history in case.histories if (d := disagreement_of(case, history, ended=ended))), None)


def disagreement_of(case: Case, history: GroupHistory, *, ended: bool = False) -> Disagreement | None:
    """The same of one group."""
    if history.inferred:
        return _different_roots(case, history)
    calls = _common_calls(history, ended=ended)
    return next((d for tokens in calls if (d := _disagreement_in(case, history, tokens, ended=ended))), None)


def _common_calls(history: GroupHistory, *, ended: bool) -> Iterator[dict[int, Token]]:
    """Rank → its token, of each call that all seen members have issued and that may hold them up, in order.

    These are the calls of which one is pending, as asynchronous ones may be while later ones are issued, and the last;
    in a job that is over any call, as its end completes them all.
    Members that were not seen are left out only if the job is over (the journal of a rank that aborted is lost), or if
    two that were seen are in different calls of one number. Example: ranks 0 and 1 have issued 5 calls and wait in #3,
    rank 2 has issued 6 → their tokens of calls #3 and #5.
    """
    # One function in spite of its branches: four of them are comprehensions that pick out calls and ranks.
    blind = frozenset(history.blind)
    seen = [rank for rank in history.members if rank not in blind]
    if len(seen) < 2 or (history.blind and not ended and not unlike_calls_paired(history)):
        return
    last = _last_that_holds_up(history, seen)
    # Ranks of equal programs share one list of tokens.
    lists = {id(calls): calls for rank in seen if (calls := history.tokens.get(rank))}.values()
    numbers = {n for calls in lists for n in ([t.sequence for t in calls] if ended else pending_numbers(calls))}
    for number in sorted({n for n in numbers if n <= last} | {last}):
        tokens = {rank: t for rank in seen if (t := history.at(rank, number)) is not None}
        if len(tokens) == len(seen) and len({t.op for t in tokens.values()}) == 1:
            yield tokens


def _last_that_holds_up(history: GroupHistory, ranks: list[int]) -> int:
    """The number of the last call that all ``ranks`` have issued and that may hold one of them up."""
    # A device gets to no call after its first that has not completed: those after it hold nobody up yet.
    fronts = [number for rank in ranks if (number := history.first_pending(rank))]
    return min([*(history.issued(rank) for rank in ranks), *fronts])


def _disagreement_in(
    case: Case, history: GroupHistory, tokens: dict[int, Token], *, ended: bool
) -> Disagreement | None:
    """The disagreement of the ranks in one call, ``tokens`` of each. Arguments are compared before roots."""
    waiting = [t.pending for t in tokens.values()]
    if not ended and not any(waiting):
        return None
    # A rank that has done its part of a rooted call may have returned, and wait elsewhere. On a device, the one that
    # has the least data may have completed its call.
    if ended or all(waiting) or any(t.state for t in tokens.values()):
        given = _values(tokens, _arguments)
        if len(given) == len(tokens) and len(set(given.values())) > 1:
            return Disagreement("arguments", history, tokens, given)
    # A rank that has done its part of a rooted call need not show its root any more.
    roots = _values(tokens, _root_of(case, history))
    return Disagreement("root", history, tokens, roots) if len(set(roots.values())) > 1 else None


def _values(tokens: dict[int, Token], value: Callable[[int, Token], Hashable | None]) -> dict[int, str]:
    """Rank → that value of its call as text, for ranks where it is known."""
    return {rank: str(found) for rank, token in tokens.items() if (found := value(rank, token)) is not None}


def _different_roots(case: Case, history: GroupHistory) -> Disagreement | None:
    """The ranks that wait in one rooted call, at one line, with different roots, as their stacks show them.

    Only the root's number within the group is compared: other groups use the same line with other global ranks. A root
    that counts the rounds of a loop is no argument on which ranks could disagree.
    """
    at_one_line: dict[tuple[Hashable, ...], dict[int, Token]] = {}
    for rank, tokens in history.tokens.items():
        at_one_line.setdefault((tokens[0].op, tokens[0].site), {})[rank] = tokens[0]
    for each in at_one_line.values():
        alike = _of_one_round(case, each)
        roots = {rank: number_below_user(case.activities[rank].stack, *names("root_local_in_group")) for rank in alike}
        values = {rank: str(root) for rank, root in roots.items() if root is not None}
        if len(set(values.values())) > 1 and not _by_round(case, history, alike):
            return Disagreement("root", history, alike, values, _gone_on(history, values))
    return None


def _of_one_round(case: Case, tokens: dict[int, Token]) -> dict[int, Token]:
    """The tokens of the ranks in the earliest round, where all show their rounds; else all. Who has done its part of a
    rooted call goes on, and names the root of a later one.

    Example: rank 0 takes the parts of all in the gather of step 20, and the others are in that of step 21 → rank 0.
    """
    first = next(iter(tokens))
    rounds = {rank: each[1] for rank in tokens if (each := rounds_of(case, first, rank)) is not None}
    if len(rounds) < len(tokens) or len({tuple(each) for each in rounds.values()}) == 1:
        return tokens
    return {rank: token for rank, token in tokens.items() if rounds[rank] == min(rounds.values())}


def _by_round(case: Case, history: GroupHistory, tokens: dict[int, Token]) -> bool:
    """True if the root goes by the round that the rank is in. Where all are in the call, the loop's items may be in
    another order."""
    frame = next(iter(user_stack(next(iter(tokens.values())).stack)), None)
    tree = case.sources.function(frame.file, frame.line) if frame is not None else None
    some = len(tokens) < len(history.members)
    return frame is not None and tree is not None and root_of_round(tree, frame.line, of_items=some)


def _gone_on(history: GroupHistory, values: dict[int, str]) -> str:
    """Of two roots, by their numbers within the group, the one that is in another call while the other is its own.

    Example: ranks 0 and 2 are in a broadcast, with roots 0 and 1, and rank 1 waits in a later call → '1'.
    """
    roots = {value: history.members[int(value)] for value in values.values() if int(value) < len(history.members)}
    elsewhere = [value for value, rank in roots.items() if rank not in values and history.tokens.get(rank)]
    own = [value for value, rank in roots.items() if values.get(rank) == value]
    return elsewhere[0] if len(roots) == 2 and len(elsewhere) == len(own) == 1 else ""


def arguments_of(token: Token) -> Hashable:
    """Operation, sizes and dtypes of a call."""
    return token.op, token.sizes, token.dtypes


def arguments_text(token: Token) -> str | None:
    """'[16] Float'; None for a call whose sizes may differ."""
    if token.sizes is None:
        return None
    return " ".join(f"{list(size)}" for size in token.sizes) + (f" {', '.join(token.dtypes)}" if token.dtypes else "")


def _arguments(_rank: int, token: Token) -> Hashable | None:
    return arguments_text(token) or None  # '' of a call whose tensors were not seen


def _root_of(case: Case, history: GroupHistory) -> Callable[[int, Token], Hashable | None]:
    """The function (rank, token) → root of that call as a global rank; None where it is not known."""

    # Ranks with equal histories share their tokens, so the stack is found by the rank.
    def root(rank: int, token: Token) -> Hashable | None:
        if token.root is not None:
            return history.members[token.root] if token.root < len(history.members) else token.root
        if not operation(token.op).rooted:
            return None
        return number_below_user(case.activities[rank].stack, *names("root_local")) if token.pending else None

    return root
