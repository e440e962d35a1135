"""Neither the hash seed nor the machine changes what is said of a saved case."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import cases
import pytest
from cases import names

DIGESTS = """
import hashlib, json, sys
sys.path.insert(0, sys.argv[1])
from cases import diagnosed, names
print(json.dumps({name: hashlib.sha256(repr(diagnosed(name)).encode()).hexdigest() for name in names()}))
"""
PLACES = ({}, {"COLUMNS": "60", "TZ": "Asia/Tokyo", "LC_ALL": "C", "TERM": "dumb", "NO_COLOR": "1", "HOME": "/"})
"""What the environment of two machines may hold."""


@pytest.mark.timeout(900)
def test_what_is_said_of_a_case_depends_on_the_case_alone(tmp_path):
    """Sets are ordered by the seed: one that becomes text unsorted shows here. So does a clock, or a terminal."""
    children = [
        subprocess.Popen(
            [sys.executable, "-c", DIGESTS, str(Path(cases.__file__).parent)],
            env={**os.environ, "PYTHONHASHSEED": str(seed), **place},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        )
        for seed, place in enumerate(PLACES)
    ]
    try:
        first, *others = (json.loads(child.communicate(timeout=880)[0]) for child in children)
    finally:
        for child in children:
            child.kill()
            child.communicate()
    assert list(first) == names()
    for seed, digests in enumerate(others, 1):
        assert [name for name in names() if digests[name] != first[name]] == [], f"differ between seeds 0 and {seed}"
