"""Sources whose expressions lie within each other so deep that Python can't write them out."""

from __future__ import annotations

import pytest
from helpers.made_calls import made_calls

from hangdoc import api

TEXT = """
def main():
    for step in range(4):
        x = {deep}
        if x:
            dist.all_reduce(t)
        dist.barrier()
"""


@pytest.mark.parametrize("deep", ["not " * 600 + "x", " + ".join(["x"] * 1500), "x" + ".a" * 1500])
def test_they_are_no_code(deep: str) -> None:
    barrier = [("barrier", [(6, "main")])]
    calls = {0: [("all_reduce", [(5, "main")])], 1: barrier, 2: barrier}
    found = api.diagnose(made_calls(TEXT.format(deep=deep), calls))
    assert found.culprits == (0,)
