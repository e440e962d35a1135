"""Which line whoever is at another one has come by, and which variables of the environment a definition reads."""

import pytest

from hangdoc.diagnosis.program.items import Definition
from hangdoc.diagnosis.program.program import Program
from hangdoc.model.snapshot import Module

JOB = "/job/train.py"
TEXT = """\
import os
rank, attempt = int(os.environ["RANK"]), os.getenv("ATTEMPT")
if attempt:
    first()
second()
for item in items:
    third()
fourth()
port = 1 + int(os.environ.get("PORT", "0"))
"""


@pytest.mark.parametrize(
    ("line", "before", "comes_by"),
    [(5, 2, True), (5, 3, True), (5, 4, False), (4, 5, False), (8, 7, False), (7, 5, True), (5, 5, False)],
)
def test_only_what_every_way_leads_by_has_been_come_by(line, before, comes_by):
    function = Program((), [Module(JOB, "sha256:0", TEXT)]).function(JOB, line)
    assert function is not None
    assert function.comes_by(line, before) is comes_by


@pytest.mark.parametrize(
    ("line", "after", "leads"),
    [(2, 4, True), (4, 3, False), (4, 5, True), (6, 7, True), (7, 7, True), (7, 6, True), (8, 7, False), (9, 5, False)],
)
def test_a_line_leads_to_what_may_run_after_it_in_one_run(line, after, leads):
    function = Program((), [Module(JOB, "sha256:0", TEXT)]).function(JOB, line)
    assert function is not None
    assert function.leads_to(line, after) is leads


@pytest.mark.parametrize(
    ("line", "name", "read"), [(2, "attempt", "ATTEMPT"), (2, "rank", "RANK"), (9, "port", "PORT")]
)
def test_of_several_names_each_reads_its_own_variable(line, name, read):
    program = Program((), [Module(JOB, "sha256:0", TEXT)])
    assert program.places.variables_of(Definition(JOB, "<module>", line, 0, name, "", "assign")) == (read,)
