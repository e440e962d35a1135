"""What of an output is a traceback, with which frames?"""

from __future__ import annotations

from hangdoc.model.process import Frame
from hangdoc.model.snapshot import Traceback
from hangdoc.model.tracebacks import tracebacks_in

BEGUN = "Traceback (most recent call last):"
PUMP = '  File "/job/load.py", line 31, in pump'
SCALED = '  File "/job/load.py", line 12, in scaled'


def test_the_traceback_of_a_thread() -> None:
    lines = ["Exception in thread feed:", BEGUN, PUMP, "    scaled(x)", SCALED, "    x / y", "TypeError: no", "step 3"]
    frames = (Frame("/job/load.py", 12, "scaled"), Frame("/job/load.py", 31, "pump"))
    assert tracebacks_in(lines, 1) == (Traceback("Exception in thread feed:", frames, "TypeError: no", 1),)


def test_lines_of_ranks_that_share_a_file_are_told_apart() -> None:
    lines = [
        "[default0]:Exception in thread feed:",
        f"[default0]:{BEGUN}",
        f"[default1]:{BEGUN}",
        f"[default0]:{PUMP}",
        f"[default1]:{SCALED}",
        "[default0]:KeyError: 'x'",
        "[default1]:ValueError: y",
    ]
    found = tracebacks_in(lines, None)
    assert [(each.announced, each.frames[0].function, each.error) for each in found] == [
        ("Exception in thread feed:", "pump", "KeyError: 'x'"),
        ("", "scaled", "ValueError: y"),
    ]


def test_a_traceback_that_has_not_ended_or_has_no_frames_is_none() -> None:
    assert tracebacks_in([BEGUN, PUMP], None) == ()
    assert tracebacks_in([BEGUN, "KeyError: 3", PUMP, "ValueError: 4"], None) == ()


def test_an_endless_one_is_cut() -> None:
    lines = [BEGUN, *[PUMP] * 10_000, "RecursionError: " + "x" * 10_000]
    (found,) = tracebacks_in(lines, None)
    assert len(found.frames) == 60
    assert len(found.error) == 200
