"""The public document ``hangdoc.diagnosis/1``: what is in it, and how it is made of a diagnosis.

The types are the one definition of it: mypy holds ``diagnosis_document`` to them, and ``hangdoc schema`` prints them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Annotated, Any

from hangdoc.model.diagnosis import DIAGNOSIS_SCHEMA, Activity, Branch, Diagnosis, Divergence, Repair, Side
from hangdoc.model.kinds import ActivityKind, Confidence, Outcome, Word
from hangdoc.model.process import Frame

if sys.version_info >= (3, 12):
    from typing import NotRequired, TypedDict
else:  # pydantic reads no other there
    from typing_extensions import NotRequired, TypedDict


class Said:
    """What a field means, and the words that it may hold, where there are only some."""

    def __init__(self, meaning: str, words: type[Word] | tuple[str, ...] = ()) -> None:
        self._meaning = meaning
        self._words = words if isinstance(words, tuple) else tuple(str(word) for word in words)

    def __get_pydantic_json_schema__(self, core: Any, schema_of: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
        """Called by pydantic."""
        words = {"enum": [*self._words]} if self._words else {}
        return {**schema_of(core), "description": self._meaning, **words}


_Ranks = list[int]


class FrameDocument(TypedDict):
    """A line of code on a stack."""

    file: Annotated[str, Said("The path as the job saw it.")]
    line: int
    function: str


class CauseDocument(TypedDict):
    """An entry of the catalogue; `hangdoc explain CODE` tells more."""

    code: Annotated[str, Said("HD102. Codes never change their meaning.")]
    name: str
    title: str


class ProcessDocument(TypedDict):
    """A process that causes the hang."""

    rank: int | None
    pid: int | None
    host: str
    role: Annotated[
        str, Said("What it is.", ("rank", "launcher", "dataloader-worker", "child", "absent-node", "foreign-job"))
    ]
    job: Annotated[str, Said("The run that it belongs to; may be empty.")]


class EditDocument(TypedDict):
    """One step of the repair."""

    rank: int
    edit: Annotated[str, Said("What to do.", ("delete", "insert", "replace", "move", "revive"))]
    call: str
    frame: FrameDocument | None


class RepairDocument(TypedDict):
    """The smallest change after which every call that was issued can match."""

    edits: list[EditDocument]
    text: str


class GroupDocument(TypedDict):
    """A process group."""

    name: str
    members: Annotated[_Ranks, Said("Global ranks.")]


class SideDocument(TypedDict):
    """One of the two or more behaviors at the divergence."""

    ranks: _Ranks
    group: GroupDocument
    sequence: Annotated[int | None, Said("The number of the call in its group.")]
    thread: str
    op: str
    frame: Annotated[FrameDocument | None, Said("The innermost line of the user's.")]
    stack: Annotated[list[FrameDocument], Said("The innermost first.")]
    note: str


class ValueDocument(TypedDict):
    """What a name in the condition was."""

    name: str
    value: str
    ranks: _Ranks
    seen: Annotated[str, Said("When, or how it is known.", ("now", "at-divergence", "inferred-from-path"))]


class AnswerDocument(TypedDict):
    """A test that says why the condition went as it did: what the function that it asks answers by, or what set the
    value that it tests. With no function, a test that may have decided in its place."""

    function: str
    file: str
    line: int
    condition: str
    subject: Annotated[str, Said("What it decides, where that is not what the function answers: 'self.stale', or ''.")]
    left: Annotated[str, Said("What one side alone has under it, and still shows: 'Budget.exceeded', or ''.")]


class MomentDocument(TypedDict):
    """When the condition came out as nowhere before, where the ranks recorded it."""

    ranks: _Ranks
    value: Annotated[str, Said("How it came out, this once.", ("True", "False", "ended"))]
    before: Annotated[
        int, Said("How often it had come out the other way on each of these ranks; of a loop over items, its rounds.")
    ]
    alone: Annotated[bool, Said("It never came out so on any other rank.")]


class BranchDocument(TypedDict):
    """The condition on which the sides diverged."""

    file: str
    line: int
    condition: str
    kind: str
    values: list[ValueDocument]
    answers: Annotated[
        list[AnswerDocument],
        Said(
            "Why the condition went as it did: by what the functions answer that it asks, what set the values that it "
            "tests, under what one side alone has left something behind; none for most."
        ),
    ]
    moment: NotRequired[MomentDocument]


class DivergenceDocument(TypedDict):
    """Where the ranks diverged."""

    sides: list[SideDocument]
    branch: BranchDocument | None


class RankDocument(TypedDict):
    """What one rank does."""

    rank: int
    host: str
    pid: int | None
    activity: Annotated[str, Said("One word.", ActivityKind)]
    text: Annotated[str, Said("The same in a few plain words.")]
    where: Annotated[FrameDocument | None, Said("The innermost line of the user's.")]
    waits_for: _Ranks


class EvidenceDocument(TypedDict):
    """One fact and where it came from."""

    kind: Annotated[
        str,
        Said(
            "The source.",
            ("journal", "stack", "process", "socket", "port", "store", "log", "locals", "source", "nccl"),
        ),
    ]
    ranks: _Ranks
    text: str


class UnavailableDocument(TypedDict):
    """A source that could not be read."""

    rank: int | None
    what: str
    why: str
    remedy: str


class DiagnosisDocument(TypedDict):
    """A diagnosis of a distributed PyTorch job, as `hangdoc diagnose --json` prints it."""

    schema: Annotated[str, Said("The version of this document.", (DIAGNOSIS_SCHEMA,))]
    outcome: Annotated[str, Said("How the job is.", Outcome)]
    verdict: Annotated[str, Said("Sentences that name rank, line and cause.")]
    cause: Annotated[CauseDocument | None, Said("Null if nothing in the catalogue fits, or nothing hangs.")]
    culprits: Annotated[_Ranks, Said("Global ranks whose behavior must change, or that are gone; sorted.")]
    alternatives: Annotated[list[_Ranks], Said("Other sets of ranks that explain it as well.")]
    culprit_processes: list[ProcessDocument]
    victims: Annotated[_Ranks, Said("Ranks that wait, and are not to blame.")]
    confidence: Annotated[str, Said("How sure the whole verdict is.", Confidence)]
    sure: Annotated[str, Said("Why that sure.")]
    why: str
    fix: str
    repair: RepairDocument | None
    divergence: DivergenceDocument | None
    ranks: list[RankDocument]
    evidence: list[EvidenceDocument]
    unavailable: list[UnavailableDocument]
    command: Annotated[list[str], Said("The job's command line, secrets masked; may be empty.")]
    stalled_for: Annotated[float | None, Said("Seconds without progress; 0 where nobody timed it.")]
    world_size: int | None
    job: NotRequired[Annotated[str, Said("Where its dumps lie, in a folder with the dumps of several jobs.")]]
    others: NotRequired[
        Annotated[
            list[dict[str, Any]],
            Said("The documents of the other jobs in that folder, the worst first; none is worse than this one."),
        ]
    ]


def schema() -> dict[str, Any]:
    """The document as a JSON schema (draft 2020-12). More fields than it names are allowed: versions may add some."""
    from pydantic import TypeAdapter

    found = TypeAdapter(DiagnosisDocument).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": f"urn:{DIAGNOSIS_SCHEMA}", **found}


def diagnosis_document(diagnosis: Diagnosis) -> DiagnosisDocument:
    """The public document ``hangdoc.diagnosis/1``: plain dicts, lists, numbers, texts and None."""
    waits: dict[int, set[int]] = {}
    for wait in diagnosis.waits:
        waits.setdefault(wait.waiter, set()).update(wait.on)
    cause = diagnosis.cause
    document: DiagnosisDocument = {
        "schema": DIAGNOSIS_SCHEMA,
        "outcome": str(diagnosis.outcome),
        "verdict": diagnosis.verdict,
        "cause": {"code": cause.code, "name": cause.name, "title": cause.title} if cause else None,
        "culprits": sorted(diagnosis.culprits),
        "alternatives": [sorted(ranks) for ranks in diagnosis.alternatives],
        "culprit_processes": [
            {"rank": item.rank, "pid": item.pid, "host": item.host, "role": item.role, "job": item.job}
            for item in diagnosis.culprit_processes
        ],
        "victims": sorted(diagnosis.victims),
        "confidence": str(diagnosis.confidence),
        "sure": diagnosis.sure,
        "why": diagnosis.why,
        "fix": diagnosis.fix,
        "repair": _repair(diagnosis.repair),
        "divergence": _divergence(diagnosis.divergence),
        "ranks": [_activity(activity, waits.get(activity.rank, set())) for activity in diagnosis.ranks],
        "evidence": [
            {"kind": item.kind, "ranks": sorted(item.ranks), "text": item.text} for item in diagnosis.evidence
        ],
        "unavailable": [
            {"rank": item.rank, "what": item.what, "why": item.why, "remedy": item.remedy}
            for item in diagnosis.unavailable
        ],
        "command": list(diagnosis.command),
        "stalled_for": diagnosis.stalled_for if math.isfinite(diagnosis.stalled_for) else None,
        "world_size": diagnosis.world_size,
    }
    if diagnosis.job:
        document["job"] = diagnosis.job
    if diagnosis.others:
        document["others"] = [{**diagnosis_document(each)} for each in diagnosis.others]
    return document


def _activity(activity: Activity, waits_for: set[int]) -> RankDocument:
    return {
        "rank": activity.rank,
        "host": activity.host,
        "pid": activity.pid,
        "activity": str(activity.kind),
        "text": activity.text,
        "where": _frame(activity.where),
        "waits_for": sorted(waits_for),
    }


def _frame(frame: Frame | None) -> FrameDocument | None:
    return _of_frame(frame) if frame else None


def _of_frame(frame: Frame) -> FrameDocument:
    return {"file": frame.file, "line": frame.line, "function": frame.function}


def _repair(repair: Repair | None) -> RepairDocument | None:
    if repair is None:
        return None
    return {
        "edits": [
            {"rank": edit.rank, "edit": edit.edit, "call": edit.call, "frame": _frame(edit.frame)}
            for edit in repair.edits
        ],
        "text": repair.text,
    }


def _divergence(divergence: Divergence | None) -> DivergenceDocument | None:
    if divergence is None:
        return None
    return {"sides": [_side(side) for side in divergence.sides], "branch": _branch(divergence.branch)}


def _side(side: Side) -> SideDocument:
    return {
        "ranks": sorted(side.ranks),
        "group": {"name": side.group, "members": list(side.members)},
        "sequence": side.sequence,
        "thread": side.thread,
        "op": side.op,
        "frame": _frame(side.frame),
        "stack": [_of_frame(frame) for frame in side.stack],
        "note": side.note,
    }


def _branch(branch: Branch | None) -> BranchDocument | None:
    if branch is None:
        return None
    document: BranchDocument = {
        "file": branch.file,
        "line": branch.line,
        "condition": branch.condition,
        "kind": branch.kind,
        "values": [
            {"name": item.name, "value": item.value, "ranks": sorted(item.ranks), "seen": item.seen}
            for item in branch.values
        ],
        "answers": [
            {
                "function": each.function,
                "file": each.file,
                "line": each.line,
                "condition": each.condition,
                "subject": each.subject,
                "left": each.left,
            }
            for each in branch.answers
        ],
    }
    if branch.moment is not None:
        at = branch.moment
        document["moment"] = {"ranks": sorted(at.ranks), "value": at.value, "before": at.before, "alone": at.alone}
    return document
