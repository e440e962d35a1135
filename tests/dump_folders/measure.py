"""``python -m dump_folders.measure`` (in tests/): how often is hangdoc right on folders of dumps, and torchfrtrace?

    cd tests && ../.venv/bin/python -m dump_folders.measure [--count N] [--seed N] [--plain] [--only WORD] [--keep DIR]
        [--wrong] [--no-torch]

Generates the folders, diagnoses each as ``hangdoc diagnose DIR --json`` does, and prints a table by fault.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import sys
import tempfile
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dump_folders.folders import DEFAULT, SEED, Case, cases
from dump_folders.oracle import Mark, mark

THRESHOLDS = {"outcome": 0.98, "ranks": 0.95, "cause": 0.90}
"""The least share of folders that has to be right; "certain" is never to be false."""


@dataclass
class Answered:
    """A folder and what was said of it."""

    case: Case
    mark: Mark
    frtrace: bool | None = None
    """Did torch's analyzer name the right ranks? None: it was not asked."""


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
    sys.modules.setdefault("tabulate", types.ModuleType("tabulate")).__dict__.setdefault("tabulate", _no_table)
    from torch.distributed.flight_recorder.components import builder, config_manager, loader

    prefixes = [[], *([["-p", _prefix(folder)]] if _prefix(folder) else [])]
    for prefix in prefixes:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
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
        named = frtrace(path) in case.truth.culprits if torch else None
        found.append(Answered(case, marked, named))
    return found


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
    torch = "-" if mine[0].frtrace is None else str(sum(bool(each.frtrace) for each in mine))
    right, false = sum(m.right for m in marks), sum(m.certain_and_false for m in marks)
    return (
        f"{name:18}{len(mine):8}{sum(m.outcome for m in marks):9}{sum(m.ranks for m in marks):7}"
        f"{sum(m.cause for m in marks):7}{lines:>8}{right:6}{false:7}"
        f"{sum(m.too_sure for m in marks):6}{sum(m.refused for m in marks):9}{torch:>9}"
    )


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
    parser.add_argument("--keep", type=Path, help="write the folders here, and leave them")
    parser.add_argument("--wrong", action="store_true", help="say what was wrong with each answer")
    parser.add_argument("--no-torch", action="store_true", help="without torch's own analyzer")
    asked = parser.parse_args()
    made = [case for case in cases(asked.count, asked.seed, plain=asked.plain) if asked.only in case.name]
    began = _cpu_seconds()
    with tempfile.TemporaryDirectory() as temporary:
        folder = asked.keep or Path(temporary)
        answered = measure(made, folder, torch=not asked.no_torch)
    if asked.wrong:
        print("\n".join(explained(each) for each in answered if not each.mark.right), end="\n\n")
    print(table(answered))
    found = shares(answered)
    false = sum(each.mark.certain_and_false for each in answered)
    print(
        "\n" + ", ".join(f"{name} {found[name]:.0%} (goal {least:.0%})" for name, least in THRESHOLDS.items()), end=""
    )
    print(f", certain and false {false} (goal 0); {_cpu_seconds() - began:.0f} CPU s")
    return 0 if not false and all(found[name] >= least for name, least in THRESHOLDS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
