"""The conditions under which one side alone wrote something."""

from __future__ import annotations

import pytest

from hangdoc.diagnosis.condition.elsewhere.written import written_under
from hangdoc.diagnosis.source.sources import Sources
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import SourceText, Written

FILE = "/job/train.py"
PROGRAM = """\
def keep(self, documents):
    kept = [d for d in documents if d.long]
    if not kept:
        log.info("…", rank, "nothing kept")
        return None
    if rank == 0:
        log.info("…")
    return kept

def look(self):
    if used > high:
        if not self.warned:
            log.warning("…", used)
        self.tight = True

def load(name):
    if name not in files:
        raise Missing(f"…")
    return files[name]

def serve(request):
    try:
        load(request.name)
    except Missing as e:
        log.error("…", e)

def round(self, i):
    keep(self, parts[i])
    serve(requests[i])
    log.info("…", i)

def report(why):
    say("…", why)

def once(self):
    if self.late:
        report("late")

def say(text, *more):
    if rank == 0:
        print(text, *more)

def spoken(self):
    if self.done:
        say(f"…")
"""


def lines_at(*found: tuple[int, int | None]) -> list[Written]:
    return [Written(f"line {n}", ((FILE, line),), rank, "/job/out", n) for n, (line, rank) in enumerate(found)]


def conditions(written: list[Written], program: str = PROGRAM, writers: tuple[int, ...] = (2,)) -> list[str]:
    sources = Sources((SourceText(FILE, "<module>", 1, program),))
    others = tuple(rank for rank in range(4) if rank not in writers)
    stack = (Frame(FILE, 28, "round"), Frame(FILE, 90, "<module>"))
    return [each.condition.source for each in written_under(sources, written, [stack], writers, others)]


@pytest.mark.parametrize(
    ("line", "condition"),
    [
        (4, "if not kept:"),
        (13, "if used > high:"),  # the inner one decides about the line alone
        (18, "if name not in files:"),
        (25, "except Missing:"),
        (33, "if self.late:"),  # around the only call of its function
        (30, None),
        (7, None),
    ],
)
def test_the_innermost_condition_that_decides_more_than_the_line(line: int, condition: str | None) -> None:
    assert conditions(lines_at((line, 2))) == ([condition] if condition else [])


def test_the_text_of_an_exception_comes_before_what_hands_it_on() -> None:
    line = Written("failed: no file", ((FILE, 25), (FILE, 18)), 2, "/job/out", 0)
    assert conditions([line]) == ["if name not in files:", "except Missing:"]


def test_what_another_rank_wrote_as_well_parted_nobody() -> None:
    assert conditions(lines_at((4, 1), (4, 2))) == []
    assert conditions(lines_at((4, 1), (4, 2)), writers=(1, 2)) == ["if not kept:"]
    assert conditions(lines_at((4, 3))) == []


def test_a_line_without_a_rank_counts_where_so_few_of_it_were_written() -> None:
    assert conditions(lines_at((4, None))) == ["if not kept:"]
    assert conditions(lines_at((4, None), (4, None))) == []
    assert conditions(lines_at((4, None), (4, 2))) == []


def test_a_line_without_a_rank_has_to_be_on_the_way_of_who_is_thought_to_have_written_it() -> None:
    assert conditions(lines_at((25, None))) == ["except Missing:"]
    assert conditions(lines_at((13, None))) == []


def test_a_line_after_which_the_job_went_round_is_of_the_past() -> None:
    assert conditions(lines_at((4, 2), (29, 2), (29, 2))) == ["if not kept:"]
    assert conditions(lines_at((4, 2), (29, 2), (29, 2), (29, 2))) == []
    assert conditions(lines_at((4, 2), (29, 1), (29, 1), (29, 1))) == []
    assert conditions(lines_at((4, 2), (7, None), (7, None), (7, None))) == [], "only rank 0 writes that"
    assert conditions(lines_at((4, 2), *[(29, None)] * 8)) == ["if not kept:"], "two rounds of four ranks"
    assert conditions(lines_at((4, 2), *[(29, None)] * 9)) == []


def test_what_rank_0_alone_would_write_tells_nothing_of_the_others() -> None:
    limited = PROGRAM + "\nlogging.basicConfig(level=INFO if rank == 0 else ERROR)\n"
    assert conditions(lines_at((4, 0)), writers=(0,)) == ["if not kept:"]
    assert conditions(lines_at((4, 0)), limited, writers=(0,)) == []
    assert conditions(lines_at((4, None)), limited, writers=(0,)) == []
    assert conditions(lines_at((25, None)), limited, writers=(0,)) == ["except Missing:"], "an error is written by all"
    assert conditions(lines_at((4, 2)), limited) == ["if not kept:"], "rank 2 did write it"
    assert conditions(lines_at((42, 0)), writers=(0,)) == [], "its own helper writes on rank 0 alone"
    assert conditions([*lines_at((4, 0), (29, 1))], limited, writers=(0,)) == ["if not kept:"], "rank 1 writes as well"


def test_a_path_that_a_function_returns_is_in_what_others_write() -> None:
    program = (
        PROGRAM
        + """
def target(self, step):
    return f"…"

def seldom(self, n):
    if n % 6 == 0:
        self.target(n)
"""
    )
    returned = next(n for n, line in enumerate(program.splitlines(), 1) if 'return f"…"' in line)
    logged = next(n for n, line in enumerate(program.splitlines(), 1) if "log.error" in line)
    written = [Written("failed", ((FILE, returned), (FILE, logged)), 2, "/job/out", 0)]
    assert conditions(written, program) == ["except Missing:"]
    assert conditions([Written("failed", ((FILE, returned),), 2, "/job/out", 0)], program) == ["if n % 6 == 0:"]


def test_a_test_in_a_handler_that_hands_the_exception_on_is_no_reason() -> None:
    program = (
        "def step(self):\n    try:\n        work()\n    except RuntimeError as err:\n"
        '        if "…" not in str(err):\n            raise\n        log.warning("…")\n'
    )
    sources = Sources((SourceText(FILE, "<module>", 1, program),))
    found = written_under(sources, lines_at((7, 1)), [(Frame(FILE, 3, "step"),)], (1,), (0, 2))
    assert [each.condition.source for each in found] == ["except RuntimeError:"]
