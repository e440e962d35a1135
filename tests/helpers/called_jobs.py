"""Frozen jobs made of what each rank called, from which lines of one file: for unit tests of the conditions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from hangdoc.diagnosis import diagnose
from hangdoc.diagnosis.verdict import Diagnosis
from hangdoc.model.journal import Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Local, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/home/me/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/ignite/engine/engine.py"
C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"

Made = tuple[str, str]
"""An operation, and the way to it, innermost line first: ('barrier', '7 save, 20 main'); `lib:11 run` is in LIBRARY."""


def diagnosis(
    text: str,
    programs: Mapping[int, Sequence[Made]],
    shown: Mapping[int, Mapping[str, str]] | None = None,
    library: str = "",
) -> Diagnosis:
    """The diagnosis of a job with these calls of each rank, of which each rank waits in its last. ``shown``: rank →
    name → value, in each of the user's frames."""
    ranks = tuple(_rank(rank, made, (shown or {}).get(rank, {}), len(programs)) for rank, made in programs.items())
    texts = {FILE: text, LIBRARY: library}
    sources = tuple(_source(file, each) for file, each in texts.items() if each)
    return diagnose(JobSnapshot(1.0, "watch", ranks=ranks, sources=sources, stalled_for=99.0, world_size=len(programs)))


def _source(file: str, text: str) -> SourceText:
    return SourceText(file, "<module>", 1, textwrap.dedent(text).strip("\n"))


def _rank(rank: int, made: Sequence[Made], shown: Mapping[str, str], ranks: int) -> RankSnapshot:
    stacks = list(dict.fromkeys(_stack(*each) for each in made))
    calls = tuple(
        Call("0", n, n, op, stacks.index(_stack(op, way)), ((4,),), ("Float",), created_ns=n, completed=n < len(made))
        for n, (op, way) in enumerate(made, 1)
    )
    own = tuple(Local(name, value) for name, value in shown.items())
    now = tuple(Frame(f.file, f.line, f.function, own if f.file == FILE else ()) for f in _stack(*made[-1]))
    look = ProcessState(1.0, "S", threads=(Thread(rank + 1, "MainThread", "S", frames=now),))
    journal = Journal("probe", (ProcessGroup("0", tuple(range(ranks)), backend="gloo"),), calls, stacks=tuple(stacks))
    return RankSnapshot(rank, "n", "probe", process=Process(rank + 1, 9, "rank", looks=(look,)), journal=journal)


def _stack(operation: str, way: str) -> tuple[Frame, ...]:
    return Frame(C10D, 9, operation), *(_frame(each.strip()) for each in way.split(","))


def _frame(place: str) -> Frame:
    line, function = place.removeprefix("lib:").split()
    return Frame(LIBRARY if place.startswith("lib:") else FILE, int(line), function)
