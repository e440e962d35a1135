"""Turn a saved snapshot into a regression case.

    python tests/add_case.py SNAPSHOT NAME

writes tests/data/NAME.hangdoc and tests/data/NAME.json: outcome, cause, culprits and lines as they are diagnosed
now. Review the JSON, and correct it where the verdict is wrong: it says what the verdict must be, and
tests/unit/test_cases.py fails until it is.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from hangdoc import api
from hangdoc.errors import HangdocError, UsageError
from hangdoc.model.codec import diagnosis_document, dump_snapshot, write_atomically

DATA = Path(__file__).parent / "data"


def expectation(document: dict[str, Any]) -> dict[str, Any]:
    """What a case asserts of a diagnosis document. ``lines`` are those of the sides, innermost user frames."""
    sides = (document["divergence"] or {"sides": ()})["sides"]
    frames = [side["frame"] for side in sides]
    frames += [rank["where"] for rank in document["ranks"] if rank["rank"] in document["culprits"]]
    return {
        "outcome": document["outcome"],
        "cause": document["cause"] and document["cause"]["code"],
        "culprits": document["culprits"],
        "confidence": document["confidence"],
        "lines": sorted({f"{Path(frame['file']).name}:{frame['line']}" for frame in frames if frame}),
    }


def add_case(source: Path, name: str, folder: Path = DATA) -> Path:
    """Write the case and return the path of its expectation. Raises ``HangdocError``."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise UsageError(f"{name!r} is no name for a case", "Use lower-case letters, digits and underscores.")
    expected = folder / f"{name}.json"
    if expected.exists():
        raise UsageError(f"there is a case {name} already", f"Choose another name, or delete {expected} first.")
    snapshot = api.load(source)
    document = expectation(diagnosis_document(api.diagnose(snapshot)))
    folder.mkdir(exist_ok=True)
    dump_snapshot(snapshot, folder / f"{name}.hangdoc")
    (folder / f"{name}.hangdoc").chmod(0o644)
    write_atomically(expected, (json.dumps(document, indent=2) + "\n").encode())
    return expected


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        expected = add_case(Path(sys.argv[1]), sys.argv[2])
    except HangdocError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    print(f"{expected}, to be reviewed:\n{expected.read_text()}", end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
