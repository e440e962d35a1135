"""Turn a saved snapshot into a regression case, or renew what is pinned of the cases.

    python tests/add_case.py SNAPSHOT NAME

writes NAME.hangdoc, with the names of this machine's folders and hosts replaced, into the folder of its cause below
tests/data, and adds a row to that folder's expected.json, the expectation: outcome, cause, culprits and lines as they
are diagnosed now. Review the row, and correct it where the verdict is wrong: it says what the verdict must be, and
tests/unit/test_cases.py fails until it is. Where that has to wait, say why there: "expected_failure": "why".

    python tests/add_case.py --update [NAME …]

writes anew the pins of the cases named, or of all: the row of pins.json, every fact of the diagnosis, and NAME.txt, the
report in 100 columns, where there is one. Pins hold what the code says now; read their diff before you commit it.
Expectations are never overwritten: only a person changes those. Where one now names another cause, the case moves to
that cause's folder.

With --text, either of them makes NAME.txt for the cases named. Few need one: see tests/cases.py.
"""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from cases import (
    DATA,
    EXPECTED,
    PINNED,
    case,
    change_table,
    diagnosed,
    expectation,
    facts,
    home,
    names,
    row,
    table,
    text_path,
    with_text,
    write_rows,
)

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


def add_case(source: Path, name: str, folder: Path = DATA, *, text: bool = False) -> Path:
    """Write the case and return the path of its snapshot. Raises ``HangdocError``."""
    if not re.fullmatch(r"[a-z0-9_]+", name):
        raise UsageError(f"{name!r} is no name for a case", "Use lower-case letters, digits and underscores.")
    if there := next((path for path in folder.glob(f"*/{EXPECTED}") if name in table(path)), None):
        raise UsageError(f"there is a case {name} already", f"Choose another name, or take it out of {there} first.")
    snapshot = without_this_machine(api.load(source))
    expected = expectation(diagnosis_document(api.diagnose(snapshot)))
    saved = home(expected, folder) / f"{name}.hangdoc"
    saved.parent.mkdir(parents=True, exist_ok=True)
    dump_snapshot(snapshot, saved)
    saved.chmod(0o644)
    write_rows({name: expected}, folder)
    update([name], folder, text=text)
    return saved


def update(chosen: Sequence[str], folder: Path = DATA, *, text: bool = False) -> list[str]:
    """Write the pins of these cases anew and return what changed: a table with the case's name, or a text.

    ``text``: also of those that have none yet. Raises ``HangdocError``.
    """
    if unknown := set(chosen) - set(names(folder)):
        raise UsageError(f"there is no case {min(unknown)}", f"The cases are the .hangdoc files of {folder}.")
    changed = []
    for name in chosen:
        put_in_place(name, folder)
        now, path = diagnosed(name, folder), text_path(name, folder)
        if change_table(path.with_name(PINNED), {name: facts(now.document)}):
            changed.append(f"{path.with_name(PINNED)}: {name}")
        if (text or path.exists()) and (not path.exists() or path.read_text(encoding="utf-8") != now.text):
            write_atomically(path, now.text.encode())
            changed.append(str(path))
    return changed


def put_in_place(name: str, folder: Path = DATA) -> None:
    """Move a case to the folder of the cause that it is expected to have."""
    expected, old = row(name, folder), case(name, folder).parent
    new = home(expected, folder)
    if old != new:
        new.mkdir(exist_ok=True)
        for kind, rows in ((EXPECTED, {name: expected}), (PINNED, {name: table(old / PINNED).get(name)})):
            change_table(new / kind, rows)
            change_table(old / kind, {name: None})
        for path in sorted(old.glob(f"{name}.*")):
            path.rename(new / path.name)


def update_all(folder: Path = DATA) -> list[str]:
    """Write the pins of every case anew, take out those of cases that are gone, and return what changed."""
    there = names(folder)
    changed = update(there, folder)
    for path in folder.glob(f"*/{PINNED}"):
        gone = sorted(set(table(path)) - set(there))
        change_table(path, dict.fromkeys(gone))
        changed += [f"{path}: {name}" for name in gone]
    for path in folder.glob("*/*.txt"):
        if path.stem not in there:
            path.unlink()
            changed.append(str(path))
    return changed


def main(arguments: list[str]) -> int:
    text = "--text" in arguments
    arguments = [argument for argument in arguments if argument != "--text"]
    try:
        if arguments[:1] == ["--update"]:
            chosen = arguments[1:]
            if text and not chosen:
                raise UsageError("--text needs the names of cases", f"{len(with_text())} of them have a text.")
            changed = update(chosen, text=text) if chosen else update_all()
            print("\n".join([*changed, f"{len(changed)} pins changed"]).replace(f"{ROOT}/", ""))
        elif len(arguments) == 2:
            saved = add_case(Path(arguments[0]), arguments[1], text=text)
            print(f"{saved.with_name(EXPECTED)}, to be reviewed:\n{json.dumps(row(saved.stem))}")
        else:
            print(__doc__, file=sys.stderr)
            return 2
    except HangdocError as error:
        print(error, file=sys.stderr)
        return error.exit_status
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
