"""An answer about recorded branches loads no module: a rank that reads a file between two looks seems to work."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from helpers.pythons import found

PROBE = Path(__file__).parents[3] / "hangdoc" / "probe"
CODE = """
import sys, types
sys.path.insert(0, sys.argv[1])
sys.modules["torch"] = types.SimpleNamespace(__file__="/nowhere/torch/__init__.py")
import hangdoc_probe, hangdoc_probe_details, hangdoc_probe_hooks
hangdoc_probe_hooks.hide_from_compiler = lambda *functions: None
state = types.SimpleNamespace(settings={"record": ["branches"]}, branches=None)
hangdoc_probe._record_branches(state)
before = set(sys.modules)
told = hangdoc_probe_details._branches(state)
print(bool(told), *sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize("version", ["3.12", "3.13"])
def test_an_answer_about_branches_loads_no_module(version: str) -> None:
    python = found(version)
    if not python:
        pytest.skip(f"no Python {version}")
    done = subprocess.run(
        [python, "-c", CODE, str(PROBE)], capture_output=True, text=True, timeout=60, check=False, cwd="/"
    )
    assert done.stdout.split() == ["True"], done.stderr
