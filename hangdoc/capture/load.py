"""Load a job from disk: a snapshot, a run directory, or the dumps of flight recorders."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hangdoc.errors import CannotLook
from hangdoc.model.codec import SNAPSHOT_SUFFIX, load_snapshot
from hangdoc.model.journal import Journal
from hangdoc.model.masked import masked
from hangdoc.model.merge import merge
from hangdoc.model.same_job import Part, fitting, with_notes
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_ranks

_MOST_NAMED = 64
"""Missing ranks up to this number get a note each; more get one note together."""


def open_saved(path: Path) -> JobSnapshot:
    """The job at ``path``: a snapshot file, the latest snapshot below a directory, or a directory of dumps.

    Raises ``CannotLook`` if there is nothing of the kind, ``BadSnapshot`` if the file is not a snapshot.
    """
    try:
        if not path.is_dir():
            return masked(load_snapshot(path))
        latest = _latest_snapshot(path)
    except (OSError, ValueError) as error:
        raise CannotLook(f"cannot look into {str(path)!r}: {error}", "Check the path and its permissions.") from None
    return masked(load_snapshot(latest) if latest is not None else _from_dumps(path))


def open_hosts(paths: Sequence[Path]) -> JobSnapshot:
    """The job that the snapshots at ``paths`` show together, each taken on one of its hosts.

    Raises as ``open_saved``, and ``CannotLook`` where one of them shows another job, or is no look at processes.
    """
    parts = [Part(str(path), open_saved(path)) for path in paths]
    dumps = next((part for part in parts if part.snapshot.mode == "dump"), None)
    if dumps is not None:
        raise CannotLook(
            f"{dumps.origin} holds dumps of flight recorders, which are not joined with other files",
            "Put the dumps of all hosts into one directory, and diagnose that alone.",
        )
    kept, foreign, notes = fitting(parts)
    if foreign:
        raise CannotLook(
            f"{foreign[0].part.origin} shows another job than {kept[0].origin}: {foreign[0].why}",
            "Diagnose the snapshots of one job together, those of another job by themselves.",
        )
    return with_notes(merge([part.snapshot for part in kept]), notes)


def _latest_snapshot(folder: Path) -> Path | None:
    """The youngest snapshot in ``folder`` or, where it holds the directories of several runs, one below."""
    for pattern in (f"*{SNAPSHOT_SUFFIX}", f"*/*{SNAPSHOT_SUFFIX}"):
        found = [(path.stat().st_mtime_ns, path) for path in folder.glob(pattern) if path.is_file()]
        if found:
            return max(found)[1]
    return None


def _from_dumps(folder: Path) -> JobSnapshot:
    from hangdoc.capture.read.dump_folder import read_dump_folder

    journals, unavailable = read_dump_folder(folder)
    if not journals:
        why = f": {unavailable[0].why}" if unavailable else ""
        raise CannotLook(
            f"{folder} holds neither a snapshot nor dumps of a flight recorder{why}",
            "Give a run directory of `hangdoc watch`, or the directory of TORCH_FR_DUMP_TEMP_FILE.",
        )
    size = max(_world_size(journal) for journal in journals.values())
    size = max(size, max(journals) + 1)
    missing = [rank for rank in range(size) if rank not in journals]
    named = missing if len(missing) <= _MOST_NAMED else []
    notes = [
        Unavailable("journal", f"no dump of rank {rank} in {folder.name}", "Collect the dumps of all hosts.", rank)
        for rank in named
    ]
    if len(missing) > len(named):
        why = f"no dumps of {name_ranks(missing)} in {folder.name}"
        notes.append(Unavailable("journal", why, "Collect the dumps of all hosts."))
    return JobSnapshot(
        taken=max((call.created_ns for journal in journals.values() for call in journal.calls), default=0) / 1e9,
        mode="dump",
        world_size=size,
        ranks=tuple(
            RankSnapshot(rank=rank, host="", identity="dump", world_size=size, journal=journal)
            for rank, journal in sorted(journals.items())
        ),
        unavailable=(*unavailable, *notes),
    )


def _world_size(journal: Journal) -> int:
    lists = {id(group.members): group.members for group in journal.groups}
    return max((max(members) + 1 for members in lists.values() if members), default=0)
