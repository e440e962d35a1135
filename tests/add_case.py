"""Turn a saved snapshot into a regression case.

    python tests/add_case.py SNAPSHOT NAME

writes tests/data/NAME.hangdoc, with the names of this machine's folders and hosts replaced, and
tests/data/NAME.json: outcome, cause, culprits and lines as they are diagnosed now. Review the JSON, and correct
it where the verdict is wrong: it says what the verdict must be, and tests/unit/test_cases.py fails until it is.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path
from typing import Any

from hangdoc import api
from hangdoc.errors import HangdocError, UsageError
from hangdoc.model.codec import (
    diagnosis_document,
    dump_snapshot,
    snapshot_from_bytes,
    snapshot_to_bytes,
    write_atomically,
)
from hangdoc.model.snapshot import JobSnapshot

DATA = Path(__file__).parent / "data"
ROOT = Path(__file__).resolve().parents[1]


def expectation(document: dict[str, Any]) -> dict[str, Any]:
    """What a case asserts of a diagnosis document. ``lines`` are those of the sides, innermost user frames."""
    sides = (document["divergence"] or {"sides": ()})["sides"]
    frames = [side["frame"] for side in sides]
    frames += [rank["where"] for rank in document["ranks"] if rank["rank"] in document["culprits"]]
    return {
        "outcome": document["outcome"],
        "cause": document["cause"] and document["cause"]["code"],
        "culprits": document["culprits"],
        "lines": sorted({f"{Path(frame['file']).name}:{frame['line']}" for frame in frames if frame}),
    }


def without_this_machine(snapshot: JobSnapshot) -> JobSnapshot:
    """``snapshot`` with neutral names for the Python environments, this checkout and the hosts."""
    text = gzip.decompress(snapshot_to_bytes(snapshot)).decode()
    for prefix in sorted(set(re.findall(r'"(/[^"]*?)/lib/python3\.\d+/', text)), key=len, reverse=True):
        text = text.replace(f"{prefix}/", "/python/")
    text = text.replace(str(ROOT), "/job")
    text = re.sub(r'("log":\{"path":)"[^"]*"', r'\1"/job/rank.log"', text)
    for number, host in enumerate(snapshot.hosts):
        text = text.replace(json.dumps(host.name), f'"host{number}"')
    return snapshot_from_bytes(text.encode())


def add_case(source: Path, name: str, folder: Path = DATA) -> Path:
    """Write the case and return the path of its expectation. Raises ``HangdocError``."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise UsageError(f"{name!r} is no name for a case", "Use lower-case letters, digits and underscores.")
    expected = folder / f"{name}.json"
    if expected.exists():
        raise UsageError(f"there is a case {name} already", f"Choose another name, or delete {expected} first.")
    snapshot = without_this_machine(api.load(source))
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
