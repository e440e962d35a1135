"""Snapshots on their way between hosts. Sources and values of variables stay where they are, unless asked for."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from collections.abc import Collection, Sequence
from typing import Any, TypeVar

from hangdoc.capture.find.joined import ELSEWHERE
from hangdoc.capture.read import sources
from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.source_files import Witness
from hangdoc.capture.read.whole_modules import Keeping, named
from hangdoc.capture.safe.open_files import user_of
from hangdoc.model.codec import Allowance, snapshot_from_bytes
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.journal import Journal
from hangdoc.model.marks import Marks
from hangdoc.model.masked import masked
from hangdoc.model.merge import merge
from hangdoc.model.process import Frame
from hangdoc.model.same_job import HOSTS, Part, fitting
from hangdoc.model.snapshot import MODULES, JobSnapshot, Module, RankSnapshot, SourceText, Unavailable

_T = TypeVar("_T")
_DIGEST = "sha256:"
_SEND = "start every watch with --meet-send-sources"
_COPY_SECONDS = 1.5
"""For reading our own copies of what other hosts have run. Judgement."""


def withheld(snapshot: JobSnapshot, *, send_sources: bool) -> JobSnapshot:
    """What other hosts may see of the snapshot. Of a source text only its digest goes along, so that a reader of the
    same text knows that it is the same."""
    if send_sources:
        return snapshot
    digests = tuple(dataclasses.replace(text, text=_digest(text.text)) for text in snapshot.sources)
    hidden = _Withheld()
    return dataclasses.replace(
        snapshot,
        sources=digests,
        modules=tuple(module.bare() for module in snapshot.modules),
        ranks=hidden.of(snapshot.ranks),
        hosts=hidden.of(snapshot.hosts),
        launcher=hidden.of(snapshot.launcher),
    )


def packed(snapshot: JobSnapshot, *, send_sources: bool) -> bytes:
    """The snapshot for other hosts."""
    return snapshot_to_bytes(withheld(snapshot, send_sources=send_sources))


def unpacked(data: bytes, host: str, ranks: Collection[int], allowance: Allowance | None = None) -> JobSnapshot:
    """The snapshot of ``host``, which may only speak for ``ranks``. Raises ``BadSnapshot`` for anything else."""
    found = masked(snapshot_from_bytes(data, origin=f"the snapshot of {host}", allowance=allowance))
    kept = (rank for rank in found.ranks if rank.rank in ranks or (_unseen(rank) and rank.journal is None))
    return dataclasses.replace(found, ranks=tuple(kept))


def joined(own: Part, others: Sequence[Part], *, read_sources: bool, clocks: bool = True) -> JobSnapshot:
    """``own`` and the other hosts' snapshots as one, with sources that this host has of the same files.

    Hosts that show another job are left out and named; clocks are put right, unless they have been already.
    """
    kept, foreign, noted = fitting([own, *others], clocks=clocks)
    own, others = kept[0], kept[1:]
    copies = _Copies(own.snapshot, [other.snapshot for other in others], read_sources)
    texts = copies.texts()
    modules, notes_on_modules = copies.modules()
    notes = [
        *noted,
        *copies.missing,
        *notes_on_modules,
        *(Unavailable(HOSTS, f"{odd.part.origin} shows another job: {odd.why}") for odd in foreign),
    ]
    whole = merge([own.snapshot, *(_with_texts(other.snapshot, texts, modules, notes) for other in others)])
    return dataclasses.replace(
        whole,
        command=own.snapshot.command,
        run_id=own.snapshot.run_id,
        launcher=own.snapshot.launcher,
        unavailable=tuple(dict.fromkeys([*whole.unavailable, *notes])),
    )


def placed_elsewhere(snapshot: JobSnapshot, hosts: dict[int, str]) -> JobSnapshot:
    """``snapshot``; a rank without a process gets the host (``hosts``, by rank) where its watch last saw it."""

    def placed(rank: RankSnapshot) -> RankSnapshot:
        if rank.rank not in hosts or not _unseen(rank):
            return rank
        return dataclasses.replace(rank, identity=ELSEWHERE, host=hosts[rank.rank])

    # A launcher's environment promises the ranks of its own host, and no others.
    missing = hosts.keys() - {rank.rank for rank in snapshot.ranks}
    added = [RankSnapshot(rank, hosts[rank], ELSEWHERE, snapshot.world_size) for rank in missing]
    ranks = sorted([*map(placed, snapshot.ranks), *added], key=lambda rank: rank.rank)
    return dataclasses.replace(snapshot, ranks=tuple(ranks))


def _unseen(rank: RankSnapshot) -> bool:
    return rank.process is None and rank.exit is None


def _digest(text: str) -> str:
    return _DIGEST + hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


class _Copies:
    """What this host has of what the other hosts have run, in its own copies of their files."""

    def __init__(self, own: JobSnapshot, others: Sequence[JobSnapshot], read_sources: bool) -> None:
        self._own, self._others = own, others
        witnesses = [
            Witness(rank.process.pid, rank.process.started, user_of(rank.process.pid))
            for rank in own.ranks
            if rank.process is not None and rank.process.started and rank.process.looks
        ]
        self._reads = read_sources and bool(witnesses)
        # The marks of our own modules again, so that theirs can be compared with ours.
        marks = Marks(next((module.marks for module in own.modules), ""))
        self._files = ParsedFiles(witnesses, marks=marks)
        self.missing: tuple[Unavailable, ...] = ()

    def texts(self) -> dict[tuple[str, str, int], SourceText]:
        """The functions on the other hosts' stacks, and what else they have kept a piece of."""
        if not self._reads:
            return {}
        # Ranks that sent digests share their stacks.
        ranks = (rank for other in self._others for rank in other.ranks)
        stacks = {id(stack): stack for rank in ranks for stack in sources.stacks_of(rank)}
        roots = tuple(sorted({root for each in (self._own, *self._others) for root in each.library_roots}))
        found = sources.Sources(stacks.values(), self._files, roots)
        on_stacks, self.missing = found.of_users()
        known = {_place(text): text for text in (*on_stacks, *found.of_libraries(), *self._own.sources)}
        theirs = [text for other in self._others for text in other.sources if _place(text) not in known]
        return {_place(text): text for text in (*found.like(theirs, time.monotonic() + _COPY_SECONDS), *known.values())}

    def modules(self) -> tuple[dict[str, Module], tuple[Unavailable, ...]]:
        """(file → our copy of a module that another host has, with marks like those of all our modules; why others are
        missing)."""
        keeping = Keeping(self._files, time.monotonic() + _COPY_SECONDS, self._own.modules)
        theirs = {module.file: module for other in self._others for module in other.modules}
        absent = [file for file, module in theirs.items() if self._reads and not keeping.take(file) and not module.text]
        why = f"{named(absent)}: not on the host that has the report" if absent else ""
        return keeping.modules, (Unavailable(MODULES, why, _SEND),) if absent else ()


def _place(text: SourceText) -> tuple[str, str, int]:
    return text.file, text.function, text.first_line


def _with_texts(
    snapshot: JobSnapshot,
    texts: dict[tuple[str, str, int], SourceText],
    modules: dict[str, Module],
    notes: list[Unavailable],
) -> JobSnapshot:
    """``snapshot`` with our own text for each digest. One that differs from ours stays a digest: merging sees that."""
    found = []
    for text in snapshot.sources:
        ours = texts.get(_place(text))
        if not text.text.startswith(_DIGEST):
            found.append(text)
        elif ours is None:
            notes.append(Unavailable("source", f"{text.file}: not on the host that has the report", _SEND))
        elif _digest(ours.text) == text.text:
            found.append(ours)
        else:
            found += [text, ours]
    whole: list[Module] = []
    for module in snapshot.modules:
        mine = modules.get(module.file)
        if mine is None:
            whole += [module] if module.text else []
        else:
            whole += [mine] if mine.digest == module.digest else [module, mine]
    return dataclasses.replace(snapshot, sources=tuple(found), modules=tuple(whole))


class _Withheld:
    """Takes the values of variables out of what frames are in."""

    def __init__(self) -> None:
        self._frames: dict[int, Frame] = {}
        """By identity: journals repeat the same ones."""

    def of(self, value: _T) -> _T:
        """``value`` without them."""
        found: _T = self._any(value)
        return found

    def _any(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(self._any, value))
        if isinstance(value, Frame):
            known = self._frames.get(id(value))
            if known is None:
                known = self._frames[id(value)] = dataclasses.replace(value, locals=()) if value.locals else value
            return known
        if isinstance(value, Journal):
            stacks = tuple(self._any(stack) for stack in value.stacks)
            return dataclasses.replace(value, stacks=stacks, attributes=())
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            names = (field.name for field in dataclasses.fields(value))
            changed = {name: self._any(part) for name in names if _holds_frames(part := getattr(value, name))}
            return dataclasses.replace(value, **changed) if changed else value
        return value


def _holds_frames(value: object) -> bool:
    return dataclasses.is_dataclass(value) or (isinstance(value, tuple) and bool(value))
