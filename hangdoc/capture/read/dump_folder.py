"""The folder that the flight recorders of a job wrote their dumps to: ``<prefix><rank>``."""

from __future__ import annotations

import os
import re
from pathlib import Path

from hangdoc.capture.read.flight_recorder import (
    MOST_BYTES,
    MOST_CALLS,
    MOST_RANKS,
    Members,
    StackTable,
    parse,
    unpickle,
)
from hangdoc.capture.safe.pickles import PickleWorker
from hangdoc.model.journal import Journal
from hangdoc.model.snapshot import Unavailable

_RANK_AT_END = re.compile(r"(\d+)$")
_FEWEST_CALLS = 100
"""Of each dump, however many there are."""


def read_dump_folder(folder: Path) -> tuple[dict[int, Journal], list[Unavailable]]:
    """Journals of the dump files ``<prefix><rank>`` in ``folder``, by rank; one Unavailable per file that
    cannot be read. Other files are passed over in silence if their names end in no number."""
    journals: dict[int, Journal] = {}
    failed: list[Unavailable] = []
    try:
        paths = sorted(path for path in folder.iterdir() if _RANK_AT_END.search(path.name) and path.is_file())
    except OSError as error:
        return {}, [Unavailable("journal", f"{folder}: {error.strerror}", "name the folder that holds the dump files")]
    most_calls = max(_FEWEST_CALLS, MOST_CALLS // max(1, len(paths)))
    members = Members()
    with PickleWorker() as worker:
        for path in paths:
            rank = _rank_of(path)
            if rank is None:
                why = f"{path.name}: the number at the end of its name is no rank (a date, an id?)"
                failed.append(Unavailable("journal", why, "rename it to <prefix><rank>, or move it elsewhere"))
                continue
            journal = _read_dump(path, worker, members, most_calls)
            if isinstance(journal, Unavailable):
                failed.append(Unavailable(journal.what, f"{path.name}: {journal.why}", journal.remedy, rank))
            elif rank in journals:
                failed.append(
                    Unavailable(
                        "journal",
                        f"{path.name}: there is another dump of rank {rank} in this folder",
                        "keep the dumps of one run in a folder of their own",
                        rank,
                    )
                )
            else:
                journals[rank] = journal
    if not journals and not failed:
        failed.append(
            Unavailable(
                "journal",
                f"{folder}: no file here is named like a dump (<prefix><rank>)",
                "set TORCH_FR_DUMP_TEMP_FILE for the job and name the folder it writes to",
            )
        )
    return journals, failed


def _rank_of(path: Path) -> int | None:
    match = _RANK_AT_END.search(path.name)
    rank = int(match[1]) if match and len(match[1]) < 10 else MOST_RANKS
    return rank if rank < MOST_RANKS else None


def _read_dump(path: Path, worker: PickleWorker, members: Members, most_calls: int) -> Journal | Unavailable:
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
            written_ns = os.fstat(file.fileno()).st_mtime_ns
    except OSError as error:
        return Unavailable("journal", error.strerror or type(error).__name__, "check the file and its permissions")
    dump = unpickle(data, worker)
    if isinstance(dump, Unavailable):
        return dump
    table = StackTable.new()
    recorded = parse(dump, table, most_calls=most_calls, members_of=members)
    if isinstance(recorded, Unavailable):
        return recorded
    return Journal(
        source="dump",
        groups=recorded.groups,
        calls=recorded.calls,
        point_to_points=recorded.point_to_points,
        forgotten=recorded.forgotten,
        stacks=tuple(table.stacks),
        counters=recorded.counters,
        written_ns=written_ns,
        gave_up=recorded.gave_up,
        status=recorded.status,
        latest_ns=recorded.latest_ns,
        moved_ns=recorded.moved_ns,
        unsure_numbers=recorded.unsure_numbers,
    )
