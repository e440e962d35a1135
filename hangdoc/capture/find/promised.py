"""Which ranks of a job have a process: one process per rank, its rivals, and the ranks without any.

`watch` and `attach` find processes in different ways. What follows from the processes is decided here, once.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from hangdoc.capture.find.process_table import ProcessTable
from hangdoc.capture.find.spawned import actors, siblings, unreaped
from hangdoc.capture.find.target import RankTarget
from hangdoc.model.launch import is_loopback, number, on_many_hosts

_MAX_ABSENT = 100_000
"""No larger world is believed: a list of its ranks would fill the memory. The largest published one is 96,000."""


def one_per_rank(found: Iterable[RankTarget]) -> list[RankTarget]:
    """Of each agent's latest restart one process per rank, the first that ``found`` names.

    Another one that the same process started is its rival: a launcher has given one rank to both. For example, a
    script that starts pids 11, 12 and 13 with RANK=0, 1 and 1 gives rank 1 with pid 12, and 13 as its rival.
    """
    every = [target for target in found if target.pid is not None]
    latest = latest_restarts(every)
    chosen: dict[int, RankTarget] = {}
    for target in every:
        if target.restart != latest[target.parent]:
            continue
        first = chosen.setdefault(target.rank, target)
        beside = first.parent is not None and first.parent == target.parent
        if first.pid != target.pid and target.pid is not None and beside:
            chosen[target.rank] = replace(first, rivals=(*first.rivals, target.pid))
    return list(chosen.values())


def latest_restarts(found: Iterable[RankTarget]) -> dict[int | None, int]:
    """What started ranks → its latest restart. Two agents of one job may count differently: all ranks are started anew
    when one fails, and the agent of that one alone counts it (torch 1.10 to 2.13)."""
    latest: dict[int | None, int] = {}
    for target in found:
        latest[target.parent] = max(target.restart, latest.get(target.parent, 0))
    return latest


def absent(found: Sequence[RankTarget], host: str) -> list[RankTarget]:
    """The ranks that this machine must have and that have no process: all that the world size counts or, of a job on
    several machines, those that torchrun numbers for this one."""
    world = max((target.world_size or 0 for target in found), default=0)
    if world > _MAX_ABSENT:
        return []
    present = {target.rank for target in found}
    restart = max((target.restart for target in found), default=0)
    numbered = [target.local_rank for target in found if target.local_rank is not None]
    # Two ranks here with one LOCAL_RANK: the program numbers its ranks after something else than the hosts.
    by_host = len(numbered) == len(set(numbered))
    if any(_many_nodes(dict(target.environment), target, world, by_host=by_host) for target in found):
        return [
            RankTarget(rank, None, "expected", world_size=world, local_rank=local, restart=count, host=host)
            for own, count in _nodes_of_this_host(found)
            for local, rank in enumerate(own)
            if rank not in present
        ]
    return [
        RankTarget(rank, None, "expected", world_size=world, restart=restart, host=host)
        for rank in range(world)
        if rank not in present
    ]


def _nodes_of_this_host(found: Sequence[RankTarget]) -> list[tuple[range, int]]:
    """(the ranks that an agent of torchrun starts here, which it numbers without a gap (torch 1.10 to 2.13), its
    restarts); empty where that does not fit together.

    Rank 2 with LOCAL_RANK=0 and LOCAL_WORLD_SIZE=2 → ranks 2 and 3.
    """
    world = max((target.world_size or 0 for target in found), default=0)
    nodes: dict[range, int] = {}
    for target in found:
        environment = dict(target.environment)
        count = number(environment.get("LOCAL_WORLD_SIZE"))
        if "TORCHELASTIC_RUN_ID" not in environment or count is None or target.local_rank is None:
            return []
        first = target.rank - target.local_rank
        if first < 0 or first + count > world:
            return []
        own = range(first, first + count)
        nodes[own] = max(target.restart, nodes.get(own, 0))
    in_order = sorted(nodes, key=lambda own: (own.start, own.stop))
    apart = all(before.stop <= own.start for before, own in pairwise(in_order))
    return [(own, nodes[own]) for own in in_order] if apart else []


def _many_nodes(environment: Mapping[str, str], target: RankTarget, world: int, *, by_host: bool) -> bool:
    """Whether a rank's environment says that other machines take part. ``by_host``: LOCAL_RANK may count the ranks of a
    host."""
    elastic = "TORCHELASTIC_RUN_ID" in environment
    other_local = by_host and target.local_rank is not None and target.local_rank != target.rank and not elastic
    return other_local or on_many_hosts(environment, world)


def may_be_elsewhere(targets: Iterable[RankTarget]) -> bool:
    """Whether the other ranks of a job that was started by hand may run on other hosts.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.0.0.7 may be half of a job; with MASTER_ADDR=localhost, or with a launcher's
    count of the ranks on this host, it cannot.
    """
    environments = [dict(target.environment) for target in targets]
    addresses = {environment.get("MASTER_ADDR", "") for environment in environments}
    counted = any("LOCAL_WORLD_SIZE" in environment for environment in environments)
    return not counted and any(address and not is_loopback(address) for address in addresses)


def with_strangers(
    targets: Iterable[RankTarget], parents: Collection[int], table: ProcessTable, ended: Container[int] = ()
) -> tuple[RankTarget, ...]:
    """``targets``; a rank without a process gets the identity 'unseen' if an unidentified process may be that rank.

    A stranger is a child of one of ``parents``, who started the ranks, that is none of them: one that may be a rank
    and does not say which, or one that has ended and has not been reaped. ``ended``: ranks of which more is known.
    """
    every = tuple(targets)
    open_ranks = {t.rank for t in every if t.pid is None and t.identity == "expected" and t.rank not in ended}
    pids = {target.pid for target in every if target.pid is not None}
    if not open_ranks or not any(
        {*siblings(table, parent), *unreaped(table, parent), *actors(table, parent, pids)} - pids for parent in parents
    ):
        return every
    return tuple(replace(target, identity="unseen") if target.rank in open_ranks else target for target in every)
