"""The operations of a job as a table for people: how many, how large, and who comes late to them."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Sequence
from itertools import compress

from hangdoc.model.lateness import Late, Lateness, Operation, PhaseTimes
from hangdoc.model.wording import fold_ranks, harmless, name_ranks

HEADINGS = ("group", "operation", "calls", "data", "took", "longest", "apart", "95 %", "most", "comes last")
PHASE_HEADINGS = ("step", "times", "median", "95 %", "most", "slowest")
_FOR_THE_WIDE = ("data", "longest", "95 %")
_WIDE = 80
_OFTEN = 0.5
"""Share of the calls from which on one rank is named as the one that comes last. Judgement."""
_WORTH = 1e-3
"""Seconds, median, below which nobody's being last is worth a line. Judgement."""
_FEW = 10
"""Calls, of which nothing follows. Judgement."""
_MOST_LABEL = 40
_TOOK = {
    "kernel": "took: how long a call ran on the GPU, its wait for the last rank included; median over calls and ranks.",
    "issued": "took: time from the issue of a call to its end as PyTorch's watchdog saw it, with the wait for the last "
    "rank and for the calls before it on the GPU; median over calls and ranks.",
}


def render(found: Lateness, *, width: int = 100, color: bool = False) -> str:
    """The table and what stands out in it, at most ``width`` cells wide."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    if not found.operations and not found.phases:
        return "No collectives are recorded here: run the job under `hangdoc watch`, or attach with --inject.\n"
    table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    headings, rows = table_of(found.operations)
    shown = [at for at, heading in enumerate(headings) if width >= _WIDE or heading not in _FOR_THE_WIDE]
    for heading in (headings[at] for at in shown):
        words = heading in ("group", "operation", "comes last")
        table.add_column(heading, justify="left" if words else "right", no_wrap=heading != "group", overflow="fold")
    for row in rows:
        table.add_row(*(Text(row[at]) for at in shown))
    console = Console(width=width, force_terminal=color, no_color=not color, highlight=False, markup=False, emoji=False)
    steps = Table(box=None, pad_edge=False, header_style="bold", expand=False)
    for heading in PHASE_HEADINGS:
        steps.add_column(heading, justify="left" if heading in ("step", "slowest") else "right", no_wrap=True)
    for phase in found.phases:
        steps.add_row(*map(Text, phase_cells(phase)))
    with console.capture() as capture:
        if found.operations:
            console.print(Text(summary(found)))
            console.print()
            console.print(table)
        if found.phases:
            console.print()
            console.print(steps)
        for line in remarks(found):
            console.print()
            console.print(Text(line))
    return "\n".join(line.rstrip() for line in capture.get().splitlines()) + "\n"


def summary(found: Lateness) -> str:
    """'ranks 0 to 3, 1,204 collectives from 10:02:03 to 10:14:55'."""
    count = sum(operation.calls for operation in found.operations)
    since, until = (datetime.datetime.fromtimestamp(at).strftime("%H:%M:%S") for at in (found.since, found.until))
    return f"{name_ranks(found.ranks)}: {count:,} collectives, issued from {since} to {until}"


def table_of(operations: Sequence[Operation]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(headings, rows) without the columns of which nothing is known."""
    rows = [_cells(operation) for operation in operations]
    kept = [any(column) for column in zip(*rows, strict=True)]
    return tuple(compress(HEADINGS, kept)), [tuple(compress(row, kept)) for row in rows]


def _cells(operation: Operation) -> tuple[str, ...]:
    """One row under ``HEADINGS``."""
    label = harmless(operation.group)[:_MOST_LABEL]
    who = f" [{fold_ranks(operation.members)}]" if operation.members else ""
    apart = [duration(value) for value in operation.apart] or ["", "", ""]
    took = [duration(value) for value in operation.took[::2]] or ["", ""]
    return (
        f"{label}{who}",
        harmless(operation.op),
        f"{operation.calls:,}",
        size(operation.bytes),
        *took,
        *apart,
        _last(operation),
    )


def phase_cells(phase: PhaseTimes) -> tuple[str, ...]:
    """One row under ``PHASE_HEADINGS``."""
    slowest = f"rank {phase.slowest[0]}, {duration(phase.slowest[1])}" if phase.slowest is not None else ""
    return phase.name, f"{phase.count:,}", *map(duration, phase.seconds), slowest


def remarks(found: Lateness) -> Iterator[str]:
    """What the columns mean, and who comes last by far."""
    for operation in found.operations:
        late = _often(operation)
        if late is not None:
            calls = f"{late.times:,} of {operation.compared:,} {harmless(operation.op)} calls"
            where = harmless(operation.group)[:_MOST_LABEL]
            wait = duration(late.seconds)
            yield f"Rank {late.rank} comes last to {calls} of {where}: the others wait {wait} for it (median)."
    if found.left_out:
        yield f"The times of {name_ranks(found.left_out)} are not known, so they are left out."
    for way in sorted({operation.took_by for operation in found.operations} - {""}, reverse=True):
        yield _TOOK[way]
    if any(operation.apart for operation in found.operations):
        yield (
            "apart: time between the first and the last rank to issue the same call, median of the calls; "
            "then the 95th percentile, and the most."
        )


def _often(operation: Operation) -> Late | None:
    """The rank that comes last in most calls; None of a few calls, or where ranks take turns."""
    late = operation.last[0] if operation.last else None
    share = max(_OFTEN, 1.5 / max(2, len(operation.members)))
    if late is None or operation.compared < _FEW or late.seconds < _WORTH:
        return None
    return late if late.times > share * operation.compared else None


def _last(operation: Operation) -> str:
    if not operation.last:
        return ""
    late = operation.last[0]
    return f"rank {late.rank}, {100 * late.times / operation.compared:.0f} %"


def duration(seconds: float) -> str:
    """'12 µs', '3.4 ms', '5.6 s'."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def size(count: int) -> str:
    """'512 B', '4.2 kB', '1.3 GB'."""
    value, unit = float(count), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}" if unit != "B" else f"{count} B"
