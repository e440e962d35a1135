"""The public functions: each wires capture or sidecar, diagnosis and report together, and holds no logic."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc.sidecar.options import WatchOptions

if TYPE_CHECKING:
    from hangdoc.capture.asking import HostsRequest
    from hangdoc.capture.request import CaptureOptions
    from hangdoc.model.diagnosis import Diagnosis
    from hangdoc.model.snapshot import JobSnapshot
    from hangdoc.model.summary import JobSummary


def watch(command: Sequence[str], options: WatchOptions | None = None, *, restore_signals: bool = True) -> int:
    """Run ``command`` unchanged with a sidecar beside its ranks; report stalls on stderr and in files.

    Returns the command's exit status, negative for a signal, or 124 if hangdoc ended a hung job as asked. Call
    it in the main thread. Under a hangdoc that watches already it does not return: it becomes the command.
    A program that exits right afterwards passes ``restore_signals`` False: no late ctrl-C then changes its status.
    Raises ``CommandNotFound``, ``CannotRun``, ``UsageError`` or ``WatcherFailed`` before the command ran.
    """
    from hangdoc.announce import Announcer
    from hangdoc.errors import WatcherFailed
    from hangdoc.kept_files import choose_run_directory
    from hangdoc.sidecar.run import run_unwatched_if_nested, run_watched
    from hangdoc.sidecar.run_directory import NoSocketFolder, SocketFolder, new_run_id

    options = options or WatchOptions()
    environment = dict(os.environ)
    run_id = new_run_id()
    announcer = Announcer(tuple(command), options, choose_run_directory(options, run_id))
    run_unwatched_if_nested(command, announcer, environment)
    if options.on_hang == "restart":
        from hangdoc.sidecar.restart import check_launcher

        check_launcher(command, environment)
    folder: SocketFolder | NoSocketFolder
    try:
        folder = SocketFolder(environment)
    except WatcherFailed as error:
        announcer.on_no_probes(error)
        folder = NoSocketFolder()
    announcer.run_directory.socket_folder = folder.announced
    try:
        logs = announcer.open_logs(environment) if options.logs else None
        return run_watched(
            command,
            options,
            announcer,
            run_id=run_id,
            socket_folder=folder,
            environment=environment,
            restore_signals=restore_signals,
            logs=logs,
        )
    finally:
        announcer.close()
        folder.close()


def attach(pid: int, *, inject: bool = False, ask_dumps: bool = False, no_source: bool = False) -> Diagnosis:
    """Who hangs in the job that ``pid`` is a process of, where and why; of a job that moves, that it does.

    Raises ``CannotLook`` where there is no such process, no job around it, or no permission.
    """
    return diagnose(snapshot(pid, inject=inject, ask_dumps=ask_dumps, no_source=no_source))


def snapshot(pid: int, *, inject: bool = False, ask_dumps: bool = False, no_source: bool = False) -> JobSnapshot:
    """The job that ``pid`` is a process of, frozen: what ``attach`` diagnoses. Takes about two seconds.

    ``inject``: fetch the call histories of ranks that wait through gdb, where that is safe. ``ask_dumps``: have
    PyTorch write their recorders' dumps, where pipes for that are set up. ``no_source``: without the source code of the
    functions on its stacks. Raises as ``attach``.
    """
    from hangdoc.capture.attach import attach_job
    from hangdoc.capture.request import CaptureOptions

    return attach_job(pid, CaptureOptions(inject=inject, ask_dumps=ask_dumps, native=True, no_source=no_source))


def snapshot_of_hosts(request: HostsRequest, pid: int | None = None) -> JobSnapshot:
    """The job as many hosts show it together; with ``pid``, a process of it on this host, this host's part too.

    Raises ``CannotLook`` where no host shows anything, or nothing tells the job of ``pid`` on other hosts.
    """
    from hangdoc.capture import remote
    from hangdoc.capture.attach import capture_found, find_job, variables_elsewhere

    if pid is None:
        return remote.snapshot_of_hosts(request)
    table, job = find_job(pid)
    request = replace(request, variables={**variables_elsewhere(job), **request.variables})
    return remote.snapshot_of_hosts(request, lambda: capture_found(table, job, request.options))


def jobs() -> list[JobSummary]:
    """The distributed jobs that this machine shows, the oldest first. Takes about half a second."""
    from hangdoc.capture.attach import list_jobs

    return list_jobs()


def load(
    path: str | os.PathLike[str],
    *others: str | os.PathLike[str],
    source: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> JobSnapshot:
    """The job saved at ``path``: a snapshot file, a run directory (its latest stall), a directory of flight-recorder
    dumps, a log, pasted stacks, or a directory of logs. With ``others``, the job that all of them show together.

    Dumps and logs name the files of the program: ``source`` is a folder with a copy of them, where they are not in
    their places. ``progress`` is called with how many dumps, or bytes of logs, of how many have been read.

    Raises ``CannotLook`` where there is nothing to read or two hosts show different jobs, ``BadSnapshot`` for a file
    that is no snapshot.
    """
    from hangdoc.capture.load import open_saved, open_together

    copy = Path(source) if source is not None else None
    if others:
        return open_together([Path(each) for each in (path, *others)], copy, progress)
    return open_saved(Path(path), copy, progress)


def collect(
    *paths: str | os.PathLike[str],
    pid: int | None = None,
    request: HostsRequest | None = None,
    options: CaptureOptions | None = None,
    output: str | os.PathLike[str] | None = None,
    source: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> JobSnapshot:
    """What is left of a job as one snapshot: what ``load`` reads at ``paths``, and the processes of the job that
    ``pid`` belongs to; without both and without ``request``, the only job that runs here.

    ``request``: hosts on which the same is collected; its options name the paths there. ``output``: a file to be
    written, which does not count as one of a folder's. ``source`` and ``progress``: as for ``load``. Raises as it does.
    """
    from hangdoc.capture import attach, collect

    variables: dict[str, str] = {}
    look: Callable[[], JobSnapshot] | None = None
    if pid is not None:
        table, job = attach.find_job(pid)
        look = partial(attach.capture_found, table, job, options)
        variables = attach.variables_elsewhere(job) if request is not None else {}
    elif not paths and request is None:
        look = partial(attach.attach_by_key, {}, options)
    local = collect.Local(
        [Path(path) for path in paths],
        look,
        Path(output) if output is not None else None,
        Path(source) if source is not None else None,
        no_source=options is not None and options.no_source,
    )
    if request is None:
        return collect.collect_here(local, progress)
    request = replace(request, variables={**variables, **request.variables})
    return collect.collect_hosts(request, local, progress)


def save(job: JobSnapshot, path: str | os.PathLike[str]) -> int:
    """Write ``job`` to a file that ``load`` reads, whole or not at all; its size in bytes.

    Jobs beside it are left out, with a note, where the file could not be read otherwise. Raises ``HangdocError`` where
    the disk refuses, or the job alone is too large.
    """
    from hangdoc.model.codec import readable_bytes, write_atomically

    data = readable_bytes(job)
    write_atomically(Path(path), data, mode=0o600)
    return len(data)


def diagnose(job: JobSnapshot | str | os.PathLike[str]) -> Diagnosis:
    """Who hangs, where and why: of a snapshot, or of what is saved at a path (see ``load`` for the errors).

    Of a folder with the dumps of several jobs, the diagnosis of the worst, with the ``others``.
    """
    from hangdoc.diagnosis import diagnose as diagnose_snapshot
    from hangdoc.model.snapshot import JobSnapshot

    return diagnose_snapshot(job if isinstance(job, JobSnapshot) else load(job))
