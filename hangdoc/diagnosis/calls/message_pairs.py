"""Which sends and receives have a partner. Those of two ranks pair in their order, by group and tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from hangdoc.model.journal import Journal, PointToPoint
from hangdoc.model.operations import message_way

_Key = tuple[str, int, int, int]
"""Group, sender, receiver, tag."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A message that ``rank`` has issued and its peer has not."""

    rank: int
    message: PointToPoint

    @property
    def pair(self) -> tuple[int, int]:
        """The two ranks, the lower one first."""
        return min(self.rank, self.message.peer), max(self.rank, self.message.peer)


def alone(journals: Mapping[int, Journal]) -> list[Alone]:
    """The messages without a partner, of pairs of ranks that both have a journal.

    Ranks that receive from any source are left out: their partners are unknown. If one side has dropped old messages,
    completed ones count as paired, and only pending ones are compared. Example: 7 sends kept of 15 and 16 recvs, the
    last one pending → that recv, and not 9 of them.
    """
    found = []
    for sends, recvs in _ways(journals):
        paired = min(len(sends), len(recvs))
        found += sends[paired:] + recvs[paired:]
    return sorted(found, key=lambda each: (each.message.created_ns, each.rank))


def paired(journals: Mapping[int, Journal]) -> list[tuple[Alone, Alone]]:
    """(send, recv) of each message that both ranks have issued, as ``alone`` pairs them."""
    return [pair for sends, recvs in _ways(journals) for pair in zip(sends, recvs, strict=False)]


def _ways(journals: Mapping[int, Journal]) -> Iterator[tuple[list[Alone], list[Alone]]]:
    """(sends, recvs) of each group, sender, receiver and tag, which pair in their order."""
    known = {
        rank: journal
        for rank, journal in journals.items()
        if all(m.op != "recv_anysource" for m in journal.point_to_points)
    }
    issued: dict[_Key, dict[str, list[Alone]]] = {}
    for rank, journal in known.items():
        for message in journal.point_to_points:
            way = message_way(message.op)
            if not way or message.peer not in known:
                continue
            ends = (rank, message.peer) if way == "send" else (message.peer, rank)
            issued.setdefault((message.group, *ends, message.tag), {}).setdefault(way, []).append(Alone(rank, message))
    for (_, sender, receiver, _), ways in issued.items():
        sends, recvs = ways.get("send", []), ways.get("recv", [])
        if not (known[sender].has_all_messages and known[receiver].has_all_messages):
            sends, recvs = ([each for each in some if not each.message.completed] for some in (sends, recvs))
        yield sends, recvs


def left_without(found: list[Alone]) -> dict[tuple[int, int], Alone]:
    """(lower rank, higher rank) → one pending message, for pairs between which a message is missing or does not fit.

    Its peer waits for no message, or for one of this rank's that does not fit. A rank whose peer waits for a third rank
    is left out: its partner may still come.

    Example: 0 waits for 1 and 1 for 0 with other tags → {(0, 1)}; 0 waits for 1 and 1 for 2 → {(1, 2)}.
    """
    pending = [each for each in found if not each.message.completed]
    offers: dict[int, set[int]] = {}
    for each in pending:
        offers.setdefault(each.rank, set()).add(each.message.peer)
    pairs: dict[tuple[int, int], Alone] = {}
    for each in pending:
        theirs = offers.get(each.message.peer, set())
        if not theirs or each.rank in theirs:
            pairs.setdefault(each.pair, each)
    return pairs


def common_rank(pairs: Iterable[tuple[int, int]]) -> frozenset[int]:
    """The only rank that is an end of every one of several pairs. Example: (0, 1) and (1, 2) → {1}."""
    pairs = list(pairs)
    common = frozenset.intersection(*map(frozenset, pairs)) if len(pairs) > 1 else frozenset[int]()
    return common if len(common) == 1 else frozenset()
