"""The runnable reproductions: find them, read their expected verdicts, run one and compare."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Any

from hangdoc import interpreter
from hangdoc.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

STALL_AFTER = 5
"""Seconds; the scenarios are small."""
TIME_LIMIT = 100.0
"""Seconds for one run, unless the scenario sets ``timeout``."""
_PATIENCE = 20.0
"""Seconds between asking a run to end and killing it."""
_OPEN, _CLOSE = "# /// hangdoc", "# ///"
_LITERAL = re.compile(r"\"[^\"]*\"|'[^']*'")
_QUOTED = re.compile(r"\"[^\"]*\"")


@dataclass(frozen=True, slots=True)
class Scenario:
    """A script and the verdict that it must get. ``culprits`` or ``cause`` None: not compared.

    ``culprits_any``, ``causes_any``: where the truth leaves more than one answer, each of which is right.
    """

    name: str
    path: Path
    story: str
    launch: str
    outcome: str
    cause: str | None = None
    culprits: tuple[int, ...] | None = None
    lines: tuple[int, ...] = ()
    """The verdict must name one of them."""
    file: str = ""
    """The file that the lines are of, where it is not the script."""
    source: str = ""
    environment: tuple[tuple[str, str], ...] = ()
    watch: tuple[str, ...] = ()
    """Further options for `hangdoc watch`."""
    timeout: float = TIME_LIMIT
    requires: tuple[str, ...] = ()
    """Packages, by the names that are imported, that the script needs besides torch."""
    branch: tuple[str, ...] = ()
    """Pieces of source, one of which the condition that parted the ranks must contain."""
    culprits_any: tuple[tuple[int, ...], ...] = ()
    causes_any: tuple[str, ...] = ()

    @property
    def missing(self) -> tuple[str, ...]:
        """Those of them that this Python does not have."""
        return tuple(name for name in self.requires if not installed(name))

    @property
    def title(self) -> str:
        """First line of the story."""
        return self.story.partition("\n")[0].strip()


@dataclass(frozen=True, slots=True)
class Comparison:
    """One aspect of the verdict, expected and found."""

    what: str
    expected: str
    found: str
    agrees: bool


def available() -> list[Scenario]:
    """All scenarios by name: those packed into the installed wheel, else those of the checkout."""
    package = Path(__file__).parent
    for folder in (package / "_scenarios", package.parent / "scenarios"):
        scripts = sorted(folder.glob("*.py"))
        found = [scenario for script in scripts if (scenario := read(script)) is not None]
        if found:
            return found
    return []


def find(name: str) -> Scenario:
    """The scenario with that name. Raises ``UsageError`` with the nearest names."""
    import difflib

    from hangdoc.model.wording import harmless

    scenarios = {scenario.name: scenario for scenario in available()}
    if name in scenarios:
        return scenarios[name]
    close = difflib.get_close_matches(name, scenarios, n=3, cutoff=0.4)
    hint = f"Did you mean {', '.join(close)}?" if close else "`hangdoc scenario list` names them."
    raise UsageError(f"no scenario is called '{harmless(name)}'", hint)


def read(path: Path) -> Scenario | None:
    """The scenario in the script at ``path``; None where it has no such block. Raises ``UsageError``."""
    text = path.read_text(encoding="utf-8")
    block = _block(text)
    if block is None:
        return None
    try:
        table = tomllib.loads(block)
        return Scenario(
            name=path.stem,
            path=path,
            story=ast.get_docstring(ast.parse(text)) or "",
            launch=str(table["launch"]),
            outcome=str(table["outcome"]),
            cause=table.get("cause"),
            culprits=tuple(sorted(table["culprits"])) if "culprits" in table else None,
            lines=tuple(table.get("lines", ())),
            file=str(table.get("file", "")),
            source=str(table.get("source", "")),
            environment=tuple((str(key), str(value)) for key, value in table.get("env", {}).items()),
            watch=tuple(shlex.split(table.get("watch", ""))),
            timeout=float(table.get("timeout", TIME_LIMIT)),
            requires=tuple(str(name) for name in table.get("requires", ())),
            branch=tuple(str(text) for text in table.get("branch", ())),
            culprits_any=tuple(tuple(sorted(ranks)) for ranks in table.get("culprits_any", ())),
            causes_any=tuple(str(code) for code in table.get("causes_any", ())),
        )
    except (KeyError, TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise UsageError(f"the header of {path} cannot be read: {error!r}", "See a scenario beside it.") from error


def _block(text: str) -> str | None:
    """The lines between the markers, without their comment signs."""
    lines = iter(text.splitlines())
    if _OPEN not in (line.rstrip() for line in lines):
        return None
    content: list[str] = []
    for line in lines:
        if line.rstrip() == _CLOSE:
            return "\n".join(content)
        if not line.startswith("#"):
            return None
        content.append(line[1:].removeprefix(" "))
    return None


def installed(name: str) -> bool:
    """True if this Python can import a module of that name."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # the package that it would be in
        return False


def command(scenario: Scenario) -> list[str]:
    """The command that launches it, with the tools of this Python's environment before those of PATH."""
    words = shlex.split(scenario.launch)
    beside = str(Path(sys.executable).parent)
    if words[0] == "python":
        words[0] = sys.executable
    else:
        words[0] = shutil.which(words[0], path=os.pathsep.join((beside, os.environ.get("PATH", "")))) or words[0]
    return [*words, str(scenario.path)]


def run(scenario: Scenario, *, fixed: bool = False, output: Path | None = None) -> list[Comparison]:
    """Run the scenario under watch and compare. ``output`` gets the output of job and watch (else inherited, and what
    the watch saved stays in a temporary folder, which that output names).

    With ``fixed`` the corrected variant must end by itself, healthy. Returns within the scenario's timeout
    and some seconds; ends every process that it started.
    """
    # The user's own options of hangdoc are not part of the experiment.
    # GitHub is not told of a hang that is wanted.
    ours = ("HANGDOC_", "GITHUB_ACTIONS")
    plain = {name: value for name, value in interpreter.environment().items() if not name.startswith(ours)}
    environment = {**plain, **dict(scenario.environment), "FIXED": "1" if fixed else "0"}
    folder = Path(tempfile.mkdtemp(prefix="hangdoc-scenario-"))
    try:
        # A copy: code below site-packages is library code to the diagnosis, and rightly so.
        copied = replace(scenario, path=Path(shutil.copy(scenario.path, folder)))
        report = folder / "report.json"
        code = "from hangdoc.__main__ import main; sys.exit(main())"
        watch = interpreter.command(code, "watch", "--stall-after", str(STALL_AFTER))
        watch += ["--on-hang", "abort", "--report", str(report), "--run-dir", str(folder / "run")]
        line = [*watch, *scenario.watch, "--", *command(copied)]
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(output.open("wb")) if output is not None else None
            status = run_to_end(line, environment, scenario.timeout, file)
        document = _document(report)
    finally:
        # What the watch saved and named to the user stays, for `hangdoc diagnose` and a browser.
        if output is not None or not any((folder / "run").glob("*.hangdoc")):
            shutil.rmtree(folder, ignore_errors=True)
    return compare_fixed(document, status) if fixed else compare(scenario, document)


def compare(scenario: Scenario, document: Mapping[str, Any]) -> list[Comparison]:
    """Hold a diagnosis document against what the scenario expects."""
    outcome = str(document.get("outcome", "no diagnosis"))
    rows = [Comparison("outcome", scenario.outcome, outcome, outcome == scenario.outcome)]
    causes = scenario.causes_any if scenario.cause is None else (scenario.cause, *scenario.causes_any)
    if causes:
        cause = str((document.get("cause") or {}).get("code", ""))
        rows.append(Comparison("cause", " or ".join(causes), cause or "none", cause in causes))
    blamed = scenario.culprits_any if scenario.culprits is None else (scenario.culprits, *scenario.culprits_any)
    if blamed:
        culprits = tuple(document.get("culprits", ()))
        rows.append(Comparison("culprits", " or ".join(map(_listed, blamed)), _listed(culprits), culprits in blamed))
    if scenario.lines:
        named = named_lines(document, scenario.file or scenario.path.name)
        rows.append(
            Comparison("line", _listed(scenario.lines), _listed(sorted(named)), bool(named & set(scenario.lines)))
        )
    if scenario.branch:
        branch = (document.get("divergence") or {}).get("branch") or {}
        told = " ".join(
            str(text or "") for text in (branch.get("condition"), document.get("verdict"), document.get("why"))
        )
        agrees = any(is_told(each, told) for each in scenario.branch)
        rows.append(Comparison("branch", " or ".join(scenario.branch), str(branch.get("condition") or "none"), agrees))
    return rows


def is_told(condition: str, told: str) -> bool:
    """True if the words hold the condition as the source has it, or as a document shows it, which has no literal text
    of the source: `f"…{step}" in done` of `f"done/{step}" in done`."""
    shown = _unspaced(_LITERAL.sub('"…"', condition))
    return _unspaced(condition) in _unspaced(told) or shown in _unspaced(_QUOTED.sub('"…"', told))


def _unspaced(text: str) -> str:
    return "".join(text.split())


def compare_fixed(document: Mapping[str, Any], status: int | None) -> list[Comparison]:
    """The corrected variant ends by itself with status 0 and no verdict of hang or crash."""
    ended = "never" if status is None else f"status {status}"
    outcome = str(document.get("outcome", "healthy"))
    return [
        Comparison("end", "status 0", ended, status == 0),
        Comparison("outcome", "healthy", outcome, outcome in ("healthy", "slow")),
    ]


def named_lines(document: Mapping[str, Any], file: str) -> set[int]:
    """The lines of ``file`` that the verdict names: in its sentences, at the divergence, or of a culprit."""
    sentences = " ".join(str(document.get(key) or "") for key in ("verdict", "why", "fix"))
    lines = {int(number) for number in re.findall(r"(?<![\w.-])" + re.escape(file) + r":(\d{1,7})", sentences)}
    divergence = document.get("divergence") or {}
    places = [side.get("frame") for side in divergence.get("sides", ())]
    places.append(divergence.get("branch"))
    culprits = set(document.get("culprits", ()))
    places += [item.get("where") for item in document.get("ranks", ()) if item.get("rank") in culprits]
    lines |= {place["line"] for place in places if place and PurePosixPath(place["file"]).name == file}
    return lines


def _listed(numbers: object) -> str:
    items = list(numbers) if isinstance(numbers, (list, tuple)) else []
    return ", ".join(map(str, items)) or "none"


def _document(report: Path) -> dict[str, Any]:
    try:
        document = json.loads(report.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def run_to_end(command: list[str], environment: dict[str, str], timeout: float, output: IO[bytes] | None) -> int | None:
    """Exit status of the command, None where it had to be ended: it, and all that it started."""
    with subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        start_new_session=True,
    ) as process:
        try:
            return process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        finally:
            if process.poll() is None:
                _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the watch the polite way, then whatever is left of it and its job."""
    import psutil

    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    process.terminate()
    deadline = time.monotonic() + _PATIENCE
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
    for member in psutil.wait_procs(family, max(0.0, deadline - time.monotonic()))[1]:
        with contextlib.suppress(psutil.Error):
            member.kill()
