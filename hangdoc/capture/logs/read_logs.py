"""Makes one snapshot of the logs and pasted stacks that somebody has: mode 'log'.

What a file is, is found from what stands in it. Every file is sifted once, as a stream; the facts of all files together
are those of one job, and of its last attempt where it was restarted.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import BinaryIO

from hangdoc.capture.dumps.find_files import find_files
from hangdoc.capture.dumps.sources import sources_of
from hangdoc.capture.logs import attempts, endings, mismatches, raised, reports, stacks, watchdog
from hangdoc.capture.logs.carried import ReadFile, telling_lines, versions_in
from hangdoc.capture.logs.lines import Line, lines_of, year_in, year_of
from hangdoc.capture.logs.processes import ranks_of
from hangdoc.capture.logs.sift import MAX_UNPACKED, Marker, sift
from hangdoc.capture.logs.speakers import Speakers
from hangdoc.capture.read.ras_answers import parse_status
from hangdoc.capture.safe.text import clean
from hangdoc.model.codec import SNAPSHOT_SUFFIX
from hangdoc.model.logged import (
    Alive,
    Behind,
    Call,
    Ended,
    LogFile,
    Logged,
    Member,
    Overdue,
    Place,
    Progress,
    Raised,
    Stream,
)
from hangdoc.model.nccl import NcclStatus
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable

_SETTINGS = (
    Marker(b"WORLD_SIZE"), Marker(b"SLURM_NTASKS"), Marker(b"MEMBER: "), Marker(b" across cluster]"),
    Marker(b"NCCL version "), Marker(b"cudaDriverVersion "), Marker(b"PyTorch version: "),
)  # fmt: skip
_RAS = b" operation counts"
MARKERS = (
    *watchdog.MARKERS, *mismatches.MARKERS, *reports.MARKERS, *endings.MARKERS, *raised.MARKERS, *stacks.MARKERS,
    *_SETTINGS, Marker(_RAS),
)  # fmt: skip
_WORLD = (
    re.compile(r"\b(?:WORLD_SIZE|SLURM_NTASKS)[=:] ?[\"']?(\d{1,6})\b"),
    re.compile(r"MEMBER: \d{1,6}/(\d{1,6})\b"),
    re.compile(r"global_world_sizes=\[(\d{1,6})"),
)
_WORLD_WORDS = ("SLURM_NTASKS", "MEMBER: ", "global_world_sizes")
_FOLDED = " across cluster]"
_MOST_FILES = 20_000
_LOOKED_AT = 20
"""Lines at the end that tell text from other data."""
STANDARD_INPUT = Path("-")
_AFTERMATH = re.compile(
    r"ProcessGroup|watchdog|Traceback|^\s*File \"|^\s*frame #|elastic|^srun|slurmstepd|terminate called|what\(\)|NCCL |"
    r"Exception raised|c10d|Fatal Python|Extension modules|^\s*#\d|core dumped|Aborted|^\s*$|Error\b|^[\s^~]+$|"
    r"^[=-]{10,}"
)
"""Lines that no program of a user's writes of its work: torch's, a launcher's and the interpreter's last words."""
_MOST_LINE = 300


def read_logs(
    paths: Sequence[Path],
    progress: Callable[[int, int], None] | None = None,
    *,
    source: Path | None = None,
    limit: int | None = None,
) -> JobSnapshot | None:
    """The job that the files at ``paths``, and in folders there, tell of; None if nothing in them is of a job's.

    Path('-') is standard input. ``source``: a folder with a copy of the program's files. ``progress`` is called with
    how many bytes of how many have been read. ``limit``: bytes unpacked of one file. A file that cannot be read is a
    note (``Unavailable``). Raises ``OSError`` where a path itself cannot be looked at.
    """
    read, notes = read_files(paths, progress, limit)
    return snapshot_of(read, notes, source)


def read_files(
    paths: Sequence[Path], progress: Callable[[int, int], None] | None = None, limit: int | None = None
) -> tuple[list[ReadFile], list[Unavailable]]:
    """What is of interest in the files, before any fact is found in it, and notes on those that cannot be read."""
    files, notes = _files(paths)
    total = sum(size for _, _, size in files)
    done = 0
    read: list[ReadFile] = []
    for path, shown, size in files:
        tell = None if progress is None or not total else partial(_tell, progress, done, total)
        found = _read_at(path, clean(shown), tell, limit or MAX_UNPACKED)
        done += size
        if isinstance(found, Unavailable):
            notes.append(found)
        else:
            read.append(found)
    return read, notes


def _tell(progress: Callable[[int, int], None], before: int, total: int, read: int) -> None:
    progress(min(before + read, total), total)


def _files(paths: Sequence[Path]) -> tuple[list[tuple[Path, str, int]], list[Unavailable]]:
    """(path, name to show, size) of every file, and notes on what was left out."""
    found: list[tuple[Path, str, int]] = []
    notes: list[Unavailable] = []
    for path in paths:
        if path == STANDARD_INPUT:
            found.append((path, "standard input", 0))
        elif not path.is_dir():
            found.append((path, path.name, path.stat().st_size))
        else:
            listed, more = find_files(path)
            # What hangdoc has saved quotes logs, and is none.
            texts = (each for each in listed if not each.path.endswith(SNAPSHOT_SUFFIX))
            found += [(path / each.path, each.path, each.size) for each in texts]
            if more:
                notes.append(
                    Unavailable("log", f"{path.name} holds more files than are looked at", "Give fewer files.")
                )
    if len(found) > _MOST_FILES:
        why = f"{len(found) - _MOST_FILES} of {len(found)} files were not read"
        notes.append(Unavailable("log", why, "Give fewer files."))
    return found[:_MOST_FILES], notes


def _read_at(path: Path, shown: str, progress: Callable[[int], None] | None, limit: int) -> ReadFile | Unavailable:
    if path == STANDARD_INPUT:
        return _read(sys.stdin.buffer, shown, time.time(), progress, limit)
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                return Unavailable("log", f"{shown} is no regular file")
            return _read(file, shown, status.st_mtime, progress, limit)
    except OSError as error:
        return Unavailable("log", f"{shown} could not be read: {error.strerror}", "Check its permissions.")


def _read(file: BinaryIO, shown: str, modified: float, progress: Callable[[int], None] | None, limit: int) -> ReadFile:
    sifted = sift(file, MARKERS, progress, limit)
    kept, tail = list(lines_of(shown, sifted.kept)), list(lines_of(shown, sifted.tail))
    folded = any(_FOLDED in line.text for line in kept)
    kind = "text" if not any(b"\0" in line for _, line in sifted.tail[-_LOOKED_AT:]) else "binary"
    note = LogFile(shown, kind, sifted.lines, sifted.size, sifted.cut, folded, modified)
    document = sifted.whole.lstrip()[:1] in (b"{", b"[")
    status = _ras(sifted.whole) if _RAS in sifted.whole or (document and b"communicators" in sifted.whole) else None
    return ReadFile(note, kept, tail, status, stacks.stacks_in_json(shown, sifted.whole) if document else [])


def _ras(text: bytes) -> NcclStatus | None:
    try:
        return parse_status(text.decode("utf-8", "replace"))
    except ValueError:
        return None


def snapshot_of(read: Sequence[ReadFile], notes: Sequence[Unavailable], source: Path | None) -> JobSnapshot | None:
    """The job that these files tell of together, as ``read_logs``."""
    everything = [line for each in read for line in (*each.lines, *each.tail)]
    speakers = Speakers(everything)
    modified = max((each.file.modified for each in read), default=0.0)
    year = year_in(everything) or year_of(modified)
    kept, earlier = attempts.last(
        {each.file.path: each.lines for each in read if each.file.kind == "text"}, year, speakers.of
    )
    # torch's own rank first; [Rank k] of a group that may be the default one where torch never says the global rank.
    found = watchdog.read_watchdog(kept, year, lambda line, _, member: _who(speakers, line, member))
    calls: list[Call] = [*mismatches.fingerprints(kept)]
    behind: list[Behind] = [*reports.desync_reports(kept)]
    members: list[Member] = list(found.members)
    barriers = []
    for fact in (*mismatches.torchfrtrace(kept), *mismatches.nccl_calls(kept), *reports.barriers(kept)):
        if isinstance(fact, Call):
            calls.append(fact)
        elif isinstance(fact, Behind):
            behind.append(fact)
        elif isinstance(fact, Member):
            members.append(fact)
        else:
            barriers.append(fact)
    own = {each.file.path: rank for each in read if (rank := speakers.of_file(each.file.path)) is not None}
    pasted = [stack for each in read for stack in each.stacks] + stacks.stacks_in(kept, own)
    logged = Logged(
        files=tuple(each.file for each in read),
        overdue=tuple(found.overdue),
        progress=tuple(found.progress),
        alive=tuple(found.alive),
        members=tuple(dict.fromkeys(members)),
        behind=tuple(behind),
        calls=tuple(calls),
        barriers=tuple(barriers),
        set_ups=tuple(reports.set_ups(kept, year, speakers.of)),
        ends=tuple(endings.ends(kept, year)),
        raised=tuple(raised.raised_in(kept, year, speakers.of)),
        stacks=tuple(pasted),
        streams=tuple(_streams(read, speakers)),
        attempts=earlier + 1,
    )
    logged = _with_names(logged)
    logged = replace(logged, lines=telling_lines(logged, read))
    world = _world_size(kept, logged)
    nccl = next((each.nccl for each in read if each.nccl is not None), None)
    if not _tells(logged) and nccl is None:
        return None
    seen = ranks_of(logged.stacks, modified, world)
    known = {rank.rank: rank for rank in seen.ranks}
    for rank in _ranks(logged):
        known.setdefault(rank, RankSnapshot(rank, "", "log", world_size=world))
    told: tuple[Overdue | Raised | Behind | Call, ...]
    told = (*logged.overdue, *logged.raised, *logged.behind, *logged.calls)
    sources, sourceless = sources_of((*seen.stacks, *(fact.stack for fact in told)), source, modified)
    cut = (Unavailable("log", f"{each.file.path}: {each.file.cut}") for each in read if each.file.cut)
    return JobSnapshot(
        taken=modified,
        mode="log",
        world_size=world or seen.world_size,
        ended=not seen.ranks,
        ranks=tuple(known[rank] for rank in sorted(known)),
        nccl=nccl,
        logged=logged,
        sources=sources,
        versions=versions_in(kept),
        unavailable=(*notes, *cut, *seen.unavailable, *sourceless),
    )


def _who(speakers: Speakers, line: Line, member: int) -> int | None:
    known = speakers.of(line)
    if known is not None or speakers.torch_says:
        return known
    return member if member >= 0 else None


def _streams(read: Iterable[ReadFile], speakers: Speakers) -> Iterable[Stream]:
    """The last line of each rank's own work, where a line's rank is known and its program went on writing."""
    last: dict[int, Line] = {}
    for each in read:
        for line in each.tail:
            rank = speakers.of(line)
            if rank is not None and not _AFTERMATH.search(line.body):
                last[rank] = line
    for rank, line in sorted(last.items()):
        yield Stream(Place(line.file, line.number, "text"), rank, clean(line.body.strip()[:_MOST_LINE]))


def _with_names(logged: Logged) -> Logged:
    """The same with one name for each group: some of a group's lines have its description, others its number alone."""
    facts: tuple[Overdue | Progress | Behind | Call, ...]
    facts = (*logged.overdue, *logged.progress, *logged.behind, *logged.calls)
    about: dict[str, str] = {}
    for fact in facts:
        number, _, rest = fact.group.partition("(")
        if rest and number:
            about.setdefault(number, fact.group)
    return replace(
        logged,
        overdue=tuple(replace(each, group=about.get(each.group, each.group)) for each in logged.overdue),
        progress=tuple(replace(each, group=about.get(each.group, each.group)) for each in logged.progress),
        behind=tuple(replace(each, group=about.get(each.group, each.group)) for each in logged.behind),
        members=tuple(replace(each, group=about.get(each.group, each.group)) for each in logged.members),
    )


def _world_size(lines: Iterable[Line], logged: Logged) -> int | None:
    """The number of ranks, where a line says it: settings, the default group's size, clients of the rendezvous."""
    settings = (line.text for line in lines if "WORLD_SIZE" in line.text or any(w in line.text for w in _WORLD_WORDS))
    said = [int(found[1]) for text in settings for pattern in _WORLD if (found := pattern.search(text)) is not None]
    said += [each.size for each in logged.members if each.group.partition("(")[0] == "0" and each.size]
    said += [each.expected for each in logged.set_ups if each.expected > 0]
    return max(said, default=None)


def _ranks(logged: Logged) -> set[int]:
    """Every global rank that some fact names."""
    speak: tuple[Overdue | Progress | Alive | Member | Raised | Ended | Stream, ...]
    speak = (*logged.overdue, *logged.progress, *logged.alive, *logged.members, *logged.raised, *logged.ends)
    ranks = {fact.rank for fact in (*speak, *logged.streams) if fact.rank is not None}
    reported: tuple[Behind | Call, ...] = (*logged.behind, *logged.calls)
    return ranks.union(*(fact.ranks for fact in reported), *(fact.joined for fact in logged.behind))


def _tells(logged: Logged) -> bool:
    return any(
        (logged.overdue, logged.progress, logged.behind, logged.calls, logged.barriers, logged.set_ups, logged.ends,
         logged.raised, logged.stacks)
    )  # fmt: skip
