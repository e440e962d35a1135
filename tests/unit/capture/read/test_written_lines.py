from __future__ import annotations

import ast
import time
from collections.abc import Sequence

import pytest

from hangdoc.capture.read.written import texts_of, written_by
from hangdoc.model.snapshot import Written


def written(source: str, lines: Sequence[str], rank: int | None = None) -> list[Written]:
    texts = texts_of("train.py", ast.parse(source))
    return list(written_by([("/job/out", rank, tuple(lines))], texts, time.monotonic() + 60, {24926: 1}))


@pytest.mark.parametrize(
    ("source", "line", "rank"),
    [
        ('print(f"[rank {rank}] stopping: {n} of {m} bytes")', "[rank 4] stopping: 25 of 64 bytes", 4),
        ('print(f"worker {self.rank}: deferred")', "worker 1: deferred", 1),
        ('log.info("part %d of shard %s is lost", i, name)', "INFO [rank 2] part 3 of shard a is lost", 2),
        ('log.info("part %d of shard %s is lost", i, name)', "[default3]:part 3 of shard a is lost", 3),
        ('log.warning("%s: document %03d skipped", who, i)', "2026-11-23 WARNING me: document 009 skipped", None),
        ('say("{} documents kept on {}".format(n, dist.get_rank()))', "7 documents kept on 3", 3),
        ('sys.stderr.write("[%d] reached %.3f\\n" % (rank, mean))', "[3] reached 0.211", 3),
        ("raise ValueError(f\"no adapter '{name}'\")", "load failed: no adapter 'legal'", None),
        ('for rank, x in enumerate(all): print(f"regime {rank}: {x}, useful")', "regime 3: 0.4, useful", None),
        ('print(*[f"regime {rank} is useful" for rank in kept])', "regime 3 is useful", None),
        ('for x in all: print(f"regime {rank}: {x}, useful")', "regime 3: 0.4, useful", 3),
        ('print("nothing was kept")', "nothing was kept", None),
        ('print("nothing was kept")', "10:12 sync[24926] nothing was kept", 1),
        ('print("nothing was kept")', "10:12 sync[24925] nothing was kept", None),
    ],
)
def test_a_text_is_found_in_its_line(source: str, line: str, rank: int | None) -> None:
    found = written(source, ["other words", line])
    assert [(each.text, each.places, each.rank, each.number) for each in found] == [(line, (("train.py", 1),), rank, 1)]


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""stopping the record"""', "stopping the record"),
        ('print(f"a {x}, b {y}")', "a 1, b 2"),
        ('if kind == "warmup": pass', "warmup has begun"),
        ('print(f"loaded {x} then left {y}")', "left 3 then loaded 4"),
        ('print(f"document {i} skipped")', "hangdoc: document 3 skipped"),
    ],
)
def test_what_is_no_line_of_a_text(source: str, line: str) -> None:
    assert written(source, [line]) == []


def test_a_report_of_hangdoc_in_the_same_file_is_none_of_the_program() -> None:
    report = [
        "hangdoc ✖ hang",
        "",
        '  58 │ print(f"document {i} skipped")',
        "  seen   in the output: document 3 skipped",
    ]
    lines = ["  document 1 skipped", *report, "document 4 skipped"]
    assert [each.number for each in written('print(f"document {i} skipped")', lines)] == [0, 5]


def test_the_longest_text_wrote_a_line_and_what_it_was_given_is_found_in_it() -> None:
    source = 'log.info("failed: %s, going on", e)\nraise Lost(f"no file {name}")\nlog.info("failed: %s", e)'
    (found,) = written(source, ["failed: no file a, going on"])
    assert found.places == (("train.py", 1), ("train.py", 2))


def test_of_two_equal_texts_nobody_can_tell_which_one_it_was() -> None:
    assert written('print("skipped it")\nif x:\n    print("skipped it")', ["skipped it"]) == []


def test_a_file_of_one_rank_tells_whose_line_it_is() -> None:
    (found,) = written('print("nothing was kept")', ["nothing was kept"], rank=5)
    assert found.rank == 5


def test_long_hostile_lines_take_no_longer_than_they_are_long() -> None:
    source = 'print(f"{a}aaaaaaa{b}aaaaaaa{c}aaaaaaa{d}aaaaaaa{e}b")'
    began = time.monotonic()
    written(source, ["a" * 20_000])
    short = max(time.monotonic() - began, 0.005)
    began = time.monotonic()
    written(source, ["a" * 200_000])
    assert time.monotonic() - began < 100 * short
