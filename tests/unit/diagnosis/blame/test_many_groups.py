"""Many ranks in many groups: what threads called on them is read once for each group."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hangdoc.diagnosis.blame import across_groups
from hangdoc.diagnosis.calls.history import GroupHistory

SIZE, GROUP = 64, 8


class Calls(list[Any]):
    """The calls of one rank on a group, and how often they were gone through."""

    read = 0

    def __iter__(self) -> Any:
        Calls.read += 1
        return super().__iter__()


def history(name: str, *members: int) -> GroupHistory:
    calls = {rank: Calls([SimpleNamespace(thread_id=7)]) for rank in members}
    return GroupHistory((name, members), members, name, calls)


def test_calls_are_gone_through_once() -> None:
    rows = [history(f"t{at}", *range(at, at + GROUP)) for at in range(0, SIZE, GROUP)]
    columns = [history(f"d{at}", *range(at, SIZE, GROUP)) for at in range(GROUP)]
    waits = {rank: rows[rank // GROUP] if rank % 2 else columns[rank % GROUP] for rank in range(SIZE)}
    activities = {rank: SimpleNamespace(group=each.key[0], members=each.members) for rank, each in waits.items()}
    graph = SimpleNamespace(stuck=frozenset(range(SIZE)))
    case: Any = SimpleNamespace(histories=[*rows, *columns], graph=graph, activities=activities)
    assert across_groups._left_out_by_a_thread(case) is None
    assert Calls.read == 2 * SIZE
