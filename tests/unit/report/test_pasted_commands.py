"""A command that the report advises can be pasted: no line breaks inside it, at any width where it fits."""

from __future__ import annotations

import dataclasses

import pytest
from sample_diagnosis import SAMPLE

from hangdoc.model.snapshot import Unavailable
from hangdoc.report.terminal import render

ADVISED = "`sudo /opt/tools/bin/hangdoc attach 13849 --inject`"


@pytest.mark.parametrize("width", [70, 80, 87, 93, 100, 120])
@pytest.mark.parametrize("before", [0, 7, 20, 33])
def test_a_command_stays_on_one_line(width: int, before: int) -> None:
    remedy = f"{'x ' * before}{ADVISED} reads it: gdb holds each rank for half a second"
    shown = render(dataclasses.replace(SAMPLE, unavailable=(Unavailable("journal", "no probe", remedy),)), width=width)
    assert ADVISED in shown
    assert all(len(line) <= width for line in shown.splitlines())


def test_one_that_is_longer_than_a_line_is_broken_like_any_text() -> None:
    shown = render(dataclasses.replace(SAMPLE, fix=ADVISED), width=40)
    assert ADVISED not in shown
    assert ADVISED.replace(" ", "") in "".join(shown.split())
