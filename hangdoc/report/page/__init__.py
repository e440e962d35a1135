"""The report as one HTML file: opens offline, works without JavaScript, in light and dark, on a phone and printed.

``render``      the page: what is shown, in which order
``wait_graph``  who waits for whom, as an SVG
``call_tree``   the stacks of all ranks as one tree
``page.html``   the template; everything that is put into it is escaped, and invisible characters are made visible
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hangdoc.model.diagnosis import CallTable, CodeExcerpt, Diagnosis
from hangdoc.model.lateness import lateness
from hangdoc.model.process import Stack
from hangdoc.model.snapshot import JobSnapshot, LogTail
from hangdoc.model.wording import fold_ranks, harmless, name_ranks
from hangdoc.report import statistics
from hangdoc.report.behavior_rows import FileNames, behavior_rows, label_ranks, process_rows
from hangdoc.report.layout import Row
from hangdoc.report.page.call_tree import Branch, call_tree
from hangdoc.report.page.wait_graph import Drawing, draw
from hangdoc.report.reason_rows import evidence_rows, reason_rows
from hangdoc.report.terminal import headline, jobs_in_words

_MOST_STACKS = 100
_MOST_SOCKETS = 200
_MOST_LOGS = 32
_MOST_OPERATIONS = 60
_MOST_PORTS = 16
"""Entries of the folded lists: a page of thousands of ranks stays below 5 MB. Chosen by hand."""
_COLORS = 7
"""Classes of operations that page.html has colors for."""
_SHORT = {
    "all_reduce": "AR",
    "all_gather": "AG",
    "reduce_scatter": "RS",
    "all_to_all": "A2A",
    "broadcast": "BC",
    "barrier": "BA",
    "reduce": "RE",
    "gather": "GA",
    "scatter": "SC",
    "send": "S",
    "recv": "R",
    "new_group": "NG",
}
"""Letters by which the picture of calls tells operations apart without color."""


class _Letters(NamedTuple):
    """How the operations of a page are drawn: letters and a class of color for each, in order of appearance."""

    short: dict[str, str]
    color: dict[str, int]


class _Stacks(NamedTuple):
    """Ranks whose thread of this name has the same stack."""

    ranks: tuple[int, ...]
    thread: str
    stack: Stack


class _Statistics(NamedTuple):
    """How many collectives there were, how long they took, and who came late to them."""

    summary: str
    rows: list[tuple[str, ...]]
    remarks: list[str]
    headings: tuple[str, ...]
    title: str


def render(diagnosis: Diagnosis, job: JobSnapshot | None = None) -> str:
    """The whole page. ``job`` adds what the diagnosis does not hold: all threads' stacks, sockets, logs."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("hangdoc.report.page", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: harmless(value) if type(value) is str else value,
    )
    environment.filters.update(ranks=name_ranks, fold=fold_ranks, label=label_ranks, pieces=_pieces, ticked=_ticked)
    names = FileNames(diagnosis)
    outcome, facts = headline(diagnosis)
    return environment.get_template("page.html").render(
        diagnosis=diagnosis,
        outcome=outcome,
        facts=facts,
        jobs=jobs_in_words(diagnosis),
        names=names,
        reasons=list(reason_rows(diagnosis)),
        behaviors=[row for row in behavior_rows(diagnosis, names) if row.pieces],
        processes=[row for row in process_rows(diagnosis) if row.pieces],
        evidence=list(evidence_rows(diagnosis)),
        letters=_letters(diagnosis.calls),
        indents=[_indentation(excerpt) for excerpt in diagnosis.code],
        graph=draw(diagnosis),
        tree=call_tree(diagnosis),
        stacks=_stacks(job) if job is not None else [],
        sockets=_sockets(job) if job is not None else [],
        logs=_logs(job, frozenset(diagnosis.culprits)) if job is not None else [],
        statistics=_statistics(job) if job is not None else None,
    )


def _statistics(job: JobSnapshot) -> _Statistics | None:
    found = lateness(job)
    if not any(operation.compared or operation.took for operation in found.operations):
        return None
    headings, rows = statistics.table_of(found.operations[:_MOST_OPERATIONS])
    took = any(operation.took for operation in found.operations)
    late = "Who comes late to the collectives"
    title = late if not took else "How long the collectives take, and who comes late to them"
    return _Statistics(statistics.summary(found), rows, list(statistics.remarks(found)), headings, title)


def framed(diagnosis: Diagnosis) -> str:
    """The page inside another one, without its styles leaving it or scripts getting in."""
    from html import escape

    return (
        f'<iframe srcdoc="{escape(render(diagnosis))}" sandbox="" title="hangdoc" loading="lazy"'
        ' style="box-sizing: border-box; width: 100%; height: 40em; border: 1px solid #8888"></iframe>'
    )


def _letters(tables: Iterable[CallTable]) -> _Letters:
    ops = dict.fromkeys(cell.op for table in tables for row in table.rows for cell in row.cells if cell is not None)
    short = {op: next((s for name, s in _SHORT.items() if op.startswith(name)), op[:2].upper()) for op in ops}
    return _Letters(short, {op: number % _COLORS for number, op in enumerate(ops)})


def _indentation(excerpt: CodeExcerpt) -> int:
    """The spaces that all its lines begin with."""
    return min((len(line.text) - len(line.text.lstrip()) for line in excerpt.lines if line.text.strip()), default=0)


def _pieces(row: Row) -> str:
    return row.separator.join(piece.text for piece in row.pieces if piece.text)


def _ticked(text: str) -> list[tuple[bool, str]]:
    """'set `x` first' → [(False, 'set '), (True, 'x'), (False, ' first')]: which parts are code."""
    return [(number % 2 == 1, part) for number, part in enumerate(text.split("`")) if part]


def _stacks(job: JobSnapshot) -> list[_Stacks]:
    """The stacks of all threads at the last look, equal ones once, those of main threads first."""
    found: dict[tuple[bool, str, Stack], list[int]] = {}
    for rank in job.ranks:
        last = rank.process.last if rank.process is not None else None
        for number, thread in enumerate(last.threads if last is not None else ()):
            if thread.frames:
                places = tuple(frame.__class__(frame.file, frame.line, frame.function) for frame in thread.frames)
                found.setdefault((number > 0, thread.name, places), []).append(rank.rank)
    ordered = sorted(found.items(), key=lambda item: (item[0][0], item[1]))
    return [_Stacks(tuple(ranks), name, stack) for (_, name, stack), ranks in ordered[:_MOST_STACKS]]


def _sockets(job: JobSnapshot) -> list[tuple[str, str]]:
    """(host, 'pid 7 listens on 0.0.0.0:29500') of listening ports and of connections with unanswered data."""
    found: list[tuple[str, str]] = []
    for host in job.hosts:
        ports: dict[tuple[int | None, str], list[int]] = {}
        for port in host.listening:
            ports.setdefault((port.pid, port.address), []).append(port.port)
        for (pid, address), numbers in ports.items():
            whose = f"pid {pid}" if pid is not None else "a process"
            shown = ", ".join(map(str, sorted(set(numbers))[:_MOST_PORTS]))
            more = f" and {len(set(numbers)) - _MOST_PORTS} more" if len(set(numbers)) > _MOST_PORTS else ""
            found.append((host.name, f"{whose} listens on {address}:{shown}{more}"))
        for each in host.connections:
            if each.send_queue or each.receive_queue or each.retransmits:
                line = f"{each.local_address}:{each.local_port} to {each.remote_address}:{each.remote_port}"
                queues = (
                    f"{each.receive_queue} B to read, {each.send_queue} B unanswered, sent {each.retransmits}× again"
                )
                found.append((host.name, f"pid {each.pid}: {line} {each.state}, {queues}"))
    return found[:_MOST_SOCKETS]


def _logs(job: JobSnapshot, culprits: frozenset[int]) -> list[tuple[str, LogTail]]:
    """Whose log, and its end; those of culprits first."""
    ranks = sorted(job.ranks, key=lambda rank: (rank.rank not in culprits, rank.rank))
    logs = [(f"rank {rank.rank}", rank.log) for rank in ranks if rank.log is not None and rank.log.lines]
    shared = [("all ranks", job.log)] if job.log is not None and job.log.lines else []
    return [*shared, *logs][:_MOST_LOGS]


__all__ = ["Branch", "Drawing", "framed", "render"]
