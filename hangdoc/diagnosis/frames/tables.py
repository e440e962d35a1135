"""The tables of what is known of libraries, kernels and runtimes: TOML files beside this module, each read once."""

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
def table(name: str) -> dict[str, Any]:
    """The table ``name``.toml. Example: ``table('kernel')['wait_channel']`` lists entries."""
    text = resources.files("hangdoc.diagnosis.frames").joinpath(f"{name}.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
