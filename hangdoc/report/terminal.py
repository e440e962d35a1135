"""The diagnosis for a person at a terminal: the answer first, then who is where, why, and what to do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, TextIO

from hangdoc.model.diagnosis import Activity, Branch, Diagnosis, Side
from hangdoc.model.process import Frame
from hangdoc.model.wording import fold_ranks, name_duration, name_ranks
from hangdoc.report.layout import Layout, Piece, Row

if TYPE_CHECKING:
    from hangdoc.model.snapshot import Unavailable

MAX_ROWS = 12
MAX_EVIDENCE = 4
MAX_UNAVAILABLE = 6
MAX_PIDS = 4
"""Most rows of each kind: a report fits on one screen. Chosen by hand; the JSON document has everything."""
_CHILDREN = {"dataloader-worker": "DataLoader worker", "child": "child process"}
"""Roles of the processes that a rank has started, in words."""

_MARKS = {
    "hang": ("✖", "bold red"),
    "crashed": ("✖", "bold red"),
    "slow": ("◔", "bold yellow"),
    "healthy": ("✔", "bold green"),
    "blind": ("?", "bold yellow"),
}


def render(
    diagnosis: Diagnosis,
    *,
    width: int = 100,
    color: bool = False,
    unicode: bool = True,
) -> str:
    """The report as lines of at most ``width`` cells (40 to 200), each ended by a newline.

    ``unicode`` False gives pure ASCII. Text that comes from the job is escaped and never interpreted.
    """
    layout = Layout(width=max(40, min(200, width)), color=color, unicode=unicode)
    mark, style = _MARKS.get(diagnosis.outcome, _MARKS["blind"])
    title = (Piece("hangdoc", "bold"), Piece(f"{mark} {diagnosis.outcome}", style))
    if diagnosis.outcome == "slow" and any(activity.moving for activity in diagnosis.ranks):
        # The job works: one line is enough.
        stalled = [f"no progress for {name_duration(diagnosis.stalled_for)}"] if diagnosis.stalled_for > 0 else []
        layout.header(title, [*stalled, *_job(diagnosis)])
        layout.paragraph(diagnosis.verdict)
        return layout.finish()

    layout.header(title, [*_job(diagnosis, with_stall=True)])
    if diagnosis.verdict:
        layout.gap()
        layout.paragraph(diagnosis.verdict, "bold")
    if diagnosis.outcome != "healthy":
        layout.gap()
        layout.rows([*_behaviours(diagnosis, _Paths(diagnosis)), *_processes(diagnosis)])
        layout.gap()
        layout.rows(_reasons(diagnosis))
    return layout.finish()


def render_for(stream: TextIO, diagnosis: Diagnosis, environment: Mapping[str, str] | None = None) -> str:
    """The report as ``stream`` can show it: its width, encoding and colors, NO_COLOR and TERM respected."""
    width, color, unicode = _shown_by(stream, environment)
    return render(diagnosis, width=width, color=color, unicode=unicode)


def recall(diagnosis: Diagnosis, *, width: int = 100, color: bool = False, unicode: bool = True) -> str:
    """The answer alone, for somebody who has seen the report scroll by: outcome, verdict and fix."""
    layout = Layout(width=max(40, min(200, width)), color=color, unicode=unicode)
    mark, style = _MARKS.get(diagnosis.outcome, _MARKS["blind"])
    layout.header((Piece("hangdoc", "bold"), Piece(f"{mark} {diagnosis.outcome}", style)), _job(diagnosis))
    layout.gap()
    layout.paragraph(diagnosis.verdict, "bold")
    layout.gap()
    rows = [Row("fix", (Piece(diagnosis.fix),))] if diagnosis.fix else []
    layout.rows([*rows, *_sure(diagnosis)])
    return layout.finish()


def recall_for(stream: TextIO, diagnosis: Diagnosis, environment: Mapping[str, str] | None = None) -> str:
    """``recall`` as ``stream`` can show it."""
    width, color, unicode = _shown_by(stream, environment)
    return recall(diagnosis, width=width, color=color, unicode=unicode)


def heard_for(
    stream: TextIO, outcome: str, sentence: str, hosts: int, environment: Mapping[str, str] | None = None
) -> str:
    """The sentence of a diagnosis of ``hosts`` hosts that was made on another host, as ``stream`` can show it."""
    width, color, unicode = _shown_by(stream, environment)
    layout = Layout(width=max(40, min(200, width)), color=color, unicode=unicode)
    known = outcome if outcome in _MARKS else "blind"
    mark, style = _MARKS[known]
    layout.header((Piece("hangdoc", "bold"), Piece(f"{mark} {known}", style)), (f"{hosts} hosts",))
    layout.gap()
    layout.paragraph(sentence, "bold")
    return layout.finish()


def _shown_by(stream: TextIO, environment: Mapping[str, str] | None) -> tuple[int, bool, bool]:
    """What the stream can show: cells of a line, colors, Unicode."""
    environment = os.environ if environment is None else environment
    terminal, columns = _terminal(stream)
    if not columns:
        chosen = environment.get("COLUMNS", "")
        columns = int(chosen) if chosen.isascii() and chosen.isdigit() else 100
    dumb = environment.get("TERM", "") in ("dumb", "")
    encoding = (getattr(stream, "encoding", None) or "ascii").lower().replace("-", "").replace("_", "")
    return (
        min(columns, 140),
        terminal and not dumb and not environment.get("NO_COLOR"),
        encoding in ("utf8", "utf8sig"),
    )


def _terminal(stream: TextIO) -> tuple[bool, int]:
    try:
        if not stream.isatty():
            return False, 0
        return True, os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        return False, 0


def _job(diagnosis: Diagnosis, *, with_stall: bool = False) -> Iterator[str]:
    size = diagnosis.world_size or len(diagnosis.ranks)
    if size:
        yield f"{size} rank{'s' if size != 1 else ''}"
    if with_stall and diagnosis.outcome in ("hang", "slow", "blind") and diagnosis.stalled_for > 0:
        yield f"stalled {name_duration(diagnosis.stalled_for)}"
    if diagnosis.command:
        yield _short_command(diagnosis.command)


def _short_command(command: tuple[str, ...]) -> str:
    """Program and script without their options, which are long and may hold secrets."""
    program = PurePosixPath(command[0]).name or command[0]
    for index, argument in enumerate(command[1:], start=1):
        if argument.endswith(".py"):
            return f"{program} {PurePosixPath(argument).name}"
        if argument == "-m" and index + 1 < len(command):
            return f"{program} -m {command[index + 1]}"
    return program


class _Paths:
    """The names that the diagnosis' sentences call its files by."""

    def __init__(self, diagnosis: Diagnosis) -> None:
        self._names = dict(diagnosis.file_names)

    def short(self, file: str) -> str:
        """'train.py', or more of the path where the diagnosis does so."""
        return self._names.get(file) or (file if file.startswith("<") else PurePosixPath(file).name or file)


# Who does what.


def _behaviours(diagnosis: Diagnosis, paths: _Paths) -> Iterator[Row]:
    if diagnosis.divergence is None:
        yield from _activities(diagnosis, paths)
        return
    sides = sorted(
        diagnosis.divergence.sides,
        key=lambda side: (not set(side.ranks) & set(diagnosis.culprits), len(side.ranks), side.ranks),
    )
    for index, side in enumerate(sides[:MAX_ROWS]):
        last = index == len(sides) - 1 and len(side.ranks) > 1
        guilty = bool(set(side.ranks) & set(diagnosis.culprits))
        others = last and not guilty and _covers_everyone(sides, diagnosis)
        yield Row(
            "others" if others else _label(side.ranks),
            (_place(side.frame, paths), Piece(side.op, "bold"), *_group(side, diagnosis)),
            "bold red" if guilty else "",
            aligned=True,
        )
    if len(sides) > MAX_ROWS:
        yield Row("", (Piece(f"… and {len(sides) - MAX_ROWS} more behaviours"),))
    at_divergence = {(side.frame.file, side.frame.line) for side in sides if side.frame}
    elsewhere = [
        activity
        for activity in diagnosis.ranks
        if activity.where is None or (activity.where.file, activity.where.line) not in at_divergence
    ]
    if elsewhere:
        yield Row("", ())
        yield from _activities(diagnosis, paths, now="now: ")


def _covers_everyone(sides: Iterable[Side], diagnosis: Diagnosis) -> bool:
    everyone = {activity.rank for activity in diagnosis.ranks}
    return bool(everyone) and everyone <= {rank for side in sides for rank in side.ranks}


def _activities(diagnosis: Diagnosis, paths: _Paths, now: str = "") -> Iterator[Row]:
    """Ranks that do the same thing at the same place are one row; culprits first."""
    found = _folded(diagnosis)
    rest = len(found) == 2 and found[0].guilty and not found[1].guilty and len(found[1].ranks) > 1
    for index, each in enumerate(found[:MAX_ROWS]):
        label = now + ("others" if rest and index else _label(each.ranks))
        yield Row(label, tuple(_doing(each, paths)), "bold red" if each.guilty else "", aligned=True)
    if len(found) > MAX_ROWS:
        yield Row("", (Piece(f"… and {len(found) - MAX_ROWS} more behaviours"),))


def _doing(behavior: _Behavior, paths: _Paths) -> Iterator[Piece]:
    activity = behavior.first
    yield _place(activity.where, paths)
    yield Piece(activity.text, "bold")
    if activity.landmark and activity.landmark not in activity.text:
        yield Piece(f"({activity.landmark})")
    if behavior.waits_for and not behavior.guilty:
        yield Piece(f"waits for {name_ranks(behavior.waits_for)}")


class _Behavior(NamedTuple):
    """Ranks that do the same thing at the same place and wait for the same culprits. ``first``: of one of them."""

    guilty: bool
    first: Activity
    ranks: tuple[int, ...]
    waits_for: frozenset[int]


def _folded(diagnosis: Diagnosis) -> list[_Behavior]:
    """The behaviors of all ranks, those of culprits first."""
    waits: dict[int, set[int]] = {}
    for wait in diagnosis.waits:
        waits.setdefault(wait.waiter, set()).update(wait.on)
    folded: dict[tuple[bool, object, frozenset[int]], list[Activity]] = {}
    for activity in diagnosis.ranks:
        where = activity.where
        place = (where.file, where.line, where.function) if where else None
        doing = (place, activity.text, activity.landmark)
        # Members of one group wait for each other: what they have in common is which culprits they wait for.
        outside = frozenset(waits.get(activity.rank, ())) & frozenset(diagnosis.culprits)
        folded.setdefault((activity.rank in diagnosis.culprits, doing, outside), []).append(activity)
    found = [
        _Behavior(guilty, members[0], tuple(member.rank for member in members), waits_for)
        for (guilty, _, waits_for), members in folded.items()
    ]
    return sorted(found, key=lambda each: (not each.guilty, each.first.rank))


def _processes(diagnosis: Diagnosis) -> Iterator[Row]:
    """Where to look at the culprits: their process ids and hosts."""
    own, children = _pids_by_host(diagnosis)
    shown = []
    for host, pids in own.items():
        more = f" and {len(pids) - MAX_PIDS} more" if len(pids) > MAX_PIDS else ""
        named = f"pid{'s' if len(pids) > 1 else ''} {', '.join(pids[:MAX_PIDS])}{more}"
        shown.append("; ".join([named + (f" on {host}" if host else ""), *children.get(host, [])[:MAX_PIDS]]))
    if shown:
        yield Row("", ())
        yield Row("process", (Piece("; ".join(shown[:MAX_PIDS]) + ("; …" if len(shown) > MAX_PIDS else "")),))


def _pids_by_host(diagnosis: Diagnosis) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Host → the culprits' own processes ('4711 (rank 1)'), and host → their children ("its child process 4712")."""
    own: dict[str, list[str]] = {}
    children: dict[str, list[str]] = {}
    several = sum(item.role not in _CHILDREN for item in diagnosis.culprit_processes) > 1
    for item in diagnosis.culprit_processes:
        if item.pid is None:
            continue
        whose = f"rank {item.rank}" if item.rank is not None and several else ""
        if item.role in _CHILDREN:
            owner = f"{whose}'s" if whose else "its"
            children.setdefault(item.host, []).append(f"{owner} {_CHILDREN[item.role]} {item.pid}")
        else:
            own.setdefault(item.host, []).append(f"{item.pid} ({whose})" if whose else str(item.pid))
    return own, children


def _label(ranks: tuple[int, ...]) -> str:
    named = name_ranks(ranks)
    return named if "(" in named else f"rank{'s' if len(ranks) > 1 else ''} {fold_ranks(ranks)}"


def _members(ranks: tuple[int, ...]) -> str:
    """As they are named elsewhere, without the word: '0-3', '64 ranks (3,67,131 … 4035; list in the JSON)'."""
    named = name_ranks(ranks)
    return named if "(" in named else fold_ranks(ranks)


def _place(frame: Frame | None, paths: _Paths) -> Piece:
    if frame is None:
        return Piece("")
    function = frame.function if frame.function.startswith("<") else f"{frame.function}()"
    return Piece(f"{paths.short(frame.file)}:{frame.line} {function}", shorten=True)


def _group(side: Side, diagnosis: Diagnosis) -> Iterator[Piece]:
    size = diagnosis.world_size or len(diagnosis.ranks)
    members = f"[{_members(side.members)}]" if side.members and len(side.members) < size else ""
    number = f" #{side.sequence}" if side.sequence is not None else ""
    if text := f"{side.group}{members}{number}".strip():
        yield Piece(text)
    if side.note:
        yield Piece(f"({side.note})")


# Why, what to do, and how sure.


def _reasons(diagnosis: Diagnosis) -> Iterator[Row]:
    if diagnosis.why:
        yield Row("why", (Piece(diagnosis.why),))
    yield from _branch(diagnosis)
    if diagnosis.fix:
        yield Row("fix", (Piece(diagnosis.fix),))
    if diagnosis.repair and diagnosis.repair.text:
        yield Row("repair", (Piece(diagnosis.repair.text),))
    yield from _alternatives(diagnosis)
    yield from _evidence(diagnosis)
    yield from _unavailable(diagnosis.unavailable)
    yield from _sure(diagnosis)


def _alternatives(diagnosis: Diagnosis) -> Iterator[Row]:
    """'It could also be rank 0 or rank 2: the data fits all of them.'"""
    others = [ranks for ranks in diagnosis.alternatives if set(ranks) != set(diagnosis.culprits)]
    if not others:
        return
    *most, last = (name_ranks(ranks) for ranks in others[:4])
    sets = f"{', '.join(most)} or {last}" if most else last
    fits = "both" if len(others) == 1 else "all of them"
    yield Row("or else", (Piece(f"It could also be {sets}: the data fits {fits}."),))


def _evidence(diagnosis: Diagnosis) -> Iterator[Row]:
    """The evidence that decides; of a divergence, where each rank is now is in the rows above."""
    evidence = [
        item for item in diagnosis.evidence if item.decides and (item.kind != "stack" or diagnosis.divergence is None)
    ]
    for index, item in enumerate(evidence[:MAX_EVIDENCE]):
        whose = f", {_label(item.ranks)}" if item.ranks and "rank" not in item.text.lower() else ""
        yield Row("" if index else "seen", (Piece(f"{item.text}  ({item.kind}{whose})"),))
    if len(evidence) > MAX_EVIDENCE:
        rest = len(evidence) - MAX_EVIDENCE
        yield Row("", (Piece(f"… {rest} more in a JSON report (--report FILE.json)"),))


def _branch(diagnosis: Diagnosis) -> Iterator[Row]:
    """The condition and its values, where the sentences above did not name them."""
    branch = diagnosis.divergence.branch if diagnosis.divergence else None
    if branch is None:
        return
    label = "condition" if diagnosis.why else "why"
    place = f"{_Paths(diagnosis).short(branch.file)}:{branch.line}"
    if place not in diagnosis.why:
        yield Row(label, (Piece(f"`{branch.condition}` ({place})"),))
        label = ""
    values = _unnamed_values(branch, diagnosis.why, explained=place in diagnosis.why)
    if label == "condition" and all(len(each) == 1 for each in values.values()):
        label = "with"  # one side's value, or the same on both
    for name, each in values.items():
        yield Row(label, (Piece(f"{name} = {' | '.join(each)}"),))
        label = ""


def _unnamed_values(branch: Branch, why: str, *, explained: bool) -> dict[str, list[str]]:
    """Name → its values with their ranks, of the names that ``why`` gives no value of.

    Example: {'loss': ['0.5 (rank 1)', '0.7 (ranks 0, 2)']}. ``explained``: ``why`` says which way each side went.
    """
    found: dict[str, list[str]] = {}
    known: set[tuple[str, int]] = set()
    for item in sorted(branch.values, key=lambda item: item.seen == "inferred-from-path"):
        if known.issuperset((item.name, rank) for rank in item.ranks):
            continue  # inferred as well, and seen
        if item.seen == "inferred-from-path" and explained:
            continue
        known.update((item.name, rank) for rank in item.ranks)
        # A name that holds the rank itself says nothing.
        if f"{item.name} = " not in why and item.value != ",".join(map(str, item.ranks)):
            seen = {"now": "", "at-divergence": ", then"}.get(item.seen, ", inferred from the path taken")
            found.setdefault(item.name, []).append(f"{item.value} ({_label(item.ranks)}{seen})")
    return found


def _unavailable(items: tuple[Unavailable, ...]) -> Iterator[Row]:
    folded: dict[tuple[str, str, str], list[int]] = {}
    for item in items:
        ranks = folded.setdefault((item.what, item.why, item.remedy), [])
        if item.rank is not None:
            ranks.append(item.rank)
    for index, ((what, why, remedy), ranks) in enumerate(list(folded.items())[:MAX_UNAVAILABLE]):
        whose = f" of {name_ranks(ranks)}" if ranks else ""
        text = f"{what}{whose}: {why}" + (f" → {remedy}" if remedy else "")
        yield Row("" if index else "not seen", (Piece(text, "yellow"),))
    if len(folded) > MAX_UNAVAILABLE:
        yield Row("", (Piece(f"… and {len(folded) - MAX_UNAVAILABLE} more"),))


def _sure(diagnosis: Diagnosis) -> Iterator[Row]:
    if diagnosis.outcome not in ("hang", "slow", "crashed"):
        return
    sure = diagnosis.confidence + (f": {diagnosis.sure}" if diagnosis.sure else "")
    pieces = [Piece(sure)]
    if diagnosis.cause:
        pieces.append(Piece(f"{diagnosis.cause.code} {diagnosis.cause.name}"))
        pieces.append(Piece(f"hangdoc explain {diagnosis.cause.code}"))
    yield Row("sure?", tuple(pieces), separator="   ·   ")
