"""Whether every function of real code has a graph: the standard library's and torch's, or any folder's.

    python tests/accuracy/graphs.py [FOLDER …]

Each function is read as a slice reads it: its predicates, what each of its lines depends on, the definitions that reach
its last line. Prints how many there are, and each that raised an error; exit status 1 where one did.
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from hangdoc.diagnosis.program import Program
from hangdoc.model.snapshot import Module

MOST_ITEMS = 20
"""Items of the slice of each function that are come to."""


def folders() -> Iterator[Path]:
    """That of the standard library, and torch's where there is one."""
    yield Path(sysconfig.get_path("stdlib"))
    torch = find_spec("torch")
    if torch is not None and torch.origin is not None:
        yield Path(torch.origin).parent


def files_in(folder: Path) -> Iterator[Path]:
    """Its Python files, without those of other packages installed below it."""
    for path in sorted(folder.rglob("*.py")):
        if "site-packages" not in path.relative_to(folder).parts:
            yield path


def read(path: Path) -> tuple[int, list[str]]:
    """(how many functions the file has, what went wrong)."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return 0, []
    program = Program((), [Module(str(path), "sha256:0", text)])
    functions, wrong = program.functions(str(path)), []
    for function in functions:
        try:
            _ = function.predicates
            for line in range(function.line, function.end_line + 1):
                function.controls(line)
            list(islice(program.slice_back(str(path), function.end_line), MOST_ITEMS))
        except Exception as error:  # whatever it is, it is what is looked for
            wrong.append(f"{path}:{function.line} {function.name}: {type(error).__name__}: {error}")
    return len(functions), wrong


def read_all(paths: Iterable[Path]) -> tuple[int, list[str]]:
    """The same of all of them."""
    found = [read(path) for path in paths]
    return sum(number for number, _ in found), [each for _, wrong in found for each in wrong]


def main() -> int:
    """Read what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    failed = False
    for folder in options.folders or folders():
        begun = time.process_time()
        number, wrong = read_all(files_in(folder))
        print(f"{folder}: {number} functions, {len(wrong)} went wrong, {time.process_time() - begun:.0f} s of CPU")
        print("\n".join(f"  {each}" for each in wrong))
        failed = failed or bool(wrong)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
