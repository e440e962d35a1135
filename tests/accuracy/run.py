"""How often is hangdoc right? Every scenario and extra program, under watch and started bare and attached.

    python tests/accuracy/run.py [--times 3] [--jobs 2] [--attach] [--inject] [--fixed] [--only NAME …] [--guide]
    python tests/accuracy/run.py --suite libraries [--attach] [--inject] …
    python tests/accuracy/run.py --suite devices [--attach]
    python tests/accuracy/run.py --suite large [--attach]
    python tests/accuracy/run.py --suite libraries --two-hosts --only …

Prints one row for each run and a summary; with --guide the table goes into hangdoc/guide/accuracy.md,
and its last line into README.md. The suite "libraries" is of programs that use real libraries at their current
versions (`pip install -e '.[libraries]'`); whatever is not installed is named and left out. The suite "devices" is of
NCCL jobs, all ranks of which share one GPU. The suite "large" is of programs in several packages (large/README.md).
With --two-hosts each program of an even number of ranks also runs split over two hosts, made of namespaces, whose
watches meet.
"Certain" that was wrong is counted apart: it must stay zero.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import end_all
from guide_pages import ACCURACY, put_on_page, put_table
from helpers.hosts import why_not
from helpers.watched_hosts import WatchedHosts

from hangdoc import scenarios
from hangdoc.scenarios import Scenario

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"
LIBRARIES = Path(__file__).parent / "libraries"
DEVICES = Path(__file__).parent / "devices"
LARGE = Path(__file__).parent / "large"
SUITES = ("own", "libraries", "devices", "large")
_A_DEVICE = Path("/dev/nvidiactl")
_QUIET_SECONDS = 4.0
_ONE_QUIET_SECONDS = 8.0
CORRECTED = "watch corrected"
TWO_HOSTS = "two hosts"
_ON_ONE_HOST = re.compile(r"torchrun --standalone --nproc-per-node (\d+)")
ATTACH = [sys.executable, "-m", "hangdoc", "attach"]
_START_SECONDS = 60.0


@dataclass(frozen=True)
class Result:
    """One run: which aspects agreed with the header (None: the header does not say)."""

    name: str
    way: str
    outcome: bool
    culprits: bool | None
    cause: bool | None
    line: bool | None
    branch: bool | None
    confidence: str
    found: str
    ranks: int = 0
    """How many ranks the document tells of."""

    @property
    def aspects(self) -> tuple[bool | None, ...]:
        return self.outcome, self.culprits, self.cause, self.line, self.branch

    @property
    def wrong_and_certain(self) -> bool:
        return self.confidence == "certain" and False in self.aspects


def expected(suite: str = "own") -> list[Scenario]:
    """The programs of a suite. Of our own: scenarios first, then the programs that fit none of them."""
    if suite == "large":
        found = [(path.parent.name, scenarios.read(path)) for path in sorted(LARGE.glob("*/main.py"))]
        return [replace(scenario, name=name) for name, scenario in found if scenario is not None]
    folder = {"libraries": LIBRARIES, "devices": DEVICES}.get(suite, PROGRAMS)
    extra = [found for path in sorted(folder.glob("*.py")) if (found := scenarios.read(path)) is not None]
    return [*scenarios.available(), *extra] if folder == PROGRAMS else extra


def judge(scenario: Scenario, way: str, document: dict[str, Any]) -> Result:
    """Compare one document with the header."""
    rows = {row.what: row for row in scenarios.compare(scenario, document)}

    def agrees(what: str) -> bool | None:
        return rows[what].agrees if what in rows else None

    cause = (document.get("cause") or {}).get("code", "")
    culprits = agrees("culprits")
    if culprits is False and way != "watch":
        # Without history both sides may be possible; naming both is the honest answer.
        sets = [document.get("culprits", []), *document.get("alternatives", [])]
        blamed = scenario.culprits_any if scenario.culprits is None else (scenario.culprits, *scenario.culprits_any)
        culprits = document.get("confidence") == "possible" and any(list(ranks) in sets for ranks in blamed)
    return Result(
        scenario.name,
        way,
        bool(agrees("outcome")),
        culprits,
        agrees("cause"),
        agrees("line"),
        agrees("branch"),
        str(document.get("confidence", "")),
        f"{document.get('outcome', 'nothing')} {document.get('culprits', [])} {cause}",
        len(document.get("ranks", ())),
    )


def judge_healthy(scenario: Scenario, way: str, document: dict[str, Any], status: int | None) -> Result:
    """A healthy job, or a corrected variant, is right if it ends by itself and no word is said against it."""
    right = all(row.agrees for row in scenarios.compare_fixed(document, status))
    found = f"{document.get('outcome', 'nothing')}, exit status {status}"
    confidence = str(document.get("confidence", ""))
    return Result(scenario.name, way, right, None, None, None, None, confidence, found)


def watched(scenario: Scenario, folder: Path) -> tuple[dict[str, Any], int | None]:
    """The document of one run under watch, and the job's exit status (None: it did not end in time)."""
    report = folder / "report.json"
    line = [sys.executable, "-m", "hangdoc", "watch", "--stall-after", str(scenarios.STALL_AFTER), "--quiet"]
    line += ["--on-hang", "abort", "--report", str(report), "--run-dir", str(folder / "run"), *scenario.watch, "--"]
    with job([*line, *scenarios.command(scenario)], scenario, folder) as process:
        status = status_of(process, scenario)
    return (json.loads(report.read_text()) if report.exists() else {}), status


def status_of(process: subprocess.Popen[bytes], scenario: Scenario) -> int | None:
    """Its exit status; None where it did not end in time."""
    try:
        return process.wait(scenario.timeout)
    except subprocess.TimeoutExpired:
        print(f"  {scenario.name}: no end within {scenario.timeout:.0f} s")
        return None


def attached(scenario: Scenario, folder: Path, *options: str) -> dict[str, Any]:
    """The document of an attach to the same job, started bare and left until nothing moves."""
    until = time.monotonic() + scenario.timeout
    with job(scenarios.command(scenario), scenario, folder) as process:
        while True:
            if not until_quiet(process.pid):
                return {"outcome": "ended"}
            document = _attach(scenario, process.pid, folder, *options)
            # A rank that compiles may leave another one quiet for long: who is told so looks again later.
            if document.get("outcome") != "healthy" or time.monotonic() > until:
                return document


def _attach(scenario: Scenario, pid: int, folder: Path, *options: str) -> dict[str, Any]:
    answer = subprocess.run(
        [*ATTACH, str(pid), "--json", "--save", str(folder / "attach.hangdoc"), *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    try:
        return dict(json.loads(answer.stdout))
    except ValueError:
        print(f"  {scenario.name}: attach said: {answer.stderr.strip()[:300]}")
        return {}


def can_span_hosts(scenario: Scenario) -> bool:
    """True if torchrun starts it, with as many ranks on each of two hosts."""
    found = _ON_ONE_HOST.fullmatch(scenario.launch)
    return found is not None and int(found[1]) % 2 == 0


def on_two_hosts(scenario: Scenario, folder: Path) -> dict[str, Any]:
    """The document of the watch that leads, where each half of the ranks runs on a host of its own, watched there."""
    found = _ON_ONE_HOST.fullmatch(scenario.launch)
    assert found is not None
    names = ("hosta", "hostb")
    mark = f"accuracy-{os.getpid()}-{time.monotonic_ns()}"
    made = WatchedHosts(folder, mark, *names)
    try:
        for name in names:
            line = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--rdzv-backend", "c10d"]
            line += ["--nproc-per-node", str(int(found[1]) // 2), "--rdzv-endpoint", "hosta:29500", "--rdzv-id", "two"]
            options = ["--stall-after", str(scenarios.STALL_AFTER), "--on-hang", "abort", *scenario.watch]
            options += ["--report", str(folder / f"report-{name}.json")]
            made.launch(
                name, [*line, str(scenario.path)], options, {**dict(scenario.environment), "TMPDIR": str(folder)}
            )
        until = time.monotonic() + scenario.timeout + _START_SECONDS
        for watch in made.watches.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                watch.wait(max(1.0, until - time.monotonic()))
    finally:
        made.hosts.close()
        end_all(mark)
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("report-*.json"))]
    return max(reports, key=lambda report: len(report.get("ranks", ())), default={})


class job:
    """A command in a session of its own; at the end its whole family is gone."""

    def __init__(self, command: list[str], scenario: Scenario, folder: Path) -> None:
        self._command = command
        plain = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
        self._environment = {**plain, **dict(scenario.environment), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
        self._folder = folder

    def __enter__(self) -> subprocess.Popen[bytes]:
        with (self._folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                self._command,
                env=self._environment,
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        return self._process

    def __exit__(self, *_: object) -> None:
        for process in [*_family(self._process.pid), *_in_folder(self._folder)]:
            try:
                process.kill()
            except psutil.Error:
                continue
        self._process.wait()


def _family(pid: int) -> list[psutil.Process]:
    try:
        root = psutil.Process(pid)
        return [*root.children(recursive=True), root]
    except psutil.Error:
        return []


def _in_folder(folder: Path) -> Iterator[psutil.Process]:
    """Whoever still works in the run's own folder: ranks that left the process tree."""
    for process in psutil.process_iter():
        try:
            if Path(process.cwd()) == folder:
                yield process
        except psutil.Error:
            continue


def until_quiet(pid: int) -> bool:
    """Wait until the family has used no CPU time for some seconds, or one below its root for longer; False if it
    ended first."""
    deadline, quiet_since, before = time.monotonic() + _START_SECONDS, time.monotonic(), -1.0
    last_used: dict[int, tuple[float, float]] = {}
    while time.monotonic() < deadline:
        family = _family(pid)
        if len(family) < 2 and (not family or family[0].status() == psutil.STATUS_ZOMBIE):
            return False
        used = 0.0
        for process in family:
            try:
                times = process.cpu_times()
            except psutil.Error:
                continue
            own = times.user + times.system
            used += own
            if process.pid != pid and own - last_used.get(process.pid, (-1.0, 0.0))[0] > 0.1:
                last_used[process.pid] = own, time.monotonic()
        if used - before > 0.3:
            before, quiet_since = used, time.monotonic()
        elif time.monotonic() - quiet_since > _QUIET_SECONDS and len(family) > 1:
            return True
        alive = {process.pid for process in family}
        if any(p in alive and time.monotonic() - since > _ONE_QUIET_SECONDS for p, (_, since) in last_used.items()):
            return True
        time.sleep(0.25)
    return True


def share(results: list[Result], aspect: str) -> str:
    """'41/42 (98 %)' of those runs whose header says something about the aspect."""
    judged = [value for r in results if (value := getattr(r, aspect)) is not None]
    good = sum(judged)
    return f"{good}/{len(judged)} ({100 * good / len(judged):.0f} %)" if judged else "–"


def table(results: list[Result]) -> str:
    """The summary in Markdown, one row for each way of looking."""
    aspects = ["outcome", "culprits", "cause", "line"] + ["branch"] * any(r.branch is not None for r in results)
    head = ["", "runs", *aspects, "certain but wrong"]
    lines = [f"| {' | '.join(head)} |".replace("|  |", "| |"), "|---" * len(head) + "|"]
    for way in dict.fromkeys(r.way for r in results):
        mine = [r for r in results if r.way == way]
        shares = " | ".join(share(mine, aspect) for aspect in aspects)
        lines.append(f"| {way} | {len(mine)} | {shares} | {sum(r.wrong_and_certain for r in mine)} |")
    return "\n".join(lines)


def summary(results: list[Result]) -> str:
    """The table in one line: 'Right rank named: watch 216/216. Certain but wrong: 0 of 225 runs.'"""
    ways = dict.fromkeys(r.way for r in results)
    shares = ", ".join(f"{way} {share([r for r in results if r.way == way], 'culprits').split()[0]}" for way in ways)
    wrong = sum(r.wrong_and_certain for r in results)
    return f"Right rank named: {shares}. Certain but wrong: {wrong} of {len(results)} runs."


def open_cases(results: list[Result]) -> str:
    """'"Possible" in 3 of 40 runs of more than two ranks.'"""
    large = [r for r in results if r.ranks > 2]
    return (
        f'"Possible" in {sum(r.confidence == "possible" for r in large)} of {len(large)} runs of more than two ranks.'
    )


def one_run(scenario: Scenario, way: str, keep: Path | None = None) -> Result:
    """Start it, look at it that way, judge, print a row. ``keep``: where the run's folder goes if it was wrong."""
    with tempfile.TemporaryDirectory(prefix="accuracy-") as name:
        folder = Path(name)
        # A copy in the run's own folder: code below site-packages would be library code.
        copied = replace(scenario, path=put_into(scenario.path, folder))
        if way == CORRECTED:
            copied = replace(copied, environment=(*copied.environment, ("FIXED", "1")))
            result = judge_healthy(copied, way, *watched(copied, folder))
        elif scenario.outcome == "healthy":
            result = judge_healthy(copied, way, *watched(copied, folder))
        elif way == TWO_HOSTS:
            result = judge(copied, way, on_two_hosts(copied, folder))
        elif way == "watch":
            result = judge(copied, way, watched(copied, folder)[0])
        else:
            result = judge(copied, way, attached(copied, folder, *way.split()[1:]))
        if keep is not None and False in result.aspects:
            shutil.copytree(folder, keep / f"{folder.name}-{result.name}-{way.replace(' ', '')}")
    marks = " ".join("·" if value is None else "ok" if value else "NO" for value in result.aspects)
    print(f"{result.name:26s} {way:16s} {marks:17s} {result.confidence:9s} {result.found}", flush=True)
    return result


def put_into(script: Path, folder: Path) -> Path:
    """Where the script lies in ``folder`` once it, or the large program whose entry it is, was copied there."""
    if script.parent.parent != LARGE:
        return Path(shutil.copy(script, folder))
    left_out = shutil.ignore_patterns("__pycache__", "answer.json")
    return Path(shutil.copytree(script.parent, folder / script.parent.name, ignore=left_out)) / script.name


def main() -> int:
    """Run what was asked for; exit status 1 if a certain verdict was wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", choices=SUITES, default="own", help="which programs")
    parser.add_argument("--times", type=int, default=1, help="runs under watch for each program")
    parser.add_argument("--attach", action="store_true", help="also start it bare and attach")
    parser.add_argument("--inject", action="store_true", help="also attach with --inject")
    parser.add_argument("--fixed", action="store_true", help="also run each scenario's corrected variant under watch")
    parser.add_argument("--two-hosts", action="store_true", help="also run each split over two hosts with a watch each")
    parser.add_argument("--only", nargs="*", default=None, metavar="NAME")
    parser.add_argument("--no-watch", action="store_true")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time")
    parser.add_argument("--keep", type=Path, help="where to put the folders of runs that were wrong")
    parser.add_argument("--guide", "--readme", action="store_true", help="write the table into hangdoc/guide")
    options = parser.parse_args()
    if options.suite == "devices" and not _A_DEVICE.exists():
        print(f"nothing run: this machine has no NVIDIA device ({_A_DEVICE})")
        return 0
    if options.two_hosts and why_not():
        print(f"no runs on two hosts: {why_not()}")
        options.two_hosts = False
    runs: list[tuple[Scenario, str]] = []
    for scenario in expected(options.suite):
        if options.only is not None and scenario.name not in options.only:
            continue
        if scenario.missing:
            print(f"{scenario.name:26s} not run: {', '.join(scenario.missing)} not installed", flush=True)
            continue
        ways = [] if options.no_watch else ["watch"] * options.times
        ways += [CORRECTED] * (options.fixed and scenario.path.parent not in (PROGRAMS, LIBRARIES, DEVICES))
        if scenario.outcome not in ("crashed", "healthy"):
            ways += ["attach"] * options.attach + ["attach --inject"] * options.inject
            ways += [TWO_HOSTS] * (options.two_hosts and can_span_hosts(scenario))
        runs += [(scenario, way) for way in ways]
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda run: one_run(*run, options.keep), runs))
    text = table(results)
    print(f"\n{text}\n{open_cases(results)}")
    if options.guide and options.suite == "libraries":
        put_on_page(ACCURACY, "libraries", f"{text}\n\n{open_cases(results)}")
    elif options.guide:
        put_table("accuracy", text, summary(results))
    return 1 if any(r.wrong_and_certain for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
