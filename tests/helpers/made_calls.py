"""A job of a few ranks, each with the calls that it has made, and one source file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from textwrap import dedent

from hangdoc.model.journal import Attribute, Call, Journal, ProcessGroup
from hangdoc.model.process import Frame, Local, Process, ProcessState, Thread
from hangdoc.model.snapshot import JobSnapshot, RankSnapshot, SourceText

FILE = "/home/me/train.py"
LIBRARY = "/venv/lib/python3.11/site-packages/transformers/trainer.py"
_C10D = "/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"

Made = tuple[str, Sequence[tuple[int, str] | tuple[int, str, str]]]
"""An operation, and where it was called: (line, function) or (line, function, file), innermost first."""


def made_calls(
    text: str,
    calls: Mapping[int, Sequence[Made]],
    values: Mapping[int, Mapping[str, Mapping[str, str]]] | None = None,
    *,
    attributes: Mapping[int, Sequence[Attribute]] | None = None,
    traces: Mapping[int, Sequence[Attribute]] | None = None,
    handled: Mapping[int, str] | None = None,
    in_thread: bool = False,
) -> JobSnapshot:
    """The job: each rank's last call is pending. ``values``: rank → function → name → value, of the stack now.

    ``text`` is the whole source file, an empty first line apart. ``handled``: rank → the exception that its probe saw
    handled. ``in_thread``: the calls were made in a thread beside the main one.
    """
    groups = (ProcessGroup("0", tuple(calls), backend="gloo"),)
    ranks = []
    for rank, made in calls.items():
        stacks = [
            (Frame(_C10D, 9, op), *(Frame(at[2] if len(at) > 2 else FILE, at[0], at[1]) for at in way))
            for op, way in made
        ]
        issued = tuple(
            Call("0", i + 1, i + 1, op, i, ((4,),), ("Float",), created_ns=5 + i, completed=i + 1 < len(made))
            for i, (op, _) in enumerate(made)
        )
        seen = (values or {}).get(rank, {})
        now = tuple(
            Frame(f.file, f.line, f.function, tuple(Local(*each) for each in seen.get(f.function, {}).items()))
            for f in stacks[-1]
        )
        threads: tuple[Thread, ...] = (Thread(rank + 1, "MainThread", "S", frames=now),)
        if in_thread:
            main = (Frame("/usr/lib/python3.11/threading.py", 1119, "join"), Frame(FILE, 1000, "<module>"))
            threads = (Thread(rank + 1, "MainThread", "S", frames=main), Thread(rank + 90, "worker", "S", frames=now))
        journal = Journal(
            "probe",
            groups,
            issued,
            stacks=tuple(stacks),
            handled=(handled or {}).get(rank, ""),
            attributes=tuple((attributes or {}).get(rank, ())),
            traces=tuple((traces or {}).get(rank, ())),
        )
        process = Process(rank + 1, 9, "rank", looks=(ProcessState(1.0, "S", threads=threads),))
        ranks.append(RankSnapshot(rank, "n", "probe", process=process, journal=journal))
    source = SourceText(FILE, "<module>", 1, dedent(text).lstrip("\n"))
    return JobSnapshot(
        taken=1.0, mode="watch", stalled_for=999.0, world_size=len(calls), ranks=tuple(ranks), sources=(source,)
    )
