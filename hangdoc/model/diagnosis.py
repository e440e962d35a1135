"""The verdict and everything that supports it. ``document.diagnosis_document`` turns it into the public JSON."""

from __future__ import annotations

from dataclasses import dataclass

from hangdoc.model.kinds import ActivityKind, Confidence, Outcome, WaitReason
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import Unavailable

DIAGNOSIS_SCHEMA = "hangdoc.diagnosis/1"


@dataclass(frozen=True, slots=True)
class Activity:
    """What one rank does now."""

    rank: int
    host: str
    pid: int | None
    kind: ActivityKind
    text: str
    """A few plain words: 'all_reduce  default_pg #1042', 'stopped (state T)'."""
    where: Frame | None = None
    """The user frame, innermost."""
    stack: Stack = ()
    moving: bool = False
    """CPU time, I/O bytes or stacks changed between the two looks."""
    op: str | None = None
    group: str | None = None
    members: tuple[int, ...] = ()
    sequence: int | None = None
    peer: int | None = None
    landmark: str | None = None
    """Plain words for a library frame ('DDP gradient bucket')."""
    reason: WaitReason | None = None
    """What else is known of a wait."""

    @property
    def operation(self) -> str:
        """What the ranks of one call have in common: the operation where it is known, else the library's words."""
        return self.op or self.text


@dataclass(frozen=True, slots=True)
class Wait:
    """``waiter`` cannot go on until every rank of ``on`` does something."""

    waiter: int
    on: tuple[int, ...]
    why: str
    source: str
    """'journal', 'stack', 'process', 'socket', 'store'."""


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two or more behaviors at the divergence."""

    ranks: tuple[int, ...]
    group: str
    members: tuple[int, ...]
    sequence: int | None
    op: str
    frame: Frame | None
    stack: Stack = ()
    thread: str = "MainThread"
    note: str = ""


@dataclass(frozen=True, slots=True)
class BranchValue:
    """``name`` had ``value`` on ``ranks``; ``seen``: 'now', 'at-divergence' or 'inferred-from-path'."""

    name: str
    value: str
    ranks: tuple[int, ...]
    seen: str


@dataclass(frozen=True, slots=True)
class BranchAnswer:
    """A test by which a function answers that the condition asks; one under which its ``subject`` was set; one that has
    ``left`` something behind on one side alone; or, with no ``function``, one that may have decided in its place.
    ``condition`` is its source, one line of it."""

    function: str
    file: str
    line: int
    condition: str
    subject: str = ""
    """What it decides, where that is not what the function answers: a name that is set in there."""
    left: str = ""
    """What it has left something behind in."""
    ran: bool = False
    """Only the interpreters' counters show that: ``left`` is a line that one side alone has run."""


@dataclass(frozen=True, slots=True)
class BranchMoment:
    """When the condition came out as nowhere before, as the ranks' recorders have counted it.

    Example: true on rank 1 the 412th time, false there the 411 times before, and never true on another rank →
    (1,), 'True', 411, alone.
    """

    ranks: tuple[int, ...]
    value: str
    """'True', 'False'; 'ended' of a loop over items."""
    before: int
    """How often it had come out the other way on each of them; of a loop, its rounds."""
    alone: bool
    """It never came out so on any other rank of the job."""


@dataclass(frozen=True, slots=True)
class Branch:
    """The condition on which the two sides diverged."""

    file: str
    line: int
    condition: str
    kind: str
    """'if', 'loop', 'try', 'return', 'match', 'expression'."""
    values: tuple[BranchValue, ...] = ()
    answers: tuple[BranchAnswer, ...] = ()
    moment: BranchMoment | None = None
    """None where it was not recorded, or what was does not prove it."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Where the ranks diverged: at least two sides; none where a condition is all that tells them apart."""

    sides: tuple[Side, ...]
    branch: Branch | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """One step of the repair. ``edit``: 'delete', 'insert', 'replace', 'move' or 'revive'."""

    rank: int
    edit: str
    call: str
    frame: Frame | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """The smallest change after which every issued call can match."""

    edits: tuple[Edit, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """One fact and where it came from."""

    kind: str
    """'journal', 'stack', 'process', 'socket', 'port', 'store', 'log', 'locals', 'source', 'nccl'."""
    ranks: tuple[int, ...]
    text: str
    decides: bool = True
    """Would it change the reader's mind? A terminal leaves out what would not; the JSON report has everything."""


@dataclass(frozen=True, slots=True)
class Cause:
    """An entry of the catalogue."""

    code: str
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class CulpritProcess:
    """A process that causes the hang. ``role``: rank, launcher, dataloader-worker, child, absent-node, foreign-job."""

    rank: int | None
    pid: int | None
    host: str
    role: str
    job: str = ""


@dataclass(frozen=True, slots=True)
class CodeLine:
    """A line of the user's source, as a report shows it."""

    number: int
    text: str
    """With its indentation, without the end of line."""
    notes: tuple[str, ...] = ()
    """Who does what there: 'True on rank 0, False on rank 1', 'rank 0: all_reduce'."""
    mark: tuple[int, int] | None = None
    """First column and the one behind the last of the condition that decides; None for lines without one."""
    guilty: bool = False
    """A culprit is here."""


@dataclass(frozen=True, slots=True)
class CodeExcerpt:
    """The telling lines of one function (or module), in order; where two do not follow each other, some are left
    out."""

    file: str
    function: str
    lines: tuple[CodeLine, ...]


@dataclass(frozen=True, slots=True)
class CallCell:
    """One call of a group, or a run of ranks' equal calls, as a report draws it."""

    op: str
    place: str = ""
    """'train.py:61'; '' where its line is not known."""
    pending: bool = False


@dataclass(frozen=True, slots=True)
class CallRow:
    """Ranks with the same calls. ``cells`` are beside ``CallTable.numbers``; None: not issued, or forgotten."""

    ranks: tuple[int, ...]
    cells: tuple[CallCell | None, ...]
    guilty: bool = False
    seen: bool = True
    """Their calls were seen."""


@dataclass(frozen=True, slots=True)
class CallTable:
    """The last calls of a group, one row for each behavior."""

    group: str
    members: tuple[int, ...]
    numbers: tuple[int, ...]
    """Sequence numbers of the calls, in order."""
    rows: tuple[CallRow, ...]
    diverged: int | None = None
    """The number at which the ranks diverged, if it was in this group."""


@dataclass(frozen=True, slots=True)
class BranchCell:
    """How a test came out on one rank. ``test`` is its source, '' where that was not captured."""

    place: str
    """'train.py:61'."""
    test: str
    value: str
    """'True', 'ended'."""


@dataclass(frozen=True, slots=True)
class BranchRow:
    """Tests of two ranks that belong together; None: that rank has none there. ``decides``: the condition of the
    divergence is tested there."""

    cells: tuple[BranchCell | None, BranchCell | None]
    decides: bool = False

    @property
    def differs(self) -> bool:
        """True if the ranks did not come by here alike."""
        return self.cells[0] != self.cells[1]


@dataclass(frozen=True, slots=True)
class BranchTable:
    """How the tests came out on a culprit and on another rank after ``call``, the last one that both made alike; ''
    where they had made none."""

    ranks: tuple[int, int]
    call: str
    rows: tuple[BranchRow, ...]
    earlier: int = 0
    """Rows that are left out before these."""
    later: int = 0
    """Rows that are left out after these."""

    @property
    def first(self) -> int:
        """The place of the first row in which the ranks differ."""
        return next((place for place, row in enumerate(self.rows) if row.differs), -1)


@dataclass(frozen=True, slots=True, repr=False)
class Diagnosis:
    """Who, where, why, and how sure.

    ``str(diagnosis)`` is the report, a notebook shows the page, and ``to_json`` gives the public document.
    """

    outcome: Outcome
    verdict: str
    confidence: Confidence = Confidence.POSSIBLE
    cause: Cause | None = None
    culprits: tuple[int, ...] = ()
    alternatives: tuple[tuple[int, ...], ...] = ()
    culprit_processes: tuple[CulpritProcess, ...] = ()
    victims: tuple[int, ...] = ()
    why: str = ""
    fix: str = ""
    sure: str = ""
    """Why this confidence: 'call sequences of all 4 ranks seen'."""
    repair: Repair | None = None
    divergence: Divergence | None = None
    code: tuple[CodeExcerpt, ...] = ()
    """The lines that prove the verdict, from the snapshot's own sources; () where those were not captured."""
    calls: tuple[CallTable, ...] = ()
    """The last calls of the groups in which ranks wait, that of the divergence first."""
    branches: BranchTable | None = None
    """Where the ranks' recorders show a difference after the last call that they made alike."""
    ranks: tuple[Activity, ...] = ()
    waits: tuple[Wait, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    unavailable: tuple[Unavailable, ...] = ()
    command: tuple[str, ...] = ()
    stalled_for: float = 0.0
    world_size: int | None = None
    file_names: tuple[tuple[str, str], ...] = ()
    """Path and name of files that the sentences call by more than the last part: ('/a/b/train.py', 'b/train.py')."""
    unseen: tuple[int, ...] = ()
    """Ranks of the job that were not seen and that nothing proves to be gone."""
    job: str = ""
    """Which of several jobs in one folder of dumps: where its dumps lie."""
    others: tuple[Diagnosis, ...] = ()
    """Those of the other jobs there, the worst first. None of them is worse than this one."""

    def __repr__(self) -> str:
        """One line, such as a failed assertion shows: '<Diagnosis hang HD101: Rank 1 alone calls …>'."""
        code = f" {self.cause.code}" if self.cause is not None else ""
        return f"<Diagnosis {self.outcome.value}{code}: {self.verdict}>"

    def __str__(self) -> str:
        """The report in 100 columns, without colors."""
        from hangdoc.report import terminal

        return terminal.render(self)

    def to_json(self) -> str:
        """The public document ``hangdoc.diagnosis/1``, whose schema `hangdoc schema` prints."""
        from hangdoc.report import document

        return document.render(self)

    def _repr_html_(self) -> str:
        """The page, in a frame of its own: a notebook shows it below the cell."""
        from hangdoc.report import page

        return page.framed(self)
