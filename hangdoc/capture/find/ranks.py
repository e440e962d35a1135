"""Find the ranks of a watched job below its command: from the probes first, from the process tree second.

A search of a healthy job reads one stat line of every process of the machine and the variables of those below the
command, and nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from hangdoc.capture.find import launchers
from hangdoc.capture.find.job_ranks import parents_of, targets_of
from hangdoc.capture.find.launchers import Carrier
from hangdoc.capture.find.process_table import Entry, ProcessTable, read_table
from hangdoc.capture.find.promised import absent, with_strangers
from hangdoc.capture.find.target import RankTarget, host_name
from hangdoc.capture.read.probe_client import ProbeClient, ProbeCounters, read_introduction


def find_ranks(
    root_pid: int,
    socket_dir: Path | None = None,
    *,
    counters: Mapping[int, ProbeCounters] | None = None,
    known: Sequence[RankTarget] = (),
    deep: bool = False,
    deadline: float = 0.3,
    left_out: Collection[int] = (),
) -> list[RankTarget]:
    """The ranks of the job below ``root_pid`` (itself included) on this machine, sorted by rank.

    ``counters`` by pid: answers of probes that the caller already has; other probes are asked, each for at
    most ``deadline`` seconds. ``deep``: if nothing else shows a rank, read the ranks that multiprocessing
    started from the stacks (py-spy); those found that way before (``known``) stay. ``left_out``: pids that are not of
    this job, nor is any process below them.
    Of several restarts the latest counts. Ranks that the world size promises and that were never seen have no pid.
    Empty if no process carries a rank.
    """
    table = _without(read_table(), left_out)
    below = [root_pid, *table.below(root_pid)] if root_pid in table else []
    tree = {pid: table[pid] for pid in below if table[pid].alive}
    sockets = _sockets(socket_dir, tree)
    answers = {pid: answer for pid, answer in (counters or {}).items() if pid in tree}
    for pid, path in sockets.items():
        if pid not in answers and (answer := _ask(path, pid, deadline)) is not None:
            answers[pid] = answer
    carried = _of_one_job(table, launchers.carriers(tree, table.is_python))
    chosen = targets_of(
        table,
        carried,
        sockets.get,
        answers=answers,
        known=[target for target in known if target.pid in tree],
        deep=tree if deep else (),
    )
    every: Sequence[RankTarget] = [*chosen, *absent(chosen, host_name())]
    if deep:
        every = with_strangers(every, set(parents_of(table, carried, chosen).values()), table)
    return sorted(every, key=lambda target: target.rank)


def _without(table: ProcessTable, roots: Collection[int]) -> ProcessTable:
    """The table without ``roots`` and all processes below them."""
    gone = {*roots, *(pid for root in roots for pid in table.below(root))}
    return ProcessTable({pid: entry for pid, entry in table.processes.items() if pid not in gone}) if gone else table


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


def _of_one_job(table: ProcessTable, carried: Sequence[Carrier]) -> list[Carrier]:
    """The carriers of the most telling convention that any of them follows, without nested jobs'."""
    followed = {carrier.launcher for carrier in carried}
    first = next((convention.name for convention in launchers.CONVENTIONS if convention.name in followed), "")
    found = [carrier for carrier in carried if carrier.launcher == first]
    tops = {carrier.top for carrier in found}
    return [carrier for carrier in found if not tops & _above(table, carrier)]


def _above(table: ProcessTable, carrier: Carrier) -> set[int]:
    """The processes above a rank, without a launcher that is a rank itself (Lightning's main script)."""
    above = {carrier.parent, *table.ancestors(carrier.parent)}
    return above - {carrier.parent} if carrier.launcher == "lightning" else above
