"""Find the ranks of a watched job below its command: from the probes first, from the process tree second.

A search of a healthy job reads one stat line of every process of the machine and the variables of those below the
command, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hangdoc.capture.find import launchers
from hangdoc.capture.find.launchers import Carrier
from hangdoc.capture.find.process_table import Entry, ProcessTable, read_table
from hangdoc.capture.find.promised import absent, one_per_rank, with_strangers
from hangdoc.capture.find.spawned import find_spawned
from hangdoc.capture.find.target import RankTarget, host_name, target_of
from hangdoc.capture.read.probe_client import ProbeClient, ProbeCounters, read_introduction


def find_ranks(
    root_pid: int,
    socket_dir: Path | None = None,
    *,
    counters: Mapping[int, ProbeCounters] | None = None,
    known: Sequence[RankTarget] = (),
    deep: bool = False,
    deadline: float = 0.3,
) -> list[RankTarget]:
    """The ranks of the job below ``root_pid`` (itself included) on this machine, sorted by rank.

    ``counters`` by pid: answers of probes that the caller already has; other probes are asked, each for at
    most ``deadline`` seconds. ``deep``: if nothing else shows a rank, read the ranks that multiprocessing
    started from the stacks (py-spy); those found that way before (``known``) stay.
    Of several restarts the latest counts. Ranks that the world size promises and that were never seen have no pid.
    Empty if no process carries a rank.
    """
    # One step for each source of ranks, the surest first; each step fills what the steps before it left open.
    table = read_table()
    below = [root_pid, *table.below(root_pid)] if root_pid in table else []
    tree = {pid: table[pid] for pid in below if table[pid].alive}
    sockets = _sockets(socket_dir, tree)
    answers = dict(counters or {})
    for pid, path in sockets.items():
        if pid not in answers and (answer := _ask(path, pid, deadline)) is not None:
            answers[pid] = answer
    found = _from_probes(tree, answers)
    registered = {target.pid for target in found}
    carried = launchers.carriers(tree, table.is_python)
    found += [target for target in _from_environment(tree, carried) if target.pid not in registered]
    if not found and deep:
        found = _spawned_by_torch(tree, table)
    missing = {target.rank for target in absent(found, "")}
    found += _kept(known, tree, missing)
    if deep and missing:
        found += _before_their_store(missing, found, tree, table)
    host = host_name()
    # The parent of a rank is the parent of the shell or wrapper around it.
    started_by = {pid: entry.ppid for pid, entry in tree.items()} | {each.pid: each.parent for each in carried}
    chosen = [
        replace(target, host=host, socket=sockets.get(target.pid) if target.pid is not None else None)
        for target in one_per_rank(found, started_by)
    ]
    everybody: Sequence[RankTarget] = [*chosen, *absent(chosen, host)]
    if deep and missing:
        parents = {started_by[target.pid] for target in chosen if target.pid is not None}
        everybody = with_strangers(everybody, parents, table)
    return sorted(everybody, key=lambda target: target.rank)


def _sockets(folder: Path | None, tree: Mapping[int, Entry]) -> dict[int, Path]:
    """The probe sockets of living processes of the tree, by pid."""
    if folder is None:
        return {}
    try:
        paths = list(folder.glob("*.sock"))
    except OSError:
        return {}
    return {int(path.stem): path for path in paths if path.stem.isdigit() and int(path.stem) in tree}


def _ask(path: Path, pid: int, deadline: float) -> ProbeCounters | None:
    client = ProbeClient(path, pid)
    try:
        return client.counters(deadline) or read_introduction(path.with_suffix(".rank"))
    finally:
        client.close()


def _from_probes(tree: Mapping[int, Entry], answers: Mapping[int, ProbeCounters]) -> list[RankTarget]:
    found = []
    for pid, answer in answers.items():
        member = tree.get(pid)
        if member is None or answer.rank is None or _runs_again(member, answer.rank, tree, answers):
            continue
        found.append(
            RankTarget(
                rank=answer.rank,
                pid=pid,
                identity="probe",
                world_size=answer.world_size,
                local_rank=answer.local_rank,
                restart=answer.restart or 0,
                environment=tuple(sorted(member.variables.items())),
            )
        )
    return found


def _runs_again(member: Entry, rank: int, tree: Mapping[int, Entry], answers: Mapping[int, ProbeCounters]) -> bool:
    """A helper that runs its parent's script again has joined under its parent's rank; it is no rank."""
    above, seen = tree.get(member.ppid), {member.pid}
    while above is not None and above.pid not in seen:
        if above.pid in answers and answers[above.pid].rank == rank:
            return True
        seen.add(above.pid)
        above = tree.get(above.ppid)
    return False


def _from_environment(tree: Mapping[int, Entry], carried: Sequence[Carrier]) -> list[RankTarget]:
    """The ranks of the most telling convention that any process of the tree follows, without nested jobs'."""
    followed = {carrier.launcher for carrier in carried}
    first = next((convention.name for convention in launchers.CONVENTIONS if convention.name in followed), "")
    found = [carrier for carrier in carried if carrier.launcher == first]
    tops = {carrier.top for carrier in found}
    return [target_of(carrier, tree[carrier.top].variables) for carrier in found if not tops & _above(carrier, tree)]


def _above(carrier: Carrier, tree: Mapping[int, Entry]) -> set[int]:
    """The processes above a rank, without a launcher that is a rank itself (Lightning's main script)."""
    above: set[int] = set()
    pid = carrier.parent
    while pid in tree and pid not in above:
        above.add(pid)
        pid = tree[pid].ppid
    return above - {carrier.parent} if carrier.launcher == "lightning" else above


def _spawned_by_torch(tree: Mapping[int, Entry], table: ProcessTable) -> list[RankTarget]:
    """The ranks that torch.multiprocessing.spawn started below the command: their number is the size of the world."""
    families = [family for family in find_spawned(table, tree) if family.by_torch]
    ranks = {pid: rank for family in families for pid, rank in family.ranks.items() if pid in tree}
    return [RankTarget(rank=rank, pid=pid, identity="locals", world_size=len(ranks)) for pid, rank in ranks.items()]


def _kept(known: Sequence[RankTarget], tree: Mapping[int, Entry], missing: set[int]) -> list[RankTarget]:
    """Ranks that an earlier search read from the stacks and that are missing now."""
    return [target for target in known if target.identity == "locals" and target.pid in tree and target.rank in missing]


def _before_their_store(
    missing: set[int], found: Sequence[RankTarget], tree: Mapping[int, Entry], table: ProcessTable
) -> list[RankTarget]:
    """Siblings of the ranks found that have not made their first store, so that only their stacks show their rank."""
    ranks = {target.pid: target.rank for target in found if target.pid is not None}
    unknown = missing - set(ranks.values())
    if not unknown:
        return []
    families = find_spawned(table, {tree[pid].ppid for pid in ranks})
    fitting = [family.ranks for family in families if _agrees(family.ranks, ranks)]
    world = found[0].world_size
    return [
        RankTarget(rank=rank, pid=pid, identity="locals", world_size=world)
        for family in fitting
        for pid, rank in family.items()
        if rank in unknown and pid in tree
    ]


def _agrees(family: Mapping[int, int], ranks: Mapping[int, int]) -> bool:
    """True if at least one process is in both, and every such process has the same rank in both."""
    both = family.keys() & ranks.keys()
    return bool(both) and all(family[pid] == ranks[pid] for pid in both)
