"""The tables of what is known of libraries, kernels and causes: TOML files beside the code that reads them."""

from __future__ import annotations

import sys
from functools import cache
from importlib import resources
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


@cache
def table(package: str, name: str) -> dict[str, Any]:
    """The table ``name``.toml of a package. Example: ``table('hangdoc.model', 'operations')['operation']``."""
    text = resources.files(package).joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
