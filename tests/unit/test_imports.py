"""Facts flow one way: the import contract of pyproject.toml holds, and the start stays light."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_import_contract_is_kept():
    from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

    assert lint_imports(config_filename=str(ROOT / "pyproject.toml"), cache_dir=None) == EXIT_STATUS_SUCCESS


@pytest.mark.parametrize(
    ("modules", "absent"),
    [
        ("hangdoc", "torch pydantic rich typer psutil"),
        ("hangdoc.cli", "torch pydantic rich psutil"),
        ("hangdoc.api hangdoc.model.catalogue hangdoc.report", "torch pydantic rich"),
    ],
)
def test_heavy_modules_are_imported_when_needed(modules, absent):
    code = f"import sys, {', '.join(modules.split())}; print(*set({absent.split()!r}) & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
