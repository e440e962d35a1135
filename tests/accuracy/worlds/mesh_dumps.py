"""Cases of flight-recorder dumps of 16 to 64 ranks on meshes, as ``tests/dump_folders`` simulates them.

    python tests/accuracy/worlds/mesh_dumps.py

makes one case, ``mesh_dumps_FAULT``, for each fault that has a place on such a mesh and each kind of healthy folder,
in dialects of torch 2.0 to 2.10 as the dice fall: pickled, JSON, gzipped, wrapped rings, files missing or cut off. The
expectation is what the folder's oracle lets an honest reader say; where hangdoc says something else it is marked as an
expected failure.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from add_case import add_case
from cases import DATA, diagnosed, row, write_rows
from dump_folders.faults import FAULTS, NoPlace
from dump_folders.folders import HEALTHY, families, make
from dump_folders.oracle import Truth, mark

from hangdoc import api
from hangdoc.model.codec import dump_snapshot

SEED = "meshes"


def expected(truth: Truth, found: dict[str, Any]) -> dict[str, Any]:
    """The expectation: what was found where the oracle allows it, else its own first choice."""
    marked = mark(truth, found)
    code = (found["cause"] or {}).get("code")
    return {
        "outcome": found["outcome"] if marked.outcome else min(truth.outcomes),
        "cause": code if marked.cause else min(filter(None, truth.causes), default=None),
        "culprits": found["culprits"] if marked.ranks else sorted(min(truth.culprits, key=sorted)),
    }


def main() -> int:
    """Make those cases that are not there yet."""
    there = {path.stem for path in DATA.glob("*/*.hangdoc")}
    for number, fault in enumerate([*FAULTS, *HEALTHY]):
        name = f"mesh_dumps_{fault}"
        if name in there or not families(fault, large=True):
            continue
        try:
            case = make(fault, SEED, number, timing=number % 2 == 0, large=True)
        except NoPlace:
            print(f"{name}: no place on such a mesh")
            continue
        with tempfile.TemporaryDirectory() as folder:
            snapshot = Path(folder, "job.hangdoc")
            dump_snapshot(api.load(case.write(Path(folder))), snapshot)
            add_case(snapshot, name)
        word = expected(case.truth, diagnosed(name).document)
        if any(row(name)[key] != value for key, value in word.items()):
            why = f"of a mesh of {len(case.machine.cpus)} ranks: {case.truth.why}"
            write_rows({name: row(name) | word | {"expected_failure": why}})
        print(f"{name}: {len(case.machine.cpus)} ranks, {word}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
