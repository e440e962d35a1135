"""What torchrun runs as a rank for ``hangdoc_job(function)``: ``call_function.py FILE MODULE NAME ARGUMENTS PATH``."""

from __future__ import annotations

import ast
import functools
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def main(words: list[str]) -> None:
    """Import the function as the test did, and call it. ARGUMENTS and PATH (sys.path) are Python literals."""
    file, module_name, name, arguments, path = words
    sys.path[:] = ast.literal_eval(path)
    module = _imported(file, module_name)
    functools.reduce(getattr, name.split("."), module)(*ast.literal_eval(arguments))  # type: ignore[operator]


def _imported(file: str, name: str) -> ModuleType:
    """The module by its name; by its file, where that name leads elsewhere (pytest's import mode ``importlib``)."""
    try:
        found = importlib.import_module(name)
        if Path(found.__file__ or "").samefile(file):
            return found
    except (ImportError, OSError):
        pass
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot import {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    main(sys.argv[1:])
