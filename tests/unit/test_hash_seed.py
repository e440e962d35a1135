"""Neither the hash seed nor the machine changes what is said of a saved case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cases
import pytest
from cases import ELSEWHERE, with_text

DIFFERING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from cases import diagnosed, unlike_pinned, with_text
chosen = with_text()[int(sys.argv[2])::int(sys.argv[3])]
print(json.dumps({name: unlike_pinned(name, diagnosed(name)) for name in chosen}))
"""
SEEDS = (1, 2)
"""One for each child; each of them has its share of the cases whose whole report is pinned."""


@pytest.mark.timeout(900)
def test_what_is_said_of_a_case_depends_on_the_case_alone(tmp_path):
    """Sets are ordered by the seed: one that becomes text unsorted shows here. So does a clock, or a terminal.

    The pins are what another seed and environment gave. test_cases compares those of all cases, elsewhere too, under
    the random seed of its own process; here it is the cases with a report, under seeds that can be set again.
    """
    children = [
        subprocess.Popen(
            [sys.executable, "-c", DIFFERING, str(Path(cases.__file__).parent), str(part), str(len(SEEDS))],
            env={**os.environ, "PYTHONHASHSEED": str(seed), **ELSEWHERE},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        )
        for part, seed in enumerate(SEEDS)
    ]
    try:
        found = [json.loads(child.communicate(timeout=880)[0]) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()
    differing = {name: changes for share in found for name, changes in share.items()}
    assert sorted(differing) == with_text()
    assert {name: changes for name, changes in differing.items() if changes} == {}
