"""Calls that ranks have in common: kept once, and in each rank as if they were its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hangdoc.model import encode
from hangdoc.model.codec import snapshot_from_bytes, snapshot_to_bytes
from hangdoc.model.journal import Call, Journal
from hangdoc.model.shared_calls import GroupCalls, Order, Rows, SharedCalls
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot

ROWS = {
    "tp": Rows([Call("", n, n, "all_reduce", 0, created_ns=10 * n, started_ns=10 * n + 1) for n in (1, 2, 3)]),
    "dp": Rows([Call("", 1, 1, "barrier", 1, created_ns=25, completed=False)]),
}
ORDER = Order((0, 0, 1, 0))


def of_rank(rank: int) -> SharedCalls:
    return SharedCalls(tuple(GroupCalls(f"{name}_{rank}", rows) for name, rows in ROWS.items()), ORDER)


def plain(rank: int) -> tuple[Call, ...]:
    first, second, third = (replace(row, group=f"tp_{rank}") for row in ROWS["tp"].calls)
    return first, second, replace(ROWS["dp"].calls[0], group=f"dp_{rank}"), third


def test_they_are_what_the_rank_issued() -> None:
    for rank in (0, 9):
        shared, own = of_rank(rank), plain(rank)
        assert shared == own and own == shared and hash(shared) == hash(own) and shared != own[:3]
        assert [shared[at] for at in (0, 2, -1)] == [own[0], own[2], own[-1]]
        assert shared[1:] == own[1:] and shared[-2:] == own[-2:] and list(reversed(shared)) == list(reversed(own))
        assert list(SharedCalls.of(own)) == list(shared)
        with pytest.raises(IndexError):
            shared[4]


@pytest.mark.parametrize("large", [1, 1 << 30])
def test_they_are_saved_with_each_ranks_own_times(large: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "_LARGE", large)
    times: tuple[tuple[tuple[str, int, int], ...], ...] = ((), (("call", 3, 37),), (("call", 2, 26), ("call", 3, 38)))
    journals = [Journal("dump", calls=of_rank(rank), issued_at=own) for rank, own in enumerate(times)]
    ranks = tuple(RankSnapshot(rank, "", "dump", journal=journal) for rank, journal in enumerate(journals))
    found = snapshot_from_bytes(snapshot_to_bytes(JobSnapshot(1.0, "dump", ranks=ranks)))
    read = [rank.journal for rank in found.ranks if rank.journal is not None]
    assert [tuple(journal.calls) for journal in read] == [plain(rank) for rank in range(3)]
    assert [journal.call_issued_ns(3) for journal in read] == [30, 37, 38]
