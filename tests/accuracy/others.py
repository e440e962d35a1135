"""What PyTorch's own tools say of the same hangs: does what they print name the right rank?

    python tests/accuracy/others.py [--jobs 2] [--only NAME …] [--keep DIR] [--guide]

Every program of run.py that hangs and whose header names culprits, unmodified but for what
others/others_in_rank.py does inside the ranks:

- torchfrtrace, on dumps of the flight recorder that every rank with a process group writes once the job is
  quiet: as gloo's recorder gives them, and with the members of each group filled in, which only NCCL's has.
  It compares the other ranks with the one whose dump it reads first, so it is also run with each rank's first,
  and the best of these answers counted.
- TORCH_DISTRIBUTED_DEBUG=DETAIL, with a time-out of some seconds: what the job then prints until it ends.

The rule. A tool singles ranks out by calling them missing, different from the rest, or not answering; each such
message is a finding. A tool is right if one finding is exactly the culprits of the header, unless the others
make it all ranks of the job. The rule is generous: of torchfrtrace the first finding of each group counts (after
it, so its source, the pairing is possibly incorrect), and a rank whose dump it misses is named. Under DETAIL each
rank compares itself with one other: a rank that alone occurs in all pairs is named by them, and so is the rank
that the others say they wait for, or whose key they miss in the store. "Nothing" includes a tool that failed.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import run
from hangdoc import scenarios
from hangdoc.scenarios import Scenario

INSIDE = Path(__file__).parent / "others"
RAW = "torchfrtrace, dumps as gloo gives them"
GROUPS = "torchfrtrace, members of groups filled in"
ORDERS = "the same, in the luckiest order of the dumps"
DETAIL = "TORCH_DISTRIBUTED_DEBUG=DETAIL"
RIGHT, WRONG, NOTHING = "right", "wrong", "nothing"
_TIMEOUT = 10
"""Seconds until a waiting collective gives up under DETAIL."""
_SILENT_SECONDS = 2.0 * _TIMEOUT
_LONGEST_SECONDS = 90.0
_DUMP_SECONDS = 10.0
_ANALYSER = """
import sys, traceback
from torch.distributed.flight_recorder.fr_trace import main
for folder in sys.argv[1:]:
    print("==> " + folder, file=sys.stderr)
    # As dumped, a missing rank is all it can see; with the groups, this lets it go on without that rank's dump.
    options = [] if folder.endswith("raw") else ["--allow-incomplete-ranks"]
    try:
        main([folder, "--prefix", "rank_", *options])
    except BaseException:
        traceback.print_exc()
"""


Look = Callable[[Scenario, Path], dict[str, list[tuple[str, "Said"]]]]


@dataclass(frozen=True)
class Said:
    """The ranks that each finding of an output singles out, and all ranks that it speaks of."""

    findings: tuple[frozenset[int], ...]
    ranks: frozenset[int]


@dataclass(frozen=True)
class Result:
    """What came of one tool on one program: RIGHT, WRONG (or all named) or NOTHING."""

    name: str
    tool: str
    verdict: str


def said_by_torchfrtrace(output: str) -> Said:
    """Read what torchfrtrace printed."""
    findings: dict[str, frozenset[int]] = {}
    ranks: set[int] = set()
    group = ""
    for line in output.splitlines():
        what, _, rest = line.partition(": ")
        if what == "group info":
            group = rest
        elif what == "expected ranks":
            ranks |= _numbers(rest)
        elif what == "missing ranks":
            findings.setdefault(group, _numbers(rest))
        elif what == "error msg":
            findings.setdefault(group, frozenset(map(int, re.findall(r"Culprit rank (\d+);", rest))))
        elif found := re.search(r"[Mm]iss\w+ (?:FR )?dump\w*(?: files)? from ranks \(?(\{[\d, ]+\})", line):
            findings.setdefault("dumps", _numbers(found[1]))
    return Said(tuple(findings.values()), frozenset(ranks.union(*findings.values())))


def said_by_detail(output: str) -> Said:
    """Read what a job under TORCH_DISTRIBUTED_DEBUG=DETAIL printed."""
    ranks = set(map(int, re.findall(r"\[[Rr]ank ?(\d+)\]", output)))
    findings = [_numbers(named) for named in re.findall(r"Ranks ([\d, ]+) failed to pass monitoredBarrier", output)]
    for pattern in (
        r"received errors while waiting\s+for send/recv from rank (\d+)",
        r"wait timeout after \d+ms, keys: \S*//cpu//\d+/(\d+)",
    ):
        awaited = frozenset(map(int, re.findall(pattern, output)))
        findings += [awaited] if awaited and not findings else []
    findings += [frozenset({int(rank)}) for rank in re.findall(r"did not receive grad for rank (\d+)", output)]
    pairs = [
        frozenset(map(int, pair))
        for pattern in (
            r"Rank (\d+) is running collective: .*?, but Rank (\d+) is running collective",
            r"expects same model across all ranks, but Rank (\d+) has \d+ params, while rank (\d+) has",
        )
        for pair in re.findall(pattern, output, re.DOTALL)
    ]
    if pairs:
        common = frozenset.intersection(*pairs)
        findings.append(common if len(common) == 1 else frozenset.union(*pairs))
        ranks.update(*pairs)
    return Said(tuple(dict.fromkeys(findings)), frozenset(ranks.union(*findings)))


def _numbers(text: str) -> frozenset[int]:
    return frozenset(map(int, re.findall(r"\d+", text)))


def judge(said: Said, culprits: tuple[int, ...]) -> str:
    """Hold what was said against the culprits of the header."""
    if not said.findings:
        return NOTHING
    named, guilty = frozenset().union(*said.findings), frozenset(culprits)
    return RIGHT if guilty in said.findings and (named == guilty or named < said.ranks) else WRONG


def after_dumps(scenario: Scenario, folder: Path) -> dict[str, list[tuple[str, Said]]]:
    """What torchfrtrace printed on each kind of dumps, and what that says. Empty where the job did not hang."""
    raw = dump(scenario, folder)
    if raw is None:
        return {}
    dumps, groups = raw.parent, raw.parent / "groups"
    orders = _orders(groups, dumps)
    said = _torchfrtrace([raw, groups, *orders])
    return {RAW: said[:1], GROUPS: said[1:2], ORDERS: said[2:] or said[1:2]}


def dump(scenario: Scenario, folder: Path, *, wait: float = 0.0) -> Path | None:
    """Start the program, and let its ranks dump ``wait`` seconds after it came to rest. Returns the folder of the dumps
    as gloo's recorder gives them, beside which there is one with the members of each group; None where it ended."""
    dumps = folder / "dumps"
    raw, groups = dumps / "raw", dumps / "groups"
    raw.mkdir(parents=True)
    groups.mkdir()
    with run.job(scenarios.command(scenario), _with(scenario, OTHERS_DUMPS=str(dumps)), folder) as process:
        if not run.until_quiet(process.pid):
            return None
        time.sleep(wait)
        (dumps / "now").touch()
        deadline = time.monotonic() + _DUMP_SECONDS
        while time.monotonic() < deadline and len(list(groups.iterdir())) < len(list(dumps.glob("joined-*"))):
            time.sleep(0.25)
    return raw


def _orders(groups: Path, dumps: Path) -> list[Path]:
    """A folder for each dump in which that one is read first: torchfrtrace looks into subfolders last."""
    folders = []
    for first in sorted(groups.iterdir()):
        folder = dumps / f"first-{first.name}"
        (folder / "rest").mkdir(parents=True)
        for path in groups.iterdir():
            shutil.copy(path, folder if path == first else folder / "rest")
        folders.append(folder)
    return folders


def _torchfrtrace(folders: list[Path]) -> list[tuple[str, Said]]:
    """Its output for each folder, from one process: most of the time goes into `import torch`."""
    command = [sys.executable, "-c", _ANALYSER, *map(str, folders)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_LONGEST_SECONDS, check=False
    )
    outputs = re.split(r"^==> .*\n", done.stdout, flags=re.MULTILINE)[1:]
    said = []
    for folder, output in zip(folders, outputs, strict=True):
        dumped = frozenset(int(path.name.removeprefix("rank_")) for path in folder.rglob("rank_*"))
        found = said_by_torchfrtrace(output)
        said.append((output, replace(found, ranks=found.ranks | dumped)))
    return said


def under_detail(scenario: Scenario, folder: Path) -> dict[str, list[tuple[str, Said]]]:
    """What the job printed under TORCH_DISTRIBUTED_DEBUG=DETAIL until it ended or was silent for long."""
    # torchrun looks at its workers less often: the first to fail does not silence those that fail a moment later.
    settings = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL", "OTHERS_TIMEOUT": str(_TIMEOUT), "PET_MONITOR_INTERVAL": "3"}
    output = folder / "output"
    with run.job(scenarios.command(scenario), _with(scenario, **settings), folder) as process:
        deadline = time.monotonic() + _LONGEST_SECONDS
        size, changed = 0, time.monotonic()
        while process.poll() is None and time.monotonic() < min(deadline, changed + _SILENT_SECONDS):
            if output.stat().st_size != size:
                size, changed = output.stat().st_size, time.monotonic()
            time.sleep(0.25)
    text = output.read_text(errors="replace")
    return {DETAIL: [(text, said_by_detail(text))]}


def _with(scenario: Scenario, **settings: str) -> Scenario:
    path = os.pathsep.join(filter(None, (str(INSIDE), os.environ.get("PYTHONPATH"))))
    environment = {"PYTHONPATH": path, **settings, **dict(scenario.environment)}
    return replace(scenario, environment=tuple(environment.items()))


def table(results: list[Result]) -> str:
    """The counts in Markdown, one row for each tool."""
    lines = [
        "| tool | programs | right rank named | wrong or all ranks named | nothing said |",
        "|---|---|---|---|---|",
    ]
    for tool in dict.fromkeys(r.tool for r in results):
        verdicts = [r.verdict for r in results if r.tool == tool]
        counts = " | ".join(str(verdicts.count(verdict)) for verdict in (RIGHT, WRONG, NOTHING))
        lines.append(f"| {tool} | {len(verdicts)} | {counts} |")
    return "\n".join(lines)


def summary(results: list[Result]) -> str:
    """The table in one line: 'Right rank named: torchfrtrace, … 3/66; … 33/66.'"""
    verdicts: dict[str, list[str]] = {}
    for result in results:
        verdicts.setdefault(result.tool, []).append(result.verdict)
    told = (f"{tool} {some.count(RIGHT)}/{len(some)}" for tool, some in verdicts.items())
    return f"Right rank named: {'; '.join(told)}."


def one_look(scenario: Scenario, look: Look, keep: Path | None) -> list[Result]:
    """Start it, look at it that way, judge, print a row for each tool. ``keep``: where what they printed goes."""
    with tempfile.TemporaryDirectory(prefix="others-", ignore_cleanup_errors=True) as name:
        copied = replace(scenario, path=Path(shutil.copy(scenario.path, name)))
        said = look(copied, Path(name))
    if not said:
        print(f"{scenario.name:26s} ended by itself: not counted", flush=True)
    results = []
    for tool, answers in said.items():
        verdicts = [judge(found, scenario.culprits or ()) for _, found in answers]
        result = Result(scenario.name, tool, min(verdicts, key=(RIGHT, WRONG, NOTHING).index))
        results.append(result)
        named = " | ".join(" ".join(str(sorted(one)) for one in found.findings) for _, found in answers)
        print(f"{result.name:26s} {tool:44s} {result.verdict:8s} {named}", flush=True)
        if keep is not None:
            keep.mkdir(parents=True, exist_ok=True)
            kept = keep / f"{scenario.name}.{re.sub(r'[^a-zA-Z]+', '-', tool)}.txt"
            kept.write_text("\n".join(output for output, _ in answers), encoding="utf-8")
    return results


def that_hang(only: list[str] | None) -> list[Scenario]:
    """The programs that hang, whose header names culprits, and that can run here. ``only``: of these names."""
    chosen: list[Scenario] = []
    for scenario in run.expected():
        if scenario.outcome != "hang" or not scenario.culprits:
            continue
        if only is not None and scenario.name not in only:
            continue
        if scenario.missing:
            print(f"{scenario.name:26s} not run: {', '.join(scenario.missing)} not installed", flush=True)
            continue
        chosen.append(scenario)
    return chosen


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep what the tools printed")
    parser.add_argument("--guide", "--readme", action="store_true", help="write the table into hangdoc/guide")
    options = parser.parse_args()
    chosen = that_hang(options.only)
    looks = [(scenario, look) for scenario in chosen for look in (after_dumps, under_detail)]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = [result for found in pool.map(lambda each: one_look(*each, options.keep), looks) for result in found]
    text = table(results)
    print(f"\n{text}")
    if options.guide:
        run.put_table("others", text, summary(results))


if __name__ == "__main__":
    main()
