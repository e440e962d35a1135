"""Everybody is in the same call, and it cannot complete: the arguments differ, or a message has no partner."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass

from hangdoc.diagnosis.calls.history import GroupHistory, Token, unlike_calls_paired
from hangdoc.diagnosis.context import Case
from hangdoc.diagnosis.explanation import Explanation
from hangdoc.diagnosis.frames.landmarks import number_below_user
from hangdoc.diagnosis.frames.names import names
from hangdoc.diagnosis.frames.operations import operation
from hangdoc.model.kinds import MESSAGES


@dataclass(frozen=True, slots=True)
class Disagreement(Explanation):
    """One call on which ranks disagree. ``what``: 'arguments' or 'root'; ``values`` in words, by rank."""

    what: str
    history: GroupHistory
    tokens: dict[int, Token]
    values: dict[int, str]

    @property
    def sides(self) -> list[tuple[int, ...]]:
        """The ranks by value, fewest first."""
        by_value: dict[str, list[int]] = {}
        for rank, value in self.values.items():
            by_value.setdefault(value, []).append(rank)
        return sorted((tuple(sorted(ranks)) for ranks in by_value.values()), key=lambda ranks: (len(ranks), ranks))


def disagreement(case: Case, *, ended: bool = False) -> Disagreement | None:
    """The first call that every member issued with different arguments or roots; of a job that has ended, the last
    call of each group counts even if it returned."""
    for history in case.histories:
        if history.inferred and (found := _standing_roots(case, history)) is not None:
            return found
        # A rank that aborted took its journal along.
        blind = frozenset(history.blind)
        seen = [rank for rank in history.members if rank not in blind]
        if history.inferred or len(seen) < 2 or (history.blind and not ended and not unlike_calls_paired(history)):
            continue
        last = min(history.issued(rank) for rank in seen)
        tokens = {rank: t for rank in seen if (t := history.at(rank, last)) is not None}
        if len(tokens) < len(seen) or len({t.op for t in tokens.values()}) > 1:
            continue
        waiting = [t.pending for t in tokens.values()]
        if not ended and not any(waiting):
            continue
        for what, value in (("arguments", _arguments), ("root", _root_of(case, history))):
            # Who has sent or received its part of a rooted call may be through, and wait elsewhere.
            if what == "arguments" and not ended and not all(waiting):
                continue
            values = {rank: v for rank, t in tokens.items() if (v := value(rank, t)) is not None}
            # Whose part of a rooted call is done need not show its root any more.
            enough = len(values) == len(tokens) or what == "root"
            if enough and len(set(values.values())) > 1:
                return Disagreement(what, history, tokens, {rank: str(v) for rank, v in values.items()})
    return None


def _standing_roots(case: Case, history: GroupHistory) -> Disagreement | None:
    """Ranks that stand in one rooted call, at one line, with different roots. Only the root's number within the group
    is compared: groups of their own use the same line with other global ranks."""
    standing: dict[tuple[Hashable, ...], dict[int, Token]] = {}
    for rank, tokens in history.tokens.items():
        standing.setdefault((tokens[0].op, tokens[0].site), {})[rank] = tokens[0]
    for alike in standing.values():
        roots = {rank: number_below_user(case.activities[rank].stack, *names("root_local_in_group")) for rank in alike}
        values = {rank: str(root) for rank, root in roots.items() if root is not None}
        if len(set(values.values())) > 1:
            return Disagreement("root", history, alike, values)
    return None


def _arguments(_rank: int, token: Token) -> Hashable | None:
    if token.sizes is None:
        return None
    return " ".join(f"{list(size)}" for size in token.sizes) + (f" {', '.join(token.dtypes)}" if token.dtypes else "")


def _root_of(case: Case, history: GroupHistory) -> Callable[[int, Token], Hashable | None]:
    # Ranks with equal histories share their tokens: the token does not tell whose stack to look at.
    def root(rank: int, token: Token) -> Hashable | None:
        if token.root is not None:
            return history.members[token.root] if token.root < len(history.members) else token.root
        if not operation(token.op).rooted:
            return None
        return number_below_user(case.activities[rank].stack, *names("root_local")) if token.pending else None

    return root


def missing_partners(case: Case) -> list[tuple[int, int]]:
    """(waiting rank, peer): sends and recvs whose peer is stuck in something else than their counterpart."""
    found: list[tuple[int, int]] = []
    for rank in sorted(case.graph.stuck):
        activity = case.activities[rank]
        peer = activity.peer
        if activity.kind not in MESSAGES or peer is None or peer not in case.activities:
            continue
        if case.activities[peer].kind not in MESSAGES and peer in case.graph.stuck:
            found.append((rank, peer))
    return found
