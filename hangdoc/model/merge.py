"""Join the snapshots that several hosts took of one job.

Each host hands over a ``JobSnapshot`` of its own (``capture_host``). Which host is named first makes no difference, nor
does joining two of them before the third: a coordinator may merge answers as they arrive.

For example, host a has processes of ranks 0 and 1 and expects rank 2, host b has a process of rank 2: the merged
snapshot holds the processes of ranks 0, 1 and 2 and the sockets of a and b side by side.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from hangdoc.model.logged import together
from hangdoc.model.network import Connection, ListeningPort
from hangdoc.model.process import Process
from hangdoc.model.snapshot import (
    MODULES,
    HostSnapshot,
    JobSnapshot,
    Module,
    RankSnapshot,
    SourceText,
    Unavailable,
    Written,
)

_T = TypeVar("_T")
_MODES = {"watch": 0, "attach": 1, "dump": 2, "log": 3}
"""A watch knows most about a job, its logs least."""


def merge(snapshots: Sequence[JobSnapshot]) -> JobSnapshot:
    """The job as all hosts together show it. One snapshot merges to itself. ``snapshots`` may not be empty.

    Times are taken as the hosts' clocks say: hosts of one job share a time server, while their looks may be seconds
    apart. The job was looked at when the last host was, and it has stalled for as long as every host that counts the
    time (not 0) saw it stall.
    """
    # Long because it names each field of the snapshot once, with the rule that joins it.
    if len(snapshots) == 1:
        return snapshots[0]
    snapshots = _with_names_apart(snapshots)
    texts, differing = _sources(snapshots)
    modules, other_versions = _modules(snapshots)
    unavailable = {note for snapshot in snapshots for note in snapshot.unavailable}
    return JobSnapshot(
        taken=max(snapshot.taken for snapshot in snapshots),
        mode=min((snapshot.mode for snapshot in snapshots), key=lambda mode: (_MODES.get(mode, len(_MODES)), mode)),
        command=_first(snapshot.command for snapshot in snapshots) or (),
        run_id=_first(snapshot.run_id for snapshot in snapshots) or "",
        hangdoc_version=_first(snapshot.hangdoc_version for snapshot in snapshots) or "",
        stalled_for=min((snapshot.stalled_for for snapshot in snapshots if snapshot.stalled_for), default=0.0),
        stall_after=max(snapshot.stall_after for snapshot in snapshots),
        give_up_after=max(snapshot.give_up_after for snapshot in snapshots),
        world_size=max((snapshot.world_size or 0 for snapshot in snapshots), default=0) or None,
        ended=all(snapshot.ended for snapshot in snapshots),
        exit_status=_worst(snapshot.exit_status for snapshot in snapshots),
        launcher=_oldest(snapshot.launcher for snapshot in snapshots),
        ranks=_ranks(snapshots),
        hosts=_hosts(snapshots),
        log=_first(snapshot.log for snapshot in snapshots),
        written=tuple(sorted({line for snapshot in snapshots for line in snapshot.written}, key=_order_of_line)),
        tracebacks=tuple(dict.fromkeys(each for snapshot in snapshots for each in snapshot.tracebacks)),
        store=max(
            (snapshot.store for snapshot in snapshots if snapshot.store is not None),
            key=lambda store: (store.pid is not None, len(store.joined or ()), repr(store)),
            default=None,
        ),
        nccl=max(
            (snapshot.nccl for snapshot in snapshots if snapshot.nccl is not None),
            key=lambda nccl: (len(nccl.communicators), nccl.seen, repr(nccl)),
            default=None,
        ),
        logged=together([snapshot.logged for snapshot in snapshots if snapshot.logged is not None]),
        sources=texts,
        modules=modules,
        library_roots=tuple(sorted({root for snapshot in snapshots for root in snapshot.library_roots})),
        versions=tuple(sorted({each for snapshot in snapshots for each in snapshot.versions})),
        unavailable=tuple(
            sorted(
                unavailable | differing | other_versions,
                key=lambda note: (note.what, -1 if note.rank is None else note.rank, note.why, note.remedy),
            )
        ),
    )


def _with_names_apart(snapshots: Sequence[JobSnapshot]) -> Sequence[JobSnapshot]:
    """``snapshots`` in which a name means one host: those that share it get a mark from their identity each.

    Two containers, both named 'trainer' → 'trainer#3f', 'trainer#a0'. A host's name has no '#', so a later merge finds
    that a third 'trainer' is another one again.
    """
    identities: dict[str, set[str]] = {}
    for snapshot in snapshots:
        for host in snapshot.hosts:
            identities.setdefault(_plain_name(host.name), set()).add(host.identity)
    shared = {name for name, found in identities.items() if len(found - {""}) > 1}
    return [_renamed(snapshot, shared) for snapshot in snapshots] if shared else snapshots


def _plain_name(name: str) -> str:
    return name.partition("#")[0]


def _renamed(snapshot: JobSnapshot, shared: set[str]) -> JobSnapshot:
    names = {
        host.name: f"{host.name}#{hashlib.sha256(host.identity.encode()).hexdigest()[:4]}"
        for host in snapshot.hosts
        if host.name in shared and host.identity
    }
    if not names:
        return snapshot
    return replace(
        snapshot,
        hosts=tuple(replace(host, name=names.get(host.name, host.name)) for host in snapshot.hosts),
        ranks=tuple(replace(rank, host=names.get(rank.host, rank.host)) for rank in snapshot.ranks),
    )


def _first(values: Iterable[_T | None]) -> _T | None:
    """One of the values that are not empty, always the same one whatever their order."""
    return min((value for value in values if value), key=repr, default=None)


def _oldest(launchers: Iterable[Process | None]) -> Process | None:
    known = (launcher for launcher in launchers if launcher is not None)
    return min(known, key=lambda launcher: (launcher.started, repr(launcher)), default=None)


def _worst(statuses: Iterable[int | None]) -> int | None:
    """The exit status of the launchers together: a failure rather than a success, a signal (negative) first."""
    known = [status for status in statuses if status is not None]
    return min(known, key=lambda status: (status == 0, status), default=None)


def _ranks(snapshots: Sequence[JobSnapshot]) -> tuple[RankSnapshot, ...]:
    """Each rank once, as the host knows it that sees most of it."""
    chosen: dict[int, RankSnapshot] = {}
    for snapshot in snapshots:
        for rank in snapshot.ranks:
            known = chosen.get(rank.rank)
            if known is None or _knows_more(rank, known):
                chosen[rank.rank] = rank
    return tuple(chosen[rank] for rank in sorted(chosen))


def _knows_more(rank: RankSnapshot, known: RankSnapshot) -> bool:
    one, other = _knowledge(rank), _knowledge(known)
    # Only of equals: the text of a rank with its history takes long to write.
    return one > other if one != other else rank is not known and repr(rank) > repr(known)


def _knowledge(rank: RankSnapshot) -> tuple[object, ...]:
    """Compares what two hosts know of a rank; the largest knows most.

    A process that was looked at counts before one that has ended, that before one that is only expected. A later
    restart counts before an earlier one.
    """
    return (
        rank.process is not None or rank.exit is not None,
        rank.restart,
        rank.process is not None and bool(rank.process.looks),
        rank.process is not None,
        rank.journal is not None,
        rank.exit is not None,
        rank.local_rank is not None,  # its own host says that it is missing
        rank.identity == "elsewhere",  # a host has seen it join the store
    )


def _hosts(snapshots: Sequence[JobSnapshot]) -> tuple[HostSnapshot, ...]:
    by_name: dict[str, set[HostSnapshot]] = {}
    for snapshot in snapshots:
        for host in snapshot.hosts:
            by_name.setdefault(host.name, set()).add(host)
    return tuple(_one_host(name, by_name[name]) for name in sorted(by_name))


def _one_host(name: str, looks: set[HostSnapshot]) -> HostSnapshot:
    """A host that was captured twice (two launchers on it): the sockets of both captures."""
    if len(looks) == 1:
        return next(iter(looks))
    listening = {port for host in looks for port in host.listening}
    connections = {connection for host in looks for connection in host.connections}
    cpus = max(host.cpu_count for host in looks)
    identity = max(host.identity for host in looks)
    launcher = _oldest(host.launcher for host in looks)
    return HostSnapshot(name, _ordered(listening), _ordered(connections), cpus, identity, launcher)


def _order_of_line(line: Written) -> tuple[str, int, int, str, tuple[tuple[str, int], ...]]:
    return line.output, line.number, -1 if line.rank is None else line.rank, line.text, line.places


_Socket = TypeVar("_Socket", ListeningPort, Connection)


def _ordered(sockets: set[_Socket]) -> tuple[_Socket, ...]:
    return tuple(sorted(sockets, key=repr))


def _sources(snapshots: Sequence[JobSnapshot]) -> tuple[tuple[SourceText, ...], set[Unavailable]]:
    """(the source texts of all hosts, a note for each file that differs between hosts).

    Files that differ are left out, since the path does not show which version a rank runs. The note also keeps the file
    out of later merges.
    """
    texts = {text for snapshot in snapshots for text in snapshot.sources}
    noted = {note for snapshot in snapshots for note in snapshot.unavailable}
    versions: dict[tuple[str, int], set[SourceText]] = {}
    for text in texts:
        versions.setdefault((text.file, text.first_line), set()).add(text)
    files = {text.file for text in texts}
    differing = {file for (file, _), found in versions.items() if len({text.text for text in found}) > 1}
    differing |= {file for file in files if _differs(file) in noted}
    kept = (text for text in texts if text.file not in differing)
    ordered = sorted(kept, key=lambda text: (text.file, text.first_line, text.function, text.text))
    return tuple(ordered), {_differs(file) for file in differing}


def _modules(snapshots: Sequence[JobSnapshot]) -> tuple[tuple[Module, ...], set[Unavailable]]:
    """The same of whole modules, whose digests tell whether they differ."""
    noted = {note for snapshot in snapshots for note in snapshot.unavailable}
    by_file: dict[str, set[Module]] = {}
    for module in (module for snapshot in snapshots for module in snapshot.modules):
        by_file.setdefault(module.file, set()).add(module)
    differing = {file for file, found in by_file.items() if len({module.digest for module in found}) > 1}
    differing |= {file for file in by_file if _differs(file, MODULES) in noted}
    # Of hosts that have the same file, one: of all files the same one, as marks are of one capture.
    one = (max(by_file[file], key=_order_of_module) for file in sorted(by_file) if file not in differing)
    return tuple(one), {_differs(file, MODULES) for file in differing}


def _order_of_module(module: Module) -> tuple[object, ...]:
    return bool(module.text), module.marks, module.text, module.words, module.cell


def _differs(file: str, what: str = "source") -> Unavailable:
    return Unavailable(what, f"{file} is not the same on all hosts", "install the same code on every host")
