"""Turn a saved snapshot into a regression case, or renew what is pinned of the cases.

    python tests/add_case.py SNAPSHOT NAME

writes NAME.hangdoc, with the names of this machine's folders and hosts replaced, and NAME.json, the expectation:
outcome, cause, culprits and lines as they are diagnosed now. Both go to the folder of that cause below tests/data.
Review the JSON, and correct it where the verdict is wrong: it says what the verdict must be, and
tests/unit/test_cases.py fails until it is. Where that has to wait, say why there: "expected_failure": "why".

    python tests/add_case.py --update [NAME …]

writes anew the pins of the cases named, or of all: NAME.pin.json, every fact of the diagnosis, and NAME.txt, the
report in 100 columns. Pins hold what the code says now; read their diff before you commit it. Expectations are never
overwritten: only a person changes those. Where one now names another cause, the case moves to that cause's folder.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from pathlib import Path

from cases import DATA, diagnosed, expectation, expectation_path, home, names, pin_path, pins

from hangdoc import api
from hangdoc.errors import HangdocError, UsageError
from hangdoc.model.codec import dump_snapshot, snapshot_from_bytes, snapshot_to_bytes, write_atomically
from hangdoc.model.document import diagnosis_document
from hangdoc.model.snapshot import JobSnapshot

ROOT = Path(__file__).resolve().parents[1]


def without_this_machine(snapshot: JobSnapshot) -> JobSnapshot:
    """``snapshot`` with neutral names for the Python environments, this checkout and the hosts."""
    text = gzip.decompress(snapshot_to_bytes(snapshot)).decode()
    for prefix in sorted(set(re.findall(r'"(/[^"]*?)/lib/python3\.\d+/', text)), key=len, reverse=True):
        text = text.replace(f"{prefix}/", "/python/")
    text = text.replace(str(ROOT), "/job")
    text = re.sub(r'"/[^"]*?/hangdoc/probe', '"/job/hangdoc/probe', text)  # a watch that ran from another checkout
    text = re.sub(r'("log":\{"path":)"[^"]*"', r'\1"/job/rank.log"', text)
    hosts = [*(host.name for host in snapshot.hosts), *(rank.host for rank in snapshot.ranks)]
    for number, host in enumerate(name for name in dict.fromkeys(hosts) if name):
        text = text.replace(json.dumps(host), f'"host{number}"')
    return snapshot_from_bytes(text.encode())


def add_case(source: Path, name: str, folder: Path = DATA) -> Path:
    """Write the case and return the path of its expectation. Raises ``HangdocError``."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise UsageError(f"{name!r} is no name for a case", "Use lower-case letters, digits and underscores.")
    if there := next(folder.glob(f"*/{name}.json"), None):
        raise UsageError(f"there is a case {name} already", f"Choose another name, or delete {there} first.")
    snapshot = without_this_machine(api.load(source))
    expected = expectation(diagnosis_document(api.diagnose(snapshot)))
    saved = home(expected, folder) / f"{name}.hangdoc"
    saved.parent.mkdir(parents=True, exist_ok=True)
    dump_snapshot(snapshot, saved)
    saved.chmod(0o644)
    write_atomically(saved.with_suffix(".json"), (json.dumps(expected, indent=2) + "\n").encode())
    update(name, folder)
    return saved.with_suffix(".json")


def update(name: str, folder: Path = DATA) -> list[Path]:
    """Write the pins of a case anew and return those that changed. Raises ``HangdocError``."""
    if name not in names(folder):
        raise UsageError(f"there is no case {name}", f"The cases are the .hangdoc files of {folder}.")
    put_in_place(name, folder)
    changed = []
    for suffix, text in pins(diagnosed(name, folder)).items():
        path = pin_path(name, suffix, folder)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            write_atomically(path, text.encode())
            changed.append(path)
    return changed


def put_in_place(name: str, folder: Path = DATA) -> None:
    """Move a case to the folder of the cause that it is expected to have."""
    expected = expectation_path(name, folder)
    place = home(json.loads(expected.read_text(encoding="utf-8")), folder)
    if expected.parent != place:
        place.mkdir(exist_ok=True)
        for path in sorted(expected.parent.glob(f"{name}.*")):
            path.rename(place / path.name)


def update_all(folder: Path = DATA) -> list[Path]:
    """Write the pins of every case anew, remove those of cases that are gone, and return what changed."""
    changed = [path for name in names(folder) for path in update(name, folder)]
    for path in sorted([*folder.glob("*/*.pin.json"), *folder.glob("*/*.txt")]):
        if not path.with_name(f"{path.name.partition('.')[0]}.hangdoc").exists():
            path.unlink()
            changed.append(path)
    return changed


def main(arguments: list[str]) -> int:
    try:
        if arguments[:1] == ["--update"]:
            chosen = arguments[1:]
            changed = [path for name in chosen for path in update(name)] if chosen else update_all()
            print("\n".join([*(str(path.relative_to(ROOT)) for path in changed), f"{len(changed)} pins changed"]))
        elif len(arguments) == 2:
            expected = add_case(Path(arguments[0]), arguments[1])
            print(f"{expected}, to be reviewed:\n{expected.read_text()}", end="")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except HangdocError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
