from __future__ import annotations

import io
from dataclasses import replace

from sample_diagnosis import SAMPLE

from hangdoc.model.snapshot import JobSnapshot, LogTail, RankSnapshot
from hangdoc.report import page
from hangdoc.report.last_output import last_output_for


def job(logs: dict[int, tuple[str, ...]]) -> JobSnapshot:
    ranks = tuple(RankSnapshot(rank, "", "probe", log=LogTail(f"/logs/{rank}", lines)) for rank, lines in logs.items())
    return JobSnapshot(taken=0.0, mode="watch", command=("torchrun",), ranks=ranks)


def test_the_last_lines_of_those_to_blame() -> None:
    logs = {0: ("zero",), 1: ("a", "", "b", "c", "d\x1b[2J", " "), 2: ("b", "c", "d\x1b[2J")}
    blamed = replace(SAMPLE, culprits=(1, 2))
    assert last_output_for(io.StringIO(), blamed, job(logs)) == (
        "\n  ranks 1,2 wrote  b\n                   c\n                   d\\x1b[2J\n"
    )
    assert last_output_for(io.StringIO(), blamed, job({0: ("zero",), 1: ()})) == ""


def test_the_page_shows_them_first() -> None:
    text = page.render(replace(SAMPLE, culprits=(2,)), job({0: ("zero",), 2: ("two",)}))
    assert text.index("rank 2: /logs/2") < text.index("rank 0: /logs/0")
