"""One call of all ranks that cannot complete: its arguments or roots differ, or a message has no partner."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import GroupHistory, Token, unlike_calls_paired
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.frames.landmarks import number_below_user
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.operations import operation
from hangdoc.diagnosis.frames.stacks import Site
from hangdoc.model.kinds import MESSAGES


@dataclass(frozen=True, slots=True)
class Disagreement(Explanation):
    """One call on which ranks disagree. ``what``: 'arguments' or 'root'; ``values``: rank → its value, in words."""

    what: str
    history: GroupHistory
    tokens: dict[int, Token]
    values: dict[int, str]

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

    ``ended``: the job is over, so the last call of each group counts even if it returned.
    """
    return next((d for history in case.histories if (d := disagreement_of(case, history, ended=ended))), None)


def disagreement_of(case: Case, history: GroupHistory, *, ended: bool = False) -> Disagreement | None:
    """The same of one group."""
    if history.inferred:
        return _different_roots(case, history)
    return _disagreement_in(case, history, _last_common_call(history, ended=ended), ended=ended)


def _last_common_call(history: GroupHistory, *, ended: bool) -> dict[int, Token]:
    """Rank → its token of the last call that all seen members have issued; {} where they did not all see the same.

    Members that were not seen are passed over only in a job that is over (a rank that aborted took its journal along),
    or where two that were seen are in unlike calls of one number.
    """
    blind = frozenset(history.blind)
    seen = [rank for rank in history.members if rank not in blind]
    if len(seen) < 2 or (history.blind and not ended and not unlike_calls_paired(history)):
        return {}
    last = min(history.issued(rank) for rank in seen)
    first = [number for rank in seen if (number := history.first_pending(rank))]
    last = min([last, *first])
    tokens = {rank: t for rank in seen if (t := history.at(rank, last)) is not None}
    return tokens if len(tokens) == len(seen) and len({t.op for t in tokens.values()}) == 1 else {}


def _disagreement_in(
    case: Case, history: GroupHistory, tokens: dict[int, Token], *, ended: bool
) -> Disagreement | None:
    """The disagreement of the ranks in one call, ``tokens`` of each. Arguments are compared before roots."""
    waiting = [t.pending for t in tokens.values()]
    if not ended and not any(waiting):
        return None
    for what, value in (("arguments", _arguments), ("root", _root_of(case, history))):
        # A rank that has done its part of a rooted call may have returned, and wait elsewhere. On a device, the one
        # that has the least data may have completed its call.
        on_device = any(t.state for t in tokens.values())
        if what == "arguments" and not ended and not all(waiting) and not on_device:
            continue
        values = {rank: v for rank, t in tokens.items() if (v := value(rank, t)) is not None}
        # A rank that has done its part of a rooted call need not show its root any more.
        enough = len(values) == len(tokens) or what == "root"
        if enough and len(set(values.values())) > 1:
            return Disagreement(what, history, tokens, {rank: str(v) for rank, v in values.items()})
    return None


def _different_roots(case: Case, history: GroupHistory) -> Disagreement | None:
    """The ranks that wait in one rooted call, at one line, with different roots, as their stacks show them.

    Only the root's number within the group is compared: other groups use the same line with other global ranks.
    """
    at_one_line: dict[tuple[Hashable, ...], dict[int, Token]] = {}
    for rank, tokens in history.tokens.items():
        at_one_line.setdefault((tokens[0].op, tokens[0].site), {})[rank] = tokens[0]
    for alike in at_one_line.values():
        roots = {rank: number_below_user(case.activities[rank].stack, *names("root_local_in_group")) for rank in alike}
        values = {rank: str(root) for rank, root in roots.items() if root is not None}
        if len(set(values.values())) > 1:
            return Disagreement("root", history, alike, values)
    return None


def arguments_of(token: Token) -> Hashable:
    """Operation, sizes and dtypes of a call."""
    return token.op, token.sizes, token.dtypes


def _arguments(_rank: int, token: Token) -> Hashable | None:
    if token.sizes is None:
        return None
    return " ".join(f"{list(size)}" for size in token.sizes) + (f" {', '.join(token.dtypes)}" if token.dtypes else "")


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


def missing_partners(case: Case) -> list[tuple[int, int]]:
    """(waiting rank, peer) of each send and recv whose peer is stuck in something that is not a message."""
    found: list[tuple[int, int]] = []
    for rank in sorted(case.graph.stuck):
        activity = case.activities[rank]
        peer = activity.peer
        if activity.kind not in MESSAGES or peer is None or peer not in case.activities:
            continue
        if case.activities[peer].kind not in MESSAGES and peer in case.graph.stuck:
            found.append((rank, peer))
    return found
