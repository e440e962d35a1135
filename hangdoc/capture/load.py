"""Load a job from disk: a snapshot, a run directory, dumps of flight recorders, logs and pasted stacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hangdoc.errors import CannotLook
from hangdoc.model.codec import SNAPSHOT_SUFFIX, begins_as_snapshot, load_snapshot
from hangdoc.model.journal import Journal
from hangdoc.model.masked import masked
from hangdoc.model.merge import merge
from hangdoc.model.same_job import Part, fitting, with_notes
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_all, name_ranks

if TYPE_CHECKING:
    from hangdoc.capture.dumps.read_folder import Folder

_MOST_NAMED = 64
"""Missing ranks up to this number get a note each; more get one note together."""


def open_saved(
    path: Path,
    source: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    *,
    but: Path | None = None,
) -> JobSnapshot:
    """The job at ``path``: a snapshot file, a log ('-': standard input), the latest snapshot below a directory, or a
    directory of dumps, of logs, or of both.

    Of a directory with the dumps of several jobs, the newest, with the ``others``.

    ``but``: a file of the directory that does not count. ``source``: where the files of the program lie that the dumps
    name. ``progress`` is told how many files of how many
    have been read. Raises ``CannotLook`` if there is nothing of the kind, ``BadSnapshot`` if the file is no snapshot.
    """
    try:
        if str(path) == "-":
            return masked(_from_logs([path], source, progress))
        if not path.is_dir():
            _refuse_one_dump(path)
            return masked(load_snapshot(path) if is_snapshot(path) else _from_logs([path], source, progress))
        latest = latest_snapshot(path, but)
        if latest is not None:
            return masked(load_snapshot(latest))
        return masked(_from_folder(path, source, progress))
    except (OSError, ValueError) as error:
        raise CannotLook(f"cannot look into {str(path)!r}: {error}", "Check the path and its permissions.") from None


def open_together(
    paths: Sequence[Path], source: Path | None = None, progress: Callable[[int, int], None] | None = None
) -> JobSnapshot:
    """The job that the files at ``paths`` show together: snapshots of its hosts, logs, pasted stacks, a folder of
    dumps.

    Raises as ``open_saved``, and ``CannotLook`` where one of them shows another job, or dumps come with snapshots.
    """
    parts: list[Part] = []
    logs: list[Path] = []
    for path in paths:
        if _is_log(path):
            logs.append(path)
        else:
            parts.append(Part(str(path), open_saved(path, source, progress)))
    logs += [Path(part.origin) for part in parts if part.snapshot.mode == "log" and Path(part.origin).is_dir()]
    parts = [part for part in parts if Path(part.origin) not in logs]
    told = masked(_from_logs(logs, source, progress)) if logs else None
    if not parts and told is not None:
        return told
    seen = _of_hosts(parts)
    return merge([seen, told]) if told is not None else seen


def _of_hosts(parts: Sequence[Part]) -> JobSnapshot:
    """What the snapshots of several hosts show together."""
    if len(parts) == 1:
        return parts[0].snapshot
    dumps = next((part for part in parts if part.snapshot.mode == "dump"), None)
    if dumps is not None:
        raise CannotLook(
            f"{dumps.origin} holds dumps of flight recorders, which are not joined with snapshots",
            "Put the dumps of all hosts into one directory, and diagnose that alone, or with logs.",
        )
    kept, foreign, notes = fitting(parts)
    if foreign:
        raise CannotLook(
            f"{foreign[0].part.origin} shows another job than {kept[0].origin}: {foreign[0].why}",
            "Diagnose the snapshots of one job together, those of another job by themselves.",
        )
    return with_notes(merge([part.snapshot for part in kept]), notes)


def _is_log(path: Path) -> bool:
    """True for standard input, and a file that is neither a snapshot nor a dump."""
    if str(path) == "-":
        return True
    if not path.is_file() or is_snapshot(path):
        return False
    from hangdoc.capture.dumps.read_folder import is_dump

    return not is_dump(path)


def is_snapshot(path: Path) -> bool:
    """True for a file that `hangdoc watch` or `attach --save` wrote, or that is meant to be one by its name."""
    return path.name.endswith(SNAPSHOT_SUFFIX) or not path.is_file() or begins_as_snapshot(path)


def _from_logs(paths: Sequence[Path], source: Path | None, progress: Callable[[int, int], None] | None) -> JobSnapshot:
    from hangdoc.capture.logs.read_logs import read_logs

    found = read_logs(paths, progress, source=source)
    if found is None:
        names = name_all([str(path) for path in paths])
        raise CannotLook(
            f"{names}: nothing in there tells of a distributed job's hang or failure",
            "Give the logs of all ranks up to the job's end, stacks of `py-spy dump`, a snapshot that `hangdoc watch` "
            "saved, or the directory of TORCH_FR_DUMP_TEMP_FILE.",
        )
    return found


def _from_folder(folder: Path, source: Path | None, progress: Callable[[int, int], None] | None) -> JobSnapshot:
    """Dumps of flight recorders, logs, or both, which are then of one job."""
    from hangdoc.capture.logs.read_logs import read_logs

    try:
        dumps = open_dumps(folder, source, progress)
    except CannotLook as error:
        logs = read_logs([folder], progress, source=source)
        if logs is None:
            raise error from None
        return logs
    logs = read_logs([folder], source=source)
    return merge([dumps, logs]) if logs is not None else dumps


def latest_snapshot(folder: Path, but: Path | None = None) -> Path | None:
    """The youngest snapshot in ``folder`` or, where it holds the directories of several runs, one below; never that at
    ``but``."""
    for pattern in (f"*{SNAPSHOT_SUFFIX}", f"*/*{SNAPSHOT_SUFFIX}"):
        files = (path for path in folder.glob(pattern) if path.is_file())
        found = [(path.stat().st_mtime_ns, path) for path in files if but is None or path.absolute() != but.absolute()]
        if found:
            return max(found)[1]
    return None


def _refuse_one_dump(path: Path) -> None:
    """Raise ``CannotLook`` for the dump of one rank: what the others did decides."""
    if path.name.endswith(SNAPSHOT_SUFFIX) or not path.is_file():
        return
    from hangdoc.capture.dumps.read_folder import is_dump

    if is_dump(path):
        raise CannotLook(
            f"{path} is the flight recorder's dump of one rank, and the dumps of all ranks are needed",
            f"Give the directory that holds them: hangdoc diagnose {path.parent}",
        )


def open_dumps(
    folder: Path, source: Path | None, progress: Callable[[int, int], None] | None, *, part: bool = False
) -> JobSnapshot:
    """The newest of the jobs whose dumps lie in ``folder``, with the others. ``part``: those of one of its hosts, so
    that none are missing because they are not here. Raises ``CannotLook`` where there are none."""
    from hangdoc.capture.dumps.read_folder import read_dump_folder

    found = read_dump_folder(folder, progress)
    if not found.journals:
        why = f": {found.unavailable[0].why}" if found.unavailable else ""
        raise CannotLook(
            f"{folder} holds neither a snapshot nor dumps of a flight recorder{why}",
            "Give a run directory of `hangdoc watch`, or the directory of TORCH_FR_DUMP_TEMP_FILE.",
        )
    first, *others = (_job(each, folder, source, part=part) for each in (found, *found.others))
    return replace(first, others=tuple(others))


def _job(found: Folder, folder: Path, source: Path | None, *, part: bool) -> JobSnapshot:
    """One of these jobs."""
    from hangdoc.capture.dumps.sources import sources_of

    journals = found.journals
    size = world_size_of(journals)
    # Ranks of one folder share a table of stacks.
    tables = {id(journal.stacks): journal.stacks for journal in journals.values()}
    sources, sourceless = sources_of(
        (stack for table in tables.values() for stack in table), source, found.ended_ns / 1e9, found.owners
    )
    missing = [] if part else missing_dumps(journals, size, found.name or folder.name)
    return JobSnapshot(
        taken=max((call.created_ns for journal in journals.values() for call in journal.calls[-1:]), default=0) / 1e9,
        mode="dump",
        run_id=found.name,
        world_size=size,
        ranks=tuple(
            RankSnapshot(rank=rank, host="", identity="dump", world_size=size, journal=journal)
            for rank, journal in sorted(journals.items())
        ),
        sources=sources,
        versions=tuple(("communication library", each) for each in found.libraries),
        unavailable=(*found.unavailable, *missing, *sourceless),
    )


def world_size_of(journals: Mapping[int, Journal]) -> int:
    """How many ranks the job has at least: up to the last that has a dump, or is in a group."""
    lists = {id(group.members): group.members for journal in journals.values() for group in journal.groups}
    return max([max(journals), *(max(members, default=-1) for members in lists.values())]) + 1


def missing_dumps(journals: Mapping[int, Journal], size: int, where: str) -> list[Unavailable]:
    """A note on each of so many ranks that has no dump, or one on all of them where they are many."""
    ranks = [rank for rank in range(size) if rank not in journals]
    if len(ranks) > _MOST_NAMED:
        why = f"no dumps of {name_ranks(ranks)} in {where}"
        return [Unavailable("journal", why, "Collect the dumps of all hosts.")]
    return [
        Unavailable("journal", f"no dump of rank {rank} in {where}", "Collect the dumps of all hosts.", rank)
        for rank in ranks
    ]
