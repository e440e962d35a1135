"""How tests/accuracy/dumps.py counts what is said of a folder of gloo's dumps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dumps
import pytest

from hangdoc.scenarios import Scenario

SCENARIO = Scenario("a", Path("a.py"), "", "python", "hang", cause="HD101", culprits=(1,))


@pytest.mark.parametrize(
    ("document", "answer", "cause"),
    [
        ({"culprits": [1], "confidence": "likely", "cause": {"code": "HD101"}}, dumps.RIGHT, True),
        ({"culprits": [1], "confidence": "likely", "cause": None}, dumps.RIGHT, False),
        ({"culprits": [0], "alternatives": [[1]], "confidence": "possible"}, dumps.AMONG, None),
        ({"culprits": [0], "alternatives": [[1]], "confidence": "likely"}, dumps.WRONG, None),
        ({"culprits": [], "confidence": "possible"}, dumps.NOBODY, None),
        ({"culprits": [0], "confidence": "certain"}, dumps.WRONG, None),
        ({}, dumps.NO_DUMPS, None),
    ],
)
def test_an_answer_is_counted_by_the_ranks_that_it_names(
    document: dict[str, Any], answer: str, cause: bool | None
) -> None:
    result = dumps.judge(SCENARIO, {"outcome": "hang", **document} if document else {})
    assert (result.answer, result.cause) == (answer, cause)
    assert result.certain_and_wrong == (document.get("confidence") == "certain")


def test_the_table_counts_each_answer() -> None:
    results = [
        dumps.judge(SCENARIO, {"outcome": "hang", "culprits": [rank], "confidence": "likely"}) for rank in (0, 1)
    ]
    assert dumps.table(results).splitlines()[-1] == "| 2 | 2 | 1 | 0 | 0 | 1 | 0 | 0/1 | 0 |"
