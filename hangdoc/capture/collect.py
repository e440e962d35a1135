"""Put what is left of a job, on this host or on many, into one snapshot to carry off: dumps, logs, live ranks.

Each host hands over up to three parts: the job that runs there or was saved there, its dumps, and the lines of its logs
that may matter. The facts of the logs of all hosts are found here, together, and so is the run that the dumps are of:
as if all files had lain in one folder, one below it for each host.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from hangdoc.capture.asking import HostsRequest
from hangdoc.capture.find.rendezvous import torch_version
from hangdoc.capture.find.target import host_name
from hangdoc.capture.load import (
    is_snapshot,
    latest_snapshot,
    missing_dumps,
    open_dumps,
    open_saved,
    world_size_of,
)
from hangdoc.capture.read.own_dumps import DumpingRank, why_not_now
from hangdoc.capture.remote import joined, parts_of_hosts
from hangdoc.capture.safe.open_files import User
from hangdoc.capture.safe.text import read_text
from hangdoc.errors import CannotLook, HangdocError
from hangdoc.model.logged import LogFile
from hangdoc.model.masked import masked
from hangdoc.model.merge import merge
from hangdoc.model.same_job import HOSTS, Part, with_notes
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, Unavailable
from hangdoc.model.wording import name_all, name_ranks

Look = Callable[[], JobSnapshot]
_LIVE = ("watch", "attach")
_ABSENT = "path"
"""``Unavailable.what`` of a path that a host does not have; ``why`` is the path. It never leaves this module."""
_PYTHON = re.compile(r"python(\d\.\d{1,2})$")
_DRIVER = re.compile(r"\s(\d{3}(?:\.\d{1,4}){1,2})\s")


@dataclass(frozen=True, slots=True)
class Local:
    """What is collected of this host. ``live`` looks at the job that runs here; ``output``: the file to be written,
    which is no evidence itself; ``source``: a folder with a copy of the program's files."""

    paths: Sequence[Path] = ()
    live: Look | None = None
    output: Path | None = None
    source: Path | None = None
    no_source: bool = False


def mark_of(path: Path) -> str:
    """What tells a file or folder from others, on any host that mounts its file system; '' where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_ino:x}.{status.st_mtime_ns:x}"


def collect_here(local: Local, progress: Callable[[int, int], None] | None = None) -> JobSnapshot:
    """All of this host: what `hangdoc diagnose` reads at the paths, and the job that runs here.

    Raises ``CannotLook`` where there is nothing, ``BadSnapshot`` for a file that is no snapshot.
    """
    if len(local.paths) != 1:
        parts = [Part(host_name(), part) for part in parts_here(local, progress)]
        return _together_of(parts, [], 1, local)
    live = [with_versions(local.live())] if local.live is not None else []
    try:
        left = open_saved(local.paths[0], local.source, progress, but=local.output)
    except CannotLook as error:
        if not live:
            raise
        return with_notes(_plain(live[0], local), [Unavailable("log", error.what, error.remedy)])
    return _together([_plain(each, local) for each in (*live, left)])


def _plain(job: JobSnapshot, local: Local) -> JobSnapshot:
    """``job``, without source code where none is wanted."""
    if not local.no_source:
        return job
    bare = (replace(each, sources=(), modules=()) for each in job.others)
    return replace(job, sources=(), modules=(), others=tuple(bare))


def collect_hosts(
    request: HostsRequest, local: Local, progress: Callable[[int, int], None] | None = None
) -> JobSnapshot:
    """The same of this host and those of the request, whose ``options`` say what is read there.

    A host that fails is a note. Raises ``CannotLook`` where no host has anything.
    """
    marks = tuple(filter(None, map(mark_of, local.paths)))
    request = replace(request, options=replace(request.options, seen=marks))
    answers, said = parts_of_hosts(request, lambda: packed(parts_here(local, progress)))
    # This host's answer always comes first.
    parts = [Part(answer.origin, each) for answer in answers for each in _unpacked(answer.snapshot)]
    return _together_of(parts, said, len(answers), local)


def _together_of(parts: Sequence[Part], said: Sequence[Unavailable], hosts: int, local: Local) -> JobSnapshot:
    """All parts of so many hosts as one job."""
    live = [part for part in parts if part.snapshot.mode in _LIVE]
    found = []
    if live:
        found.append(joined(live, named=local.live is not None))
    dumps = [part for part in parts if part.snapshot.mode == "dump"]
    if dumps:
        found.append(_joined_dumps(dumps))
    texts = [part for part in parts if part.snapshot.mode == "log"]
    logs = _joined_logs([part for part in texts if part.snapshot.logged is not None], local.source)
    if logs is not None:
        found.append(logs)
    notes = [note for part in texts for note in part.snapshot.unavailable if note.what not in (_ABSENT, "source")]
    notes = [*said, *notes, *_absent(texts, hosts)]
    if not found:
        raise _nothing(notes, hosts)
    return with_notes(_together([_plain(each, local) for each in found]), notes)


# --- one host -----------------------------------------------------------------------------------------------------


def parts_here(local: Local, progress: Callable[[int, int], None] | None = None) -> list[JobSnapshot]:
    """What this host has, each part by itself. What cannot be read is a note in the last one, which may hold nothing
    else."""
    parts: list[JobSnapshot] = []
    notes: list[Unavailable] = []
    texts: list[Path] = []
    if local.live is not None:
        try:
            parts.append(with_versions(local.live()))
        except CannotLook as error:
            if not local.paths:
                raise
            notes.append(Unavailable(HOSTS, f"{host_name()}: {error.what}", error.remedy))
    for path in local.paths:
        if not path.exists():
            notes.append(Unavailable(_ABSENT, str(path)))
            continue
        try:
            parts += _saved(path, local, texts, progress)
        except HangdocError as error:
            notes.append(Unavailable(HOSTS, f"{host_name()}: {error.what}", error.remedy))
        except (ImportError, OSError, ValueError) as error:
            notes.append(Unavailable(HOSTS, f"{host_name()}: {path}: {error}"))
    folders = [path for path in texts if path.is_dir()]
    files = [path for path in texts if not path.is_dir()]
    for paths in (files, *([folder] for folder in folders)):
        parts += _logs(paths, notes, progress)
        notes = []
    return [_plain(part, local) for part in parts]


def _saved(
    path: Path, local: Local, texts: list[Path], progress: Callable[[int, int], None] | None
) -> list[JobSnapshot]:
    """The snapshot or the dumps at ``path``; where there may be logs, it is put into ``texts``."""
    from hangdoc.model.codec import load_snapshot

    if not path.is_dir():
        if is_snapshot(path):
            return [load_snapshot(path)]
        texts.append(path)
        return []
    latest = latest_snapshot(path, local.output)
    if latest is not None:
        return [load_snapshot(latest)]
    texts.append(path)
    try:
        return [open_dumps(path, local.source, progress, part=True)]
    except CannotLook:
        return []  # none are here


def _logs(
    texts: Sequence[Path], notes: Sequence[Unavailable], progress: Callable[[int, int], None] | None
) -> list[JobSnapshot]:
    """The lines of the logs, without facts; the sources of the functions on their stacks, which only this host has."""
    from hangdoc.capture.logs.carried import sifted
    from hangdoc.capture.logs.read_logs import read_files, snapshot_of

    read, unread = read_files(texts, progress) if texts else ([], [])
    # A log without a line of interest counts: its rank has written, and said nothing of an error.
    read = [each for each in read if each.file.kind == "text" or each.lines or each.stacks or each.nccl]
    told = snapshot_of(read, (), None) if read else None
    if told is None:
        told = JobSnapshot(0.0, "log")
    if not (read or unread or notes):
        return []
    name = texts[0].name if texts and texts[0].is_dir() else ""
    sources = tuple(note for note in told.unavailable if note.what == "source")
    return [
        replace(
            told, run_id=name, ranks=(), logged=sifted(read) if read else None, unavailable=(*notes, *unread, *sources)
        )
    ]


def packed(parts: Sequence[JobSnapshot]) -> JobSnapshot:
    """The parts of a host as one snapshot on its way. The dumps come first, as only the first one's calls are written
    as tables. Its own ``others`` come in front of the further parts, in one."""
    first, *rest = sorted(parts, key=lambda each: each.mode != "dump") or [JobSnapshot(0.0, "log")]
    return replace(first, others=(JobSnapshot(0.0, "log", others=first.others), *rest))


def _unpacked(answer: JobSnapshot) -> list[JobSnapshot]:
    if not answer.others:
        return [answer]
    own, *rest = answer.others
    return [replace(answer, others=own.others), *rest]


def with_versions(job: JobSnapshot) -> JobSnapshot:
    """``job``, which runs here, with the versions of what its processes have loaded."""
    found = set(job.versions)
    for rank in job.ranks:
        if rank.process is None:
            continue
        pid = rank.process.pid
        number = torch_version(pid)
        if number is not None:
            found.add(("torch", ".".join(map(str, number))))
        try:
            python = _PYTHON.search(str(Path(f"/proc/{pid}/exe").readlink()))
        except OSError:
            continue
        if python is not None:
            found.add(("Python", python[1]))
    driver = _DRIVER.search(read_text("/proc/driver/nvidia/version", 4096) or "")
    if driver is not None:
        found.add(("driver", driver[1]))
    return replace(job, versions=tuple(sorted(found)))


# --- all together -------------------------------------------------------------------------------------------------


def _together(found: Sequence[JobSnapshot]) -> JobSnapshot:
    """Live ranks, dumps and logs of one job as one, with the other jobs of all of them."""
    if not found:
        raise CannotLook("there is nothing to collect", "Name a folder of logs or dumps, or --pid PID.")
    live = [each for each in found if each.mode in _LIVE]
    dumps = [each for each in found if each.mode == "dump"]
    logs = [each for each in found if each.mode not in (*_LIVE, "dump")]
    if live and dumps:
        live, dumps = [_with_dumps(merge(live), merge(dumps))], []
    others = tuple(other for each in found for other in each.others)
    return masked(replace(merge([*live, *dumps, *logs]), others=others))


def _with_dumps(live: JobSnapshot, dumps: JobSnapshot) -> JobSnapshot:
    """The ranks that live, with the histories of dumps that show what they do now; a note on the other dumps."""
    journals = {rank.rank: rank.journal for rank in dumps.ranks if rank.journal is not None}
    ranks = []
    why: dict[str, list[int]] = {}
    for rank in live.ranks:
        journal = journals.pop(rank.rank, None)
        if journal is None or rank.journal is not None:
            ranks.append(rank)
            continue
        reason = "its process was not seen" if rank.process is None else why_not_now(journal, _dumping(rank))
        if reason:
            why.setdefault(reason, []).append(rank.rank)
        ranks.append(rank if reason else replace(rank, journal=journal))
    if journals:
        why.setdefault("their ranks are not of this job", []).extend(journals)
    notes = (
        Unavailable("journal", f"dumps of {name_ranks(sorted(left))} do not count beside the processes: {reason}")
        for reason, left in why.items()
    )
    texts = merge([live, replace(dumps, ranks=(), unavailable=())])
    found = replace(live, ranks=tuple(ranks), sources=texts.sources, modules=texts.modules, versions=texts.versions)
    return with_notes(found, notes)


def _dumping(rank: RankSnapshot) -> DumpingRank:
    process = rank.process
    assert process is not None
    threads = (thread.python_id for look in process.looks for thread in look.threads)
    return DumpingRank(
        rank.rank, process.pid, process.started, User(0, 0), {}, frozenset(filter(None, threads)), rank.world_size
    )


def _joined_dumps(parts: Sequence[Part]) -> JobSnapshot:
    """The dumps of the newest run, by all hosts; other jobs of each host beside it."""
    from hangdoc.capture.dumps.hosts import newest_run_of

    # A folder of its own may hold a job of its own.
    count = Counter(part.origin for part in parts)
    origins = [part.origin for part in parts]
    names = [name if count[name] == 1 else f"{name} (folder {n})" for n, name in enumerate(origins, 1)]
    by_name = dict(zip(names, (part.snapshot for part in parts), strict=True))
    run = newest_run_of([(n, rank.rank, rank.journal) for n, s in by_name.items() for rank in s.ranks if rank.journal])
    size = world_size_of(run.journals)
    used = [snapshot for name, snapshot in by_name.items() if name in run.hosts]
    whole = merge(used)
    ranks = (RankSnapshot(rank, "", "dump", world_size=size, journal=journal) for rank, journal in run.journals.items())
    where = "the folders" if len(used) > 1 else "the folder"
    notes = (*run.unavailable, *missing_dumps(run.journals, size, where), *whole.unavailable)
    others = tuple(other for part in parts for other in part.snapshot.others)
    return replace(whole, world_size=size, ranks=tuple(ranks), unavailable=notes, others=others)


def _joined_logs(parts: Sequence[Part], source: Path | None) -> JobSnapshot | None:
    """The facts of all hosts' logs. A file that several hosts have, as they share its folder, counts once."""
    from hangdoc.capture.logs.carried import ReadFile, unsifted
    from hangdoc.capture.logs.read_logs import snapshot_of

    read: list[ReadFile] = []
    seen: set[LogFile] = set()
    several = len({part.origin for part in parts}) > 1
    for part in parts:
        logged = part.snapshot.logged
        assert logged is not None
        names = [part.origin] if several else []
        if len([other for other in parts if other.origin == part.origin]) > 1 and part.snapshot.run_id:
            names.append(part.snapshot.run_id)
        files = unsifted(logged, part.snapshot.nccl, "/".join(names))
        read += [each for each, file in zip(files, logged.files, strict=True) if file not in seen]
        seen.update(logged.files)
    whole = snapshot_of(read, (), source) if read else None
    if whole is None:
        return None
    # The files of the program lie where the job ran: what is missing of them was found there.
    bare = (replace(part.snapshot, run_id="", logged=None, nccl=None, unavailable=()) for part in parts)
    texts = merge([whole, *bare])
    here = (note for note in whole.unavailable if note.what != "source")
    there = dict.fromkeys(n for part in parts for n in part.snapshot.unavailable if n.what == "source")
    return replace(whole, sources=texts.sources, unavailable=(*here, *there))


def _absent(texts: Sequence[Part], hosts: int) -> list[Unavailable]:
    """A note on each path that none of so many hosts has."""
    notes = [(part.origin, note) for part in texts for note in part.snapshot.unavailable if note.what == _ABSENT]
    missing = Counter(path for _, path in {(origin, note.why) for origin, note in notes})
    gone = sorted(path for path, count in missing.items() if count == hosts)
    return [
        Unavailable("log", f"no host has {path}" if hosts > 1 else f"there is no {path}", "Check the path.")
        for path in gone
    ]


def _nothing(said: Sequence[Unavailable], hosts: int) -> CannotLook:
    why = f": {said[0].why}" if said else ""
    remedy = said[0].remedy if said else ""
    usual = "Name the folders of logs and dumps as the hosts have them, or the job by --job."
    what = "no host has anything to collect" if hosts > 1 else "there is nothing to collect"
    return CannotLook(f"{what}{why}", remedy or usual)


# --- what to say of it --------------------------------------------------------------------------------------------


def in_words(job: JobSnapshot) -> str:
    """'4 ranks that live on 2 hosts, dumps of 16 ranks, 312 lines of 18 logs'."""
    everything = (job, *job.others)
    alive = [rank for each in everything if each.mode in _LIVE for rank in each.ranks if rank.process is not None]
    hosts = {rank.host for rank in alive}
    dumps = [rank.rank for each in everything if each.mode not in _LIVE for rank in each.ranks if rank.journal]
    words = []
    if alive:
        on = f" on {len(hosts)} hosts" if len(hosts) > 1 else ""
        words.append(f"the processes of {_count(len(alive), 'rank')}{on}")
    if dumps:
        words.append(f"dumps of {_count(len(dumps), 'rank')}")
    for each in everything:
        if each.logged is not None and each.logged.files:
            lines, files = len(each.logged.lines), len(each.logged.files)
            words.append(f"the facts of {_count(files, 'log file')} with {_count(lines, 'line')}")
    return name_all(words) if words else name_ranks([rank.rank for rank in job.ranks])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"
