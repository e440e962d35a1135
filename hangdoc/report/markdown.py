"""The diagnosis as Markdown: for a ticket, a pull request, or the summary of a CI run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hangdoc.model.diagnosis import Diagnosis
from hangdoc.model.wording import harmless
from hangdoc.report.behavior_rows import FileNames, behavior_rows, process_rows
from hangdoc.report.code import lay_out as lay_out_code
from hangdoc.report.layout import Layout, Row
from hangdoc.report.reason_rows import evidence_rows, reason_rows
from hangdoc.report.terminal import headline, jobs_in_words

_CODE_SPAN = re.compile(r"(`[^`]*`)")
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$&])")
_AUTOLINK = re.compile(
    r"(?i)(?<![a-z0-9])(?:(?P<scheme>https?|ftp|mailto|xmpp)(?P<colon>:)|(?P<www>www)(?P<dot>\\?\.))"
)
"""What GitHub makes a link of without being asked (GitHub Flavored Markdown, 6.9)."""
_WIDTH = 120
"""Columns of the code; a browser scrolls what is wider."""


def render(diagnosis: Diagnosis) -> str:
    """The report in GitHub's Markdown; of several jobs in a folder of dumps one after the other. Text that comes from
    the job is escaped; the code is in a fenced block."""
    said = jobs_in_words(diagnosis)
    parts = [f"{_prose(said)}\n"] if said else []
    return "\n".join([*parts, *map(_report, (diagnosis, *diagnosis.others))])


def _report(diagnosis: Diagnosis) -> str:
    names = FileNames(diagnosis)
    title, facts = headline(diagnosis)
    parts = [f"### {_prose(title)}", _prose(" · ".join(facts)), f"**{_prose(diagnosis.verdict)}**"]
    if diagnosis.outcome != "healthy":
        parts += [_code(diagnosis, names), *_paragraphs(reason_rows(diagnosis))]
        parts += [_table(behavior_rows(diagnosis, names)), *_paragraphs(process_rows(diagnosis))]
        parts += _paragraphs(evidence_rows(diagnosis))
    return "\n\n".join(part for part in parts if part and part != "****") + "\n"


def _code(diagnosis: Diagnosis, names: FileNames) -> str:
    if not diagnosis.code:
        return ""
    layout = Layout(width=_WIDTH, color=False, unicode=True)
    lay_out_code(layout, diagnosis.code, names)
    text = layout.finish().strip("\n")
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}text\n{text}\n{fence}"


def _paragraphs(rows: Iterable[Row]) -> Iterator[str]:
    """Each row behind its label; rows without a label go on with the one before."""
    said: list[str] = []
    for row in rows:
        text = _prose(row.separator.join(piece.text for piece in row.pieces if piece.text))
        if row.label and said:
            yield "<br>\n".join(said)
            said = []
        if text:
            said.append(f"**{_prose(row.label)}** {text}" if row.label else text)
    if said:
        yield "<br>\n".join(said)


def _table(rows: Iterable[Row]) -> str:
    cells = [[row.label, *(piece.text for piece in row.pieces)] for row in rows]
    columns = max((len(row) for row in cells), default=0)
    if not columns:
        return ""
    lines = [[""] * columns, ["---"] * columns]
    lines += [[_cell(cell) for cell in row] + [""] * (columns - len(row)) for row in cells if any(row)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    return _prose(text).replace("\\\\|", "\\|")


def _prose(text: str) -> str:
    r"""``text`` on one line, without Markdown or HTML of its own; code spans stay. Example: '<b>' → '\<b\>'.

    An empty comment behind '@' keeps GitHub from telling a user of that name, and one within 'http://' and 'www.' from
    making a link of the job's.
    """
    parts = _CODE_SPAN.split(harmless(text))
    return "".join(
        part.replace("|", "\\|")
        if _CODE_SPAN.fullmatch(part)
        else _AUTOLINK.sub(_unlinked, _SPECIAL.sub(r"\\\1", part)).replace("@", "@<!-- -->")
        for part in parts
    )


def _unlinked(match: re.Match[str]) -> str:
    return f"{match['scheme'] or match['www']}<!-- -->{match['colon'] or match['dot']}"
