"""``python -m dump_folders.measure`` (in tests/): how often is hangdoc right on folders of dumps, and torchfrtrace?

    cd tests && ../.venv/bin/python -m dump_folders.measure [--count N] [--seed N] [--plain] [--only WORD] [--keep DIR]
        [--wrong] [--no-torch] [--guide]

Generates the folders, diagnoses each as ``hangdoc diagnose DIR --json`` does, and prints a table by fault. ``--guide``
writes it into the guide's page on dumps, for which ``--plain`` folders are the fair choice: torchfrtrace reads no JSON,
nothing compressed, and only files of one name with the rank behind it.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib.machinery
import io
import json
import logging
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from guide_pages import DUMPS, put_example, put_table

from dump_folders.faults import FAULTS
from dump_folders.folders import DEFAULT, SEED, Case, cases
from dump_folders.oracle import Mark, mark

THRESHOLDS = {"outcome": 0.98, "ranks": 0.95, "cause": 0.90}
"""The least share of folders that has to be right; "certain" is never to be false."""

FRTRACE = ("right", "other ranks", "nobody", "fails")
"""'nobody': it found no mismatch, though there are culprits; 'fails': it ended without an analysis."""
_HEALTHY = {
    "complete": "A healthy job whose calls have all completed.",
    "running": "A healthy job, dumped while it ran.",
    "running_long_skew": "The same, its dumps many seconds apart.",
    "complete_unseen": "A healthy job whose calls have all completed; one dump is lost.",
}
"""The kinds of healthy folders, as the faults' docstrings describe the faults."""


@dataclass
class Answered:
    """A folder and what was said of it."""

    case: Case
    mark: Mark
    frtrace: str | None = None
    """What torch's analyzer named: one of ``FRTRACE``; None: it was not asked."""


def diagnose(folder: Path) -> dict[str, Any] | None:
    """hangdoc's document; None where it refused."""
    from hangdoc import api
    from hangdoc.errors import HangdocError
    from hangdoc.report import document

    try:
        found: dict[str, Any] = json.loads(document.render(api.diagnose(folder)))
    except HangdocError:
        return None
    return found


def frtrace(folder: Path) -> frozenset[int] | None:
    """The ranks that torch's own analyzer names at the first mismatch; None where it failed."""
    # It prints tables with a package that torch does not require, and fails where that is missing: not its analysis.
    stand_in = types.ModuleType("tabulate")
    stand_in.__spec__ = importlib.machinery.ModuleSpec("tabulate", None)  # others ask whether it is there
    sys.modules.setdefault("tabulate", stand_in).__dict__.setdefault("tabulate", _no_table)
    from torch.distributed.flight_recorder.components import builder, config_manager, loader

    prefixes = [[], *([["-p", _prefix(folder)]] if _prefix(folder) else [])]
    for prefix in prefixes:
        with _silent():
            try:
                arguments = config_manager.JobConfig().parse_args([str(folder), "--allow-incomplete-ranks", *prefix])
                details, version = loader.read_dir(arguments)
                found = builder.build_db(details, arguments, version).collectives
            except (Exception, SystemExit):
                continue
            finally:
                gc.enable()
        bad = [each for each in found if not each.pass_check]
        if not bad:
            return frozenset()
        return frozenset(bad[0].missing_ranks or ()) or frozenset(bad[0].mismatch_collectives or ())
    return None


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without what torch's analyzer prints and logs."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


def _no_table(rows: object, headers: object = ()) -> str:
    return ""


def _prefix(folder: Path) -> str:
    names = [path.name for path in folder.rglob("*rank_*") if path.is_file()]
    return names[0].rstrip("0123456789") if names and names[0][-1].isdigit() else ""


def measure(
    made: Iterable[Case],
    folder: Path,
    *,
    answer: Callable[[Path], dict[str, Any] | None] = diagnose,
    torch: bool = False,
) -> list[Answered]:
    """Write each folder below ``folder``, ask, and mark the answer."""
    found = []
    for case in made:
        path = case.write(folder)
        marked = mark(case.truth, answer(path))
        found.append(Answered(case, marked, _frtrace_on(case, path) if torch else None))
    return found


def _frtrace_on(case: Case, folder: Path) -> str:
    """Torch's analyzer on the folder: one of ``FRTRACE``."""
    named = frtrace(folder)
    if named is None:
        return "fails"
    if named in case.truth.culprits:
        return "right"
    return "other ranks" if named else "nobody"


def shares(answered: list[Answered]) -> dict[str, float]:
    """The shares that THRESHOLDS names."""
    return {name: sum(getattr(each.mark, name) for each in answered) / len(answered) for name in THRESHOLDS}


def table(answered: list[Answered]) -> str:
    """By fault, and in all."""
    lines = [
        f"{'fault':18}{'folders':>8}{'outcome':>9}{'ranks':>7}{'cause':>7}{'line':>8}{'all':>6}{'false':>7}{'sure':>6}"
        f"{'refused':>9}{'frtrace':>9}"
    ]
    faults = sorted({each.case.fault for each in answered})
    for name in [*faults, "", "started: recorded", "started: not", ""]:
        if name.startswith("started"):
            mine = [each for each in answered if each.case.dumping.timing == name.endswith("recorded")]
        else:
            mine = [each for each in answered if name in {"", each.case.fault}]
        if mine:
            lines.append(_row(name or "all", mine))
    return "\n".join(lines)


def _row(name: str, mine: list[Answered]) -> str:
    marks = [each.mark for each in mine]
    shown = [m.line for m in marks if m.line is not None]
    lines = f"{sum(shown)}/{len(shown)}"
    torch = "-" if mine[0].frtrace is None else str(_said(mine, "right"))
    right, false = sum(m.right for m in marks), sum(m.certain_and_false for m in marks)
    return (
        f"{name:18}{len(mine):8}{sum(m.outcome for m in marks):9}{sum(m.ranks for m in marks):7}"
        f"{sum(m.cause for m in marks):7}{lines:>8}{right:6}{false:7}"
        f"{sum(m.too_sure for m in marks):6}{sum(m.refused for m in marks):9}{torch:>9}"
    )


def _said(mine: list[Answered], what: str) -> int:
    return sum(each.frtrace == what for each in mine)


def guide_table(answered: list[Answered]) -> str:
    """The same in Markdown: hangdoc and torch's analyzer side by side."""
    head = ["what happened", "folders", "hangdoc: outcome right", "ranks right"]
    head += [f"torchfrtrace: {FRTRACE[0]}", *FRTRACE[1:]]
    described = {name: (fault.__doc__ or name).partition("\n")[0] for name, fault in FAULTS.items()} | _HEALTHY
    rows = [
        _guide_row(text, mine)
        for name, text in described.items()
        if (mine := [each for each in answered if each.case.fault == name])
    ]
    return "\n".join([_markdown(head), _markdown(["---"] * len(head)), *rows, _guide_row("all", answered)])


def _guide_row(text: str, mine: list[Answered]) -> str:
    outcome, ranks = sum(each.mark.outcome for each in mine), sum(each.mark.ranks for each in mine)
    return _markdown([text, str(len(mine)), str(outcome), str(ranks), *(str(_said(mine, what)) for what in FRTRACE)])


def _markdown(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def guide_summary(answered: list[Answered]) -> str:
    """Both in one line."""
    count, sure = len(answered), sum(each.mark.certain_and_false for each in answered)
    ranks = sum(each.mark.ranks for each in answered)
    cause = sum(each.mark.cause for each in answered)
    return (
        f"Right ranks named: hangdoc {ranks}/{count}, torchfrtrace {_said(answered, 'right')}/{count}. "
        f"hangdoc's cause right: {cause}/{count}. hangdoc certain but wrong: {sure} of {count} folders."
    )


def example(folder: Path) -> str:
    """What ``hangdoc diagnose DIR`` prints of the first plain folder, 100 columns wide."""
    from hangdoc import api
    from hangdoc.report import terminal

    found = api.diagnose(next(cases(1, plain=True)).write(folder))
    return terminal.render(found, width=100)


def explained(each: Answered) -> str:
    """One folder that was answered wrongly."""
    truth = each.case.truth
    dumping = each.case.dumping
    codes = [str(cause or "-") for cause in truth.causes] + [f"({code})" for code in truth.guesses - truth.causes]
    ranks = " or ".join(str(sorted(ranks)) for ranks in truth.culprits)
    expected = f"{'/'.join(sorted(truth.outcomes))} {ranks} {'/'.join(sorted(codes))} <= {truth.most_sure}"
    wrong = [name for name in THRESHOLDS if not getattr(each.mark, name)]
    wrong += ["certain and false"] if each.mark.certain_and_false else []
    shown = {
        "timing": dumping.timing, "watchdog": dumping.watchdog, "frames": dumping.frames and not dumping.as_json,
        "only active": dumping.only_active, "ring": dumping.ring, "schema": dumping.schema, "names": dumping.names,
        "json": dumping.as_json, "gz": dumping.zipped, "copied": dumping.copied,
        "older run": dumping.older_run is not None,
    }  # fmt: skip
    options = ", ".join(f"{key}={value}" for key, value in shown.items() if value not in {False, 2000})
    return (
        f"{each.case.name}: {', '.join(wrong)}\n    said      {each.mark.said}\n    expected  {expected}  ({truth.why})"
        f"\n    dumps     {options}"
    )


def _cpu_seconds() -> float:
    """Of this process and of the workers that read the dumps."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def main() -> int:
    """Print the table; 1 where a threshold is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--count", type=int, default=DEFAULT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--only", default="", help="folders whose name contains this")
    parser.add_argument("--plain", action="store_true", help="the newest schema, pickled, under torch's names")
    parser.add_argument("--large", action="store_true", help="meshes of 16 to 64 ranks")
    parser.add_argument("--keep", type=Path, help="write the folders here, and leave them")
    parser.add_argument("--wrong", action="store_true", help="say what was wrong with each answer")
    parser.add_argument("--no-torch", action="store_true", help="without torch's own analyzer")
    parser.add_argument("--guide", action="store_true", help="write the table into hangdoc/guide")
    asked = parser.parse_args()
    if asked.guide and asked.no_torch:
        parser.error("--guide compares with torch's own analyzer: leave out --no-torch")
    drawn = cases(asked.count, asked.seed, plain=asked.plain, large=asked.large)
    made = [case for case in drawn if asked.only in case.name]
    began = _cpu_seconds()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        answered = measure(made, folder, torch=not asked.no_torch)
    if asked.wrong:
        print("\n".join(explained(each) for each in answered if not each.mark.right), end="\n\n")
    print(table(answered))
    if asked.guide:
        put_table("dumps", guide_table(answered), guide_summary(answered), page=DUMPS)
        with tempfile.TemporaryDirectory() as temporary:
            put_example("example", example(Path(temporary)))
    found = shares(answered)
    false = sum(each.mark.certain_and_false for each in answered)
    print(
        "\n" + ", ".join(f"{name} {found[name]:.0%} (goal {least:.0%})" for name, least in THRESHOLDS.items()), end=""
    )
    print(f", certain and false {false} (goal 0); {_cpu_seconds() - began:.0f} CPU s")
    return 0 if not false and all(found[name] >= least for name, least in THRESHOLDS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
