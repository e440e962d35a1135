"""What the reports say of recorded branches: scenarios/best_loss.py with what its ranks' probes would have recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest
from published_schema import SCHEMA, faults

from hangdoc.diagnosis.verdict import diagnose
from hangdoc.model.branches import BranchCounts, Taken
from hangdoc.model.codec import snapshot_from_bytes
from hangdoc.model.diagnosis import Branch, BranchCell, BranchMoment, Diagnosis, Divergence
from hangdoc.model.document import diagnosis_document, schema
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.wording import ordinal
from hangdoc.report import markdown, page, terminal, timeline
from hangdoc.report.reason_rows import reason_rows

CASES = Path(__file__).parents[2] / "data"
FOR_STEP, FOR_EPOCH, LOSS = 0, 1, 2
SAID = "`loss < self.best` was False the 5th time on ranks 0 and 2 alone, and True there the 4 times before."


@pytest.fixture(scope="module")
def unrecorded() -> JobSnapshot:
    """Losses: rank 0's 4.0, 3.0, 2.5, 2.0, 2.1; rank 1's alone got better in the fifth epoch as well."""
    (path,) = CASES.rglob("best_loss.hangdoc")
    return snapshot_from_bytes(path.read_bytes())


@pytest.fixture(scope="module")
def recorded(unrecorded: JobSnapshot) -> JobSnapshot:
    file = next(text.file for text in unrecorded.sources if text.file.endswith("best_loss.py"))
    ranks = []
    for rank in unrecorded.ranks:
        assert rank.process is not None
        assert rank.journal is not None
        on, later = rank.rank == 1, 0 if rank.rank == 1 else 1
        branches = (
            BranchCounts(file, "epoch", 65, 8, 68, 36, "TF", (15 + later, 5), "", whole=True),
            BranchCounts(file, "main", 75, 4, 76, 28, "TF", (5 + later, 0), "T" * (5 + later), whole=True),
            BranchCounts(file, "validate", 55, 11, 55, 27, "TF", *((5, 0) if on else (4, 1), ""), whole=True),
        )
        branches = (*branches[:2], replace(branches[2], last="TTTTT" if on else "TTTTF"))
        issued = rank.journal.calls[-2].created_ns
        order = (
            [(FOR_STEP, "F"), (LOSS, "T")] if on else [(FOR_STEP, "F"), (LOSS, "F"), (FOR_EPOCH, "T"), (FOR_STEP, "T")]
        )
        taken = tuple(Taken(branch, value, issued + 1000 + n) for n, (branch, value) in enumerate(order))
        ranks.append(replace(rank, process=replace(rank.process, branches=branches, taken=taken)))
    return replace(unrecorded, ranks=tuple(ranks))


@pytest.fixture(scope="module")
def found(recorded: JobSnapshot) -> Diagnosis:
    return diagnose(recorded)


def test_the_moment_is_one_row_below_the_reason(unrecorded: JobSnapshot, found: Diagnosis) -> None:
    before = terminal.render(diagnose(unrecorded)).splitlines()
    now = terminal.render(found).splitlines()
    more = [line for line in now if line not in before]
    assert " ".join(" ".join(more).split()) == f"when {SAID}"
    assert [line for line in before if line not in now] == []
    assert next(n for n, line in enumerate(now) if line.startswith("  when")) < now.index(
        next(line for line in now if line.startswith("  fix"))
    )


def test_the_moment_is_in_every_format(found: Diagnosis) -> None:
    assert f"**when** {SAID}" in markdown.render(found)
    assert "was False the 5th time on ranks 0 and 2 alone" in Seen(page.render(found)).text
    document = diagnosis_document(found)
    assert document["divergence"] is not None
    assert document["divergence"]["branch"] is not None
    moment = {"ranks": [0, 2], "value": "False", "before": 4, "alone": True}
    assert document["divergence"]["branch"].get("moment") == moment
    jsonschema.validate(document, schema())
    assert faults(json.loads(json.dumps(document)), SCHEMA) == []


@pytest.mark.parametrize(
    ("condition", "moment", "said"),
    [
        ("for batch in loader:", BranchMoment((1,), "ended", 1, alone=True), "ended on rank 1 alone, after 1 round."),
        (
            "for batch in loader:",
            BranchMoment((1,), "ended", 1042, alone=False),
            "ended on rank 1, after 1,042 rounds.",
        ),
        (
            "elif loss > limit:",
            BranchMoment((1, 2), "True", 1, alone=False),
            "was True the 2nd time on ranks 1 and 2, and False there the time before.",
        ),
        (
            "while busy:",
            BranchMoment((1,), "False", 1110, alone=True),
            "was False the 1,111th time on rank 1 alone, and True there the 1,110 times before.",
        ),
    ],
)
def test_the_words_of_a_moment(condition: str, moment: BranchMoment, said: str) -> None:
    found = Diagnosis(
        "hang", "It hangs.", divergence=Divergence((), Branch("/a.py", 3, condition, "if", moment=moment))
    )
    (row,) = (row for row in reason_rows(found) if row.label == "when")
    tested = condition.removesuffix(":").removeprefix("elif ").removeprefix("while ")
    assert row.pieces[0].text == f"`{tested}` {said}"


@pytest.mark.parametrize(
    ("number", "said"),
    [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (113, "113th"), (1022, "1,022nd")],
)
def test_ordinals(number: int, said: str) -> None:
    assert ordinal(number) == said


def test_without_recorded_branches_nothing_changes(unrecorded: JobSnapshot, found: Diagnosis) -> None:
    before = diagnose(unrecorded)
    assert before.branches is None
    document = diagnosis_document(before)
    assert "moment" not in json.dumps(document)
    assert faults(document, SCHEMA) == []
    assert (found.verdict, found.why, found.culprits, found.confidence) == (
        *(before.verdict, before.why, before.culprits, before.confidence),
    )


def test_it_is_not_alone_where_a_rank_was_not_recorded(recorded: JobSnapshot) -> None:
    ranks = [
        replace(rank, process=replace(rank.process, branches=())) if rank.rank == 1 and rank.process else rank
        for rank in recorded.ranks
    ]
    text = " ".join(terminal.render(diagnose(replace(recorded, ranks=tuple(ranks)))).split())
    assert SAID.replace(" alone", "") in text


def test_the_table_begins_with_what_both_did_and_marks_what_differs(found: Diagnosis) -> None:
    assert found.branches is not None
    assert (found.branches.ranks, found.branches.call) == ((1, 0), "all_reduce #19")
    step, epoch = "for _ in range(3)", "for epoch in range(len(LOSSES[0]))"
    ended, better = (
        BranchCell("best_loss.py:65", step, "ended"),
        BranchCell("best_loss.py:55", "loss < self.best", "True"),
    )
    assert [row.cells for row in found.branches.rows] == [
        (ended, ended),
        (better, replace(better, value="False")),
        (None, BranchCell("best_loss.py:75", epoch, "another round")),
        (None, replace(ended, value="another round")),
    ]
    assert [(row.differs, row.decides) for row in found.branches.rows] == [
        *((False, False), (True, True), (True, False), (True, False)),
    ]


def test_another_test_of_that_line_is_not_the_condition(recorded: JobSnapshot) -> None:
    ranks = []
    for rank in recorded.ranks:
        assert rank.process is not None
        *others, loss = rank.process.branches
        branches = (*others, replace(loss, column=16, end_column=25))
        ranks.append(replace(rank, process=replace(rank.process, branches=branches)))
    found = diagnose(replace(recorded, ranks=tuple(ranks)))
    assert found.branches is not None
    assert [row.decides for row in found.branches.rows] == [False] * 3


def test_no_more_than_thirty_rows_around_the_first_difference(recorded: JobSnapshot) -> None:
    ranks = []
    for rank in recorded.ranks:
        assert rank.process is not None
        first, *rest = rank.process.taken
        alike = [Taken(FOR_STEP, "T", first.at_ns)] * 40
        more = [Taken(FOR_EPOCH, "T", first.at_ns)] * (40 if rank.rank == 1 else 0)
        taken = (*alike, first, *rest, *more)
        ranks.append(replace(rank, process=replace(rank.process, taken=taken)))
    table = diagnose(replace(recorded, ranks=tuple(ranks))).branches
    assert table is not None
    assert (len(table.rows), table.earlier) == (30, 31)
    assert [row.differs for row in table.rows[:11]] == [False] * 10 + [True]
    assert table.later == 23


class Seen(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text, self.tags, self.rows = "", set[str](), list[list[str]]()
        self._in_table = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "table":
            self._in_table = ("class", "tests") in attrs
        if self._in_table and tag == "tr":
            self.rows.append([])
        if self._in_table and tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._in_table = self._in_table and tag != "table"

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._in_table and self.rows and self.rows[-1]:
            self.rows[-1][-1] += data.replace("\n", "")


def test_the_page_has_both_lists_side_by_side(found: Diagnosis) -> None:
    seen = Seen(page.render(found))
    assert "How the tests came out since all_reduce #19: rank 1 beside rank 0" in seen.text
    assert seen.rows == [
        ["", "rank 1", "rank 0"],
        ["", "best_loss.py:65 for _ in range(3) ended", "best_loss.py:65 for _ in range(3) ended"],
        [
            "first difference, the condition",
            "best_loss.py:55 loss < self.best True",
            "best_loss.py:55 loss < self.best False",
        ],
        ["differs", "not tested", "best_loss.py:75 for epoch in range(len(LOSSES[0])) another round"],
        ["differs", "not tested", "best_loss.py:65 for _ in range(3) another round"],
    ]
    assert "script" not in seen.tags


def test_nothing_of_the_job_becomes_markup(found: Diagnosis) -> None:
    hostile = "\"'><script>alert(1)</script>{{ 7*7 }}\x1b[31m\u202e"
    assert found.branches is not None
    cell = BranchCell(hostile, hostile, hostile)
    rows = tuple(replace(row, cells=(cell, None)) for row in found.branches.rows)
    text = page.render(replace(found, branches=replace(found.branches, call=hostile, rows=rows)))
    assert "script" not in Seen(text).tags
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "49" not in Seen(text).rows[1][1]


def test_the_time_line_has_a_track_of_branches(recorded: JobSnapshot, found: Diagnosis) -> None:
    events = json.loads(timeline.render(found, recorded))["traceEvents"]
    tracks = {
        (e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["args"].get("name") == "tests of the main thread"
    }
    assert {rank for rank, _ in tracks} == {0, 1, 2}
    drawn = [e for e in events if e.get("cat") == "test"]
    assert {(e["pid"], e["tid"]) for e in drawn} == tracks
    assert {(e["ph"], e["s"]) for e in drawn} == {("i", "t")}
    assert [e["name"] for e in drawn if e["pid"] == 1] == [
        "best_loss.py:65 epoch() false",
        "best_loss.py:55 validate() true",
    ]
    others = {(e["pid"], e["tid"]) for e in events if e["ph"] == "X"}
    assert others.isdisjoint(tracks)
    calls = {e["name"]: e["ts"] for e in events if e["ph"] == "X" and e["pid"] == 1}
    assert all(calls["all_reduce #19"] < e["ts"] < calls["all_gather #20"] for e in drawn if e["pid"] == 1)


def test_a_time_line_of_unrecorded_ranks_has_none(unrecorded: JobSnapshot) -> None:
    assert '"tests of' not in timeline.render(diagnose(unrecorded), unrecorded)


def test_odd_places_and_times_are_passed_over(recorded: JobSnapshot) -> None:
    ranks = []
    for rank in recorded.ranks:
        assert rank.process is not None
        odd = (Taken(99, "T", 5), Taken(-1, "T", 5), Taken(0, "T", -5))
        branches = tuple(replace(test, values="", counts=(-1, -1)) for test in rank.process.branches)
        process = replace(rank.process, taken=(*odd, *rank.process.taken), branches=branches)
        ranks.append(replace(rank, process=process))
    job = replace(recorded, ranks=tuple(ranks))
    found = diagnose(job)
    assert found.divergence is not None
    assert found.divergence.branch is not None
    assert found.divergence.branch.moment is None
    events = json.loads(timeline.render(found, job))["traceEvents"]
    assert all(e["ts"] >= 0 for e in events if e["ph"] != "M")
