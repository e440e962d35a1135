"""Neither the hash seed nor the machine changes what is said of a saved case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cases
import pytest
from cases import ELSEWHERE, names

DIFFERING = """
import json, sys
sys.path.insert(0, sys.argv[1])
from cases import diagnosed, names, pin_path, pins
def differing(name):
    now = pins(diagnosed(name)).items()
    return [suffix for suffix, text in now if pin_path(name, suffix).read_text(encoding="utf-8") != text]
print(json.dumps({name: differing(name) for name in names()[int(sys.argv[2])::int(sys.argv[3])]}))
"""
SEEDS = (1, 2)
"""One for each child; each of them has its share of the cases."""
SHARES = 12


@pytest.mark.timeout(900)
def test_what_is_said_of_a_case_depends_on_the_case_alone(tmp_path):
    """Sets are ordered by the seed: one that becomes text unsorted shows here. So does a clock, or a terminal.

    The pins are what another seed and environment gave. test_cases compares those of all cases, elsewhere too, under
    the random seed of its own process; here it is a sixth of them, under seeds with which a failure can be repeated.
    """
    children = [
        subprocess.Popen(
            [sys.executable, "-c", DIFFERING, str(Path(cases.__file__).parent), str(part), str(SHARES)],
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
    differing = {name: suffixes for share in found for name, suffixes in share.items()}
    assert sorted(differing) == sorted(names()[::SHARES] + names()[1::SHARES])
    assert {name: suffixes for name, suffixes in differing.items() if suffixes} == {}
