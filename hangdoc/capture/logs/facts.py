"""Puts the facts of all texts of one job together: each format's reader is asked, and who speaks is known from all.

Example: what stands in `attempt_1/0/stderr.log` and in the console of torchrun becomes one ``Logged``, whose ranks are
the global ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from hangdoc.capture.logs import attempts, endings, gave_up, mismatches, raised, reports, stacks, watchdog
from hangdoc.capture.logs.carried import ReadFile
from hangdoc.capture.logs.lines import Line, year_in, year_of
from hangdoc.capture.logs.sift import Marker
from hangdoc.capture.logs.speakers import Speakers
from hangdoc.capture.safe.text import clean
from hangdoc.model.logged import (
    Alive,
    Behind,
    Call,
    Ended,
    Logged,
    Member,
    Overdue,
    Place,
    Progress,
    Raised,
    Stream,
)

FOLDED = " across cluster]"
"""How Ray says that it has left lines out."""
MARKERS = (
    *watchdog.MARKERS, *mismatches.MARKERS, *reports.MARKERS, *endings.MARKERS, *raised.MARKERS, *stacks.MARKERS,
    Marker(b"WORLD_SIZE"), Marker(b"world size"), Marker(b"world_size="), Marker(b"SLURM_NTASKS"), Marker(b"MEMBER: "),
    Marker(FOLDED.encode()), Marker(b"NCCL version "), Marker(b"cudaDriverVersion "), Marker(b"PyTorch version: "),
)  # fmt: skip
"""What a line of interest has, of any format."""
_WORLD = (
    re.compile(r"\bworld[_ ]size[=: ]{1,3}(\d{1,6})\b", re.IGNORECASE),
    re.compile(r"\b(?:WORLD_SIZE|SLURM_NTASKS)[=:] ?[\"']?(\d{1,6})\b"),
    re.compile(r"MEMBER: \d{1,6}/(\d{1,6})\b"),
    re.compile(r"global_world_sizes=\[(\d{1,6})"),
)
_WORLD_WORDS = ("WORLD_SIZE", "world_size", "world size", "SLURM_NTASKS", "MEMBER: ", "global_world_sizes")

_AFTERMATH = re.compile(
    r"ProcessGroup|watchdog|Traceback|^\s*File \"|^\s*frame #|elastic|^srun|slurmstepd|terminate called|what\(\)|NCCL |"
    r"Exception raised|c10d|Fatal Python|Extension modules|^\s*#\d|core dumped|Aborted|^\s*$|Error\b|^[\s^~]+$|"
    r"^[=-]{10,}"
)
"""Lines that no program of a user's writes of its work: torch's, a launcher's and the interpreter's last words."""
_MOST_LINE = 300
_MOST_RANKS = 1 << 17
"""Of a job; a larger number is a count of something else. Judgement."""


def facts_of(read: Sequence[ReadFile], this_year: int = 0) -> tuple[Logged, int | None]:
    """The facts of all texts, and how many ranks the job has, where a line says it.

    ``this_year``: that of times that have none, if not that of the files.
    """
    everything = [line for each in read for line in (*each.lines, *each.tail)]
    speakers = Speakers(everything)
    year = this_year or year_in(everything) or year_of(max((each.file.modified for each in read), default=0.0))
    kept, earlier = attempts.last(
        {each.file.path: each.lines for each in read if each.file.kind == "text"}, year, speakers.of
    )
    # torch's own rank first; [Rank k] of a group that may be the default one where torch never says the global rank.
    found = watchdog.read_watchdog(kept, year, lambda line, _, member: _who(speakers, line, member))
    calls: list[Call] = []
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
    failed = tuple(raised.raised_in(kept, year, speakers.of))
    calls += mismatches.fingerprints(kept, failed)
    overdue = (*found.overdue, *gave_up.waits_of(failed))
    shown = {stack.rank for stack in pasted}
    pasted += [stack for stack in gave_up.stacks_of(overdue, failed) if stack.rank not in shown]
    logged = Logged(
        files=tuple(each.file for each in read),
        overdue=overdue,
        progress=tuple(found.progress),
        alive=tuple(found.alive),
        members=tuple({(m.group, m.member, m.rank, m.size): m for m in reversed(members)}.values()),
        behind=tuple(behind),
        calls=tuple(calls),
        barriers=tuple(barriers),
        refused=tuple(mismatches.refusals(kept, speakers.of)),
        set_ups=tuple(reports.set_ups(kept, year, speakers.of)),
        ends=tuple(endings.ends(kept, year)),
        raised=failed,
        stacks=tuple(pasted),
        streams=tuple(_streams(read, speakers)),
        attempts=earlier + 1,
    )
    logged = _with_names(logged)
    return logged, _world_size(kept, logged)


def _who(speakers: Speakers, line: Line, member: int) -> int | None:
    known = speakers.of(line)
    if known is not None or speakers.torch_says:
        return known
    return member if member >= 0 else None


def _streams(read: Iterable[ReadFile], speakers: Speakers) -> Iterable[Stream]:
    """The last line of each rank's own work, where a line's rank is known and its program went on writing."""
    last: dict[int, Line] = {}
    for each in read:
        framed: set[int] = set()
        for line in each.tail:
            rank = speakers.of(line)
            if rank is None:
                continue
            # What a traceback quotes below a frame is the program's text, not its word.
            quoted = rank in framed and line.body.startswith((" ", "\t"))
            framed.discard(rank)
            if line.body.lstrip().startswith('File "'):
                framed.add(rank)
            elif not quoted and not _AFTERMATH.search(line.body):
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
    settings = (line.text for line in lines if any(word in line.text for word in _WORLD_WORDS))
    said = [int(found[1]) for text in settings for pattern in _WORLD if (found := pattern.search(text)) is not None]
    said += [each.size for each in logged.members if each.group.partition("(")[0] == "0" and each.size]
    said += [each.expected for each in logged.set_ups if each.expected > 0]
    return max((size for size in said if size <= _MOST_RANKS), default=None)


def ranks_in(logged: Logged) -> set[int]:
    """Every global rank that some fact names."""
    speak: tuple[Overdue | Progress | Alive | Member | Raised | Ended | Stream, ...]
    speak = (*logged.overdue, *logged.progress, *logged.alive, *logged.members, *logged.raised, *logged.ends)
    ranks = {fact.rank for fact in (*speak, *logged.streams) if fact.rank is not None}
    reported: tuple[Behind | Call, ...] = (*logged.behind, *logged.calls)
    return ranks.union(*(fact.ranks for fact in reported), *(fact.joined for fact in logged.behind))


def tells(logged: Logged) -> bool:
    """True if there is any fact about calls, failures, ends or stacks."""
    return any(
        (logged.overdue, logged.progress, logged.behind, logged.calls, logged.barriers, logged.set_ups, logged.ends,
         logged.raised, logged.stacks)
    )  # fmt: skip
