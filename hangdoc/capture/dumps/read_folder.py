"""A folder of dumps → the journals of the ranks of one run, and what there is to say of the other files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from hangdoc.capture.dumps.find_files import DumpFile, find_files, open_file
from hangdoc.capture.dumps.fold import Dump, Folding, TooMuchError
from hangdoc.capture.dumps.jobs import DumpedJob, jobs_in, names_of
from hangdoc.capture.dumps.local_ranks import Told
from hangdoc.capture.dumps.membership import Member, member_of
from hangdoc.capture.dumps.workers import read_all
from hangdoc.capture.read.recorder_groups import MOST_RANKS
from hangdoc.model.journal import Journal
from hangdoc.model.snapshot import DUMPS, Unavailable
from hangdoc.model.wording import name_ranks

_MOST_NAMED = 8
"""Files that are passed over for one reason; of more, the first are named and the others counted; chosen by hand."""
_MOST_FOLDERS = 3
"""That are named in one line; chosen by hand."""
_TORN = "give the file as torch wrote it, whole (TORCH_FR_DUMP_TEMP_FILE names where)"


@dataclass(frozen=True, slots=True)
class Folder:
    """What the dumps of one job show."""

    journals: dict[int, Journal]
    """Rank → its calls."""
    unavailable: tuple[Unavailable, ...]
    ended_ns: int = 0
    """When the last call was issued, or seen to end."""
    owners: frozenset[tuple[int, int]] = frozenset()
    """Whose files they are, by user and group: what their calls name, those users have put there."""
    name: str = ""
    """Where they lie, where there are ``others``."""
    libraries: tuple[str, ...] = ()
    """The versions of the library that communicates (NCCL), as the dumps say them; sorted."""
    others: tuple[Folder, ...] = ()
    """The other jobs whose dumps lie there, the newest first."""


def read_dump_folder(folder: Path, progress: Callable[[int, int], None] | None = None) -> Folder:
    """The dumps in ``folder`` and below it, those of the newest job. ``progress`` is called with (files done, files in
    all)."""
    try:
        files, more = find_files(folder)
    except OSError as error:
        why = f"{folder}: {error.strerror}"
        return Folder({}, (Unavailable("journal", why, "name the folder that holds the dump files"),))
    found: list[Unavailable] = []
    if more:
        why = f"only {len(files):,} files were looked at, and there is more here"
        found.append(Unavailable("journal", why, "name a smaller folder"))
    folding = Folding(len(files))
    members, failed = _members(folder, files, folding, progress)
    if not members and not failed:
        why = f"{folder}: no file here is a dump of a flight recorder"
        remedy = "set TORCH_FR_DUMP_TEMP_FILE for the job and name the folder it writes to"
        found.append(Unavailable("journal", why, remedy))
    jobs, left = jobs_in(members)
    names = names_of(jobs)
    journals = iter(folding.journals((m.dump, m.file.written) for job in jobs for m in job.members))
    notes = [*found, *_of_earlier_runs(jobs[0].members, left)]
    folders = [
        _folder(job, [next(journals) for _ in job.members], name, [*notes, *_together(_of_job(failed, name, names))])
        for job, name in zip(jobs, names, strict=True)
    ]
    first, *others = sorted(folders, key=lambda each: not each.journals)
    return replace(first, others=tuple(each for each in others if each.journals))


def _folder(job: DumpedJob, journals: list[Journal], name: str, notes: list[Unavailable]) -> Folder:
    chosen = job.members
    return Folder(
        {member.rank: journal for member, journal in zip(chosen, journals, strict=True)},
        (*notes, *_of_hosts(job.told), *_of_others(job.twice), *_gaps(chosen)),
        max((member.dump.latest_ns for member in chosen), default=0),
        frozenset(member.file.owner for member in chosen if member.file.owner is not None),
        name,
        tuple(sorted({member.dump.library for member in chosen} - {""})[:_MOST_NAMED]),
    )


def _of_job(failed: list[tuple[DumpFile, Unavailable]], name: str, names: list[str]) -> list[Unavailable]:
    """The notes on files that lie where the dumps of the job lie, or where those of none lie."""
    homes = {file.path: [each for each in names if file.path.startswith(f"{each}/")] for file, _ in failed}
    return [note for file, note in failed if name in (homes[file.path] or names)]


def _members(
    folder: Path, files: list[DumpFile], folding: Folding, progress: Callable[[int, int], None] | None
) -> tuple[list[Member], list[tuple[DumpFile, Unavailable]]]:
    """The dumps with their ranks, in the order of the files; a note on each file that is none and looks like one."""
    dumps: dict[int, Dump] = {}
    failed: dict[int, str] = {}
    openers = [partial(open_file, folder, file) for file in files]
    done = partial(_tell, progress, len(files)) if progress is not None else None
    for number, worker, answer in read_all(openers, [file.size for file in files], done):
        if "bad" in answer:
            failed[number] = f"the flight recorder's dump cannot be read: {answer['bad']}"
        elif "foreign" in answer:
            if files[number].looks_like_a_dump:
                failed[number] = f"it is no dump of a flight recorder: {answer['foreign']}"
        else:
            try:
                dumps[number] = folding.add(worker, answer)
            except TooMuchError as error:
                failed[number] = str(error)
    return _with_ranks(files, dumps, failed)


def _with_ranks(
    files: list[DumpFile], dumps: dict[int, Dump], failed: dict[int, str]
) -> tuple[list[Member], list[tuple[DumpFile, Unavailable]]]:
    """The same, from each file's dump or the reason why it is none, by the file's number."""
    members = []
    notes = []
    sets: dict[int, frozenset[int]] = {}
    shapes = {files[number].shape for number in dumps}
    for number, file in enumerate(files):
        if number in failed:
            named = not shapes or file.shape in shapes
            likely = next((n for n in file.numbers() if n < MOST_RANKS), None) if named else None
            notes.append((file, Unavailable("journal", f"{file.path}: {failed[number]}", _TORN, likely)))
        elif number in dumps:
            member = member_of(dumps[number], file, sets)
            if member is not None:
                members.append(member)
            else:
                notes.append((file, _without_rank(file)))
    return members, notes


def _without_rank(file: DumpFile) -> Unavailable:
    why = f"{file.path}: the number at the end of its name is no rank (a date, an id?)"
    if not file.numbers():
        why = f"{file.path}: neither its name nor its calls say which rank's dump it is"
    return Unavailable("journal", why, "rename it to <prefix><rank>, or move it elsewhere")


def is_dump(path: Path) -> bool:
    """True if the file is a dump that can be read."""
    file = DumpFile(path.name, 0, 0.0)
    answers = read_all([partial(open_file, path.parent, file)], [0])
    return all("body" in answer for _, _, answer in answers)


def _tell(progress: Callable[[int, int], None], count: int, done: int) -> None:
    progress(done, count)


def _together(notes: list[Unavailable]) -> list[Unavailable]:
    """The notes; where too many say the same of their files, the first, and how many more there are."""
    alike: dict[str, list[Unavailable]] = {}
    for note in notes:
        alike.setdefault(note.why.partition(": ")[2], []).append(note)
    found: list[Unavailable] = []
    for why, same in alike.items():
        found += same[:_MOST_NAMED]
        if len(same) > _MOST_NAMED:
            more = len(same) - _MOST_NAMED
            found.append(Unavailable("journal", f"{more} more files: {why}", same[0].remedy))
    return found


def _of_earlier_runs(chosen: list[Member], earlier: list[Member]) -> list[Unavailable]:
    """That the newest of several runs is diagnosed."""
    if not earlier:
        return []
    ended = max((member.dump.latest_ns for member in chosen), default=0) / 1e9
    when = datetime.fromtimestamp(ended, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC") if ended else "?"
    files = "1 dump of an earlier run was" if len(earlier) == 1 else f"{len(earlier)} dumps of earlier runs were"
    where = _folders(earlier)
    if max(member.dump.latest_ns for member in earlier) / 1e9 > ended:
        why = f"{len(earlier)} dumps of other runs were left out ({where}): those of this one were written last "
        remedy = "name the folder of the other run to diagnose that one"
        return [Unavailable("journal", f"{why}({_folders(chosen)})", remedy)]
    why = f"{files} left out ({where}): the newest run here made its last call at {when} ({_folders(chosen)})"
    return [Unavailable("journal", why, "name the folder of the other run to diagnose that one")]


def _folders(members: list[Member]) -> str:
    """Where their files lie, in few words: 'run1', 'a, b and 14 more folders', or the name of the only file."""
    if len(members) == 1:
        return members[0].file.path
    names = list(dict.fromkeys(member.file.path.rpartition("/")[0] or "." for member in members))
    shown = ", ".join(names[:_MOST_FOLDERS])
    return shown if len(names) <= _MOST_FOLDERS else f"{shown} and {len(names) - _MOST_FOLDERS} more folders"


def _of_hosts(told: Told) -> list[Unavailable]:
    """On dumps whose names say their ranks on their hosts alone."""
    remedy = "rename them to <prefix><rank in the job>"
    found = []
    if told.unclear:
        why = f"{len(told.unclear)} dumps were left out ({_folders(told.unclear)}): their names say the ranks on their "
        found.append(Unavailable("journal", f"{why}hosts alone, and nothing says which host comes first", remedy))
    if told.by_name:
        why = "the dumps' names say the ranks on their hosts alone; the hosts were put in the order of their numbers"
        found.append(Unavailable("rank", why, remedy))
    return found


def _of_others(twice: list[Member]) -> list[Unavailable]:
    """On dumps of ranks that have another one in this run: copies, or the replicas of a job."""
    remedy = "keep the dumps of one run in a folder of their own, and name that"
    if len(twice) <= _MOST_NAMED:
        return [
            Unavailable("journal", f"{one.file.path}: there is another dump of rank {one.rank} here", remedy, one.rank)
            for one in twice
        ]
    ranks = name_ranks(sorted({one.rank for one in twice}))
    why = f"{len(twice)} dumps were left out ({_folders(twice)}): there are others of {ranks} here"
    return [Unavailable("journal", why, remedy)]


def _gaps(chosen: list[Member]) -> list[Unavailable]:
    """Notes on what the recorders left out, as their settings ask."""
    found = []
    active = [member.rank for member in chosen if member.dump.active_only]
    if active:
        why = f"those of {name_ranks(active)} show no call that had completed"
        found.append(Unavailable(DUMPS, why, "unset TORCH_INCLUDE_ONLY_ACTIVE"))
    bare = [member.rank for member in chosen if len(member.dump.body) and not member.dump.with_frames]
    if bare:
        why = f"those of {name_ranks(bare)} hold no stacks, so the lines of their calls are not known"
        found.append(Unavailable(DUMPS, why, "set TORCH_INCLUDE_STACK_TRACE=1, and take pickles, not JSON"))
    return found
