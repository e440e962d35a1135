"""The README and the guide's pages: what they promise is there, and a measurement finds its place."""

from __future__ import annotations

import functools
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib import resources
from pathlib import Path

import guide_pages
import others
import pytest
import typer
from cases import case
from dump_folders import measure
from dump_folders.folders import cases
from dump_folders.oracle import Mark

import hangdoc
import run
from hangdoc.cli import app
from hangdoc.model.diagnosis import Cause, CulpritProcess, Diagnosis
from hangdoc.model.kinds import Outcome
from hangdoc.sidecar.hang_command import HangCommand, variables

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    (tmp_path / "hangdoc/guide").mkdir(parents=True)
    for name in (guide_pages.README, guide_pages.ACCURACY, guide_pages.COST, guide_pages.DUMPS):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", ["try", "tests"])
def test_the_commands_of_the_readme_can_be_cut_out(name: str) -> None:
    assert len(re.findall(rf"^<!-- {name} -->\n```bash\n[^\n]+\n```$", README, re.MULTILINE)) == 1


def test_what_to_do_comes_first() -> None:
    boxes = README.index("hangdoc attach 4711"), README.index("hangdoc watch torchrun")
    assert README.index("pip install hangdoc") < boxes[0] < boxes[1] < README.index("\n## ")


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    assert len(README.splitlines()) < 200
    assert README.index("<!-- try -->") < README.index("<!-- tests -->") < README.index("pip install hangdoc\n")
    assert "**Nothing is sent anywhere**" in README
    pictures = list((ROOT / ".github").glob("*.png"))
    assert pictures
    assert [path.name for path in pictures if path.stat().st_size > 150_000] == []
    assert [path.name for path in pictures if f"(.github/{path.name})" not in README] == []


PAGES = sorted((ROOT / "hangdoc" / "guide").glob("*.md"))


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda path: path.stem)
def test_every_link_leads_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, heading = target.partition("#")
        if name.startswith("https://"):
            continue
        linked = page.parent / name if name else page
        assert linked.exists(), target
        titles = re.findall(r"^#+ (.+)$", linked.read_text(encoding="utf-8"), re.MULTILINE) if heading else []
        anchors = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
        assert not heading or heading in anchors, target


def test_the_index_names_every_page() -> None:
    index = (ROOT / "hangdoc" / "guide" / "index.md").read_text(encoding="utf-8")
    assert [page.name for page in PAGES if page.name != "index.md" and f"({page.name})" not in index] == []


@pytest.mark.parametrize("name", ["quickstart", "containers", "ci", "notebooks", "contributing", "automation"])
def test_the_commands_of_a_page_are_understood(name: str) -> None:
    page = (ROOT / "hangdoc" / "guide" / f"{name}.md").read_text(encoding="utf-8")
    lines = re.findall(r"^(?:    |  run: |      )(hangdoc .+)$", page, re.MULTILINE)
    lines = [line for line in lines if not line.startswith("hangdoc !")]
    assert lines or name == "containers"
    group = typer.main.get_command(app)
    for line in lines:
        _, command, *words = shlex.split(line.partition(" | ")[0])
        found = group.get_command(None, command)
        assert found is not None, line
        if command == "scenario":
            found, words = found.get_command(None, words[0]), words[1:]
        found.make_context(command, words).close()


@pytest.mark.parametrize("name", ["python", "notebooks"])
def test_the_python_of_a_page_runs(name: str, tmp_path: Path) -> None:
    page = (ROOT / "hangdoc" / "guide" / f"{name}.md").read_text(encoding="utf-8")
    shutil.copy(case("uneven_batches"), tmp_path / "hang.hangdoc")
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert blocks
    for block in blocks:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("HANGDOC_")}
        run = functools.partial(subprocess.run, cwd=tmp_path, env=clean, capture_output=True, text=True, timeout=60)
        done = run([sys.executable, "-c", block], check=False)
        assert (done.returncode, done.stderr) == (0, ""), block


def test_the_signatures_of_the_page_are_those_of_the_functions() -> None:
    page = (ROOT / "hangdoc" / "guide" / "python.md").read_text(encoding="utf-8")
    shown = dict(re.findall(r"^\| `hangdoc\.(\w+)(\(.+?)` \|", page.replace(r"\|", "\0"), re.MULTILINE))
    functions = [name for name in hangdoc.__all__ if inspect.isfunction(getattr(hangdoc, name))]
    assert set(shown) == set(functions)
    for name, signature in shown.items():
        real = str(inspect.signature(getattr(hangdoc, name))).replace("'", "")
        assert signature.replace("\0", "|") == real


def test_the_pages_are_shipped_and_linked() -> None:
    guide = resources.files("hangdoc").joinpath("guide")
    index = guide.joinpath("index.md").read_text(encoding="utf-8")
    for name in ("accuracy.md", "cost.md", "dumps.md"):
        assert f"({name})" in index
        assert f"(hangdoc/guide/{name})" in README
        assert guide.joinpath(name).read_text(encoding="utf-8").startswith("# ")
    for name in re.findall(r"\((\w+\.md)\)", index):
        assert guide.joinpath(name).read_text(encoding="utf-8").startswith("# ")


def test_the_commands_of_the_pages_on_hosts_are_understood() -> None:
    guide = resources.files("hangdoc").joinpath("guide")
    names = ("hosts", "ssh", "slurm", "kubernetes", "ray")
    pages = "".join(guide.joinpath(f"{name}.md").read_text(encoding="utf-8") for name in names)
    lines = re.findall(r"^    hangdoc attach (.*)$", pages, re.MULTILINE)
    assert len(lines) > 20
    parameters = {word for line in lines for word in shlex.split(line) if word.startswith("-")}
    shown = subprocess.run(
        [sys.executable, "-m", "hangdoc", "attach", "--help"],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout
    assert {word for word in parameters if word not in shown} == set()


def test_the_scripts_of_the_page_on_automation_do_what_it_says(tmp_path: Path) -> None:
    page = resources.files("hangdoc").joinpath("guide", "automation.md").read_text(encoding="utf-8")
    scripts = re.findall(r"^```sh\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    for name in ("curl", "scontrol"):
        stub = tmp_path / name
        stub.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/{name}-words\ncat > {tmp_path}/{name}-stdin\n')
        stub.chmod(0o700)
    found = Diagnosis(Outcome.HANG, 'Rank 1 "hangs" at $HOME; it\'s …', cause=Cause("HD101", "", ""), culprits=(1,),
                      culprit_processes=(CulpritProcess(1, 7, "hostb", "rank"),))  # fmt: skip
    told = {
        **variables(found, None),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "SLACK_WEBHOOK": "https://hooks.slack.invalid/x",
        "SLURM_JOB_ID": "4711",
        "TEXTFILES": str(tmp_path),
    }
    said: list[str] = []
    for script in scripts:
        command = HangCommand(script, said.append)
        command.start(b"{}", told)
        command.wait()
    assert said == []
    assert json.loads((tmp_path / "curl-stdin").read_text()) == {"text": f"hangdoc: {found.verdict}"}
    assert (tmp_path / "curl-words").read_text().splitlines()[-1] == "https://hooks.slack.invalid/x"
    assert (tmp_path / "scontrol-words").read_text() == "requeue\n4711\n"
    line = r'hangdoc_hang_time_seconds\{cause="HD101",host="hostb"\} \d{10,}\n'
    assert re.fullmatch(line, (tmp_path / "hangdoc.prom").read_text())
    named = set(re.findall(r"`(HANGDOC_[A-Z]+)`", page))
    assert named == variables(found, None).keys()


@pytest.mark.parametrize("name", ["ssh", "slurm", "kubernetes", "ray"])
def test_each_command_of_a_page_is_run_by_a_test_or_marked(name: str) -> None:
    """Above each block of commands stands which test runs it, with all its options, or why none does."""
    page = resources.files("hangdoc").joinpath("guide", f"{name}.md").read_text(encoding="utf-8")
    assert "\n## What is opened, to whom, and how to turn it off\n" in page
    blocks = re.findall(r"(?:^<!-- (.+) -->\n\n|\n)((?:^    .+\n)+)", page, re.MULTILINE)
    assert len(blocks) > 2
    for mark, commands in blocks:
        if re.fullmatch(r"not run: \S.+", mark):
            continue
        found = re.fullmatch(r"run by (tests/[\w/]+\.py)::(\w+)", mark)
        assert found is not None, commands
        file, test = found.groups()
        source = (ROOT / file).read_text(encoding="utf-8")
        assert f"\ndef {test}(" in source, mark
        options = {word.partition("=")[0] for word in re.findall(r"(?<=\s)--[a-z][\w-]*", commands)}
        helpers = (ROOT / "tests" / "helpers" / "two_host_job.py").read_text(encoding="utf-8")
        assert {option for option in options if option not in source + helpers} == set(), mark


def test_the_contributors_page_names_what_exists() -> None:
    page = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = re.findall(r"(?<![.\w])(?:hangdoc|tests)/[\w./]*\w", page)
    assert len(named) > 10
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize(
    ("name", "page"),
    [("accuracy", guide_pages.ACCURACY), ("others", guide_pages.ACCURACY), ("dumps", guide_pages.DUMPS)],
)
def test_the_readme_has_the_last_line_of_each_table(name: str, page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    last = guide_pages._between(ROOT / guide_pages.README, name)
    assert "\n" not in last
    assert text.partition(f"<!-- /{name} -->")[0].splitlines()[-1] == last


def test_a_table_finds_its_place(pages: Path) -> None:
    results = [run.Result("a", "watch", True, True, True, True, None, "certain", "")]
    guide_pages.put_table("accuracy", run.table(results), run.summary(results), pages)
    line = "Right rank named: watch 1/1. Certain but wrong: 0 of 1 runs."
    assert (pages / guide_pages.ACCURACY).read_text().count(f"\n\n{line}\n<!-- /accuracy -->") == 1
    assert f"<!-- accuracy -->\n{line}\n<!-- /accuracy -->" in (pages / guide_pages.README).read_text()
    verdicts = [others.Result("a", "DETAIL", others.RIGHT), others.Result("b", "DETAIL", others.WRONG)]
    guide_pages.put_table("others", others.table(verdicts), others.summary(verdicts), pages)
    assert "Right rank named: DETAIL 1/2." in (pages / guide_pages.README).read_text()


def test_dumps_are_counted_by_fault_beside_torchs_analyzer(pages: Path) -> None:
    late = next(case for case in cases(20, plain=True) if case.fault == "late")
    right = Mark(outcome=True, ranks=True, cause=True, certain_and_false=False, too_sure=False)
    wrong = replace(right, ranks=False)
    answered = [measure.Answered(late, right, "nobody"), measure.Answered(late, wrong, "right")]
    line = (
        "Right ranks named: hangdoc 1/2, torchfrtrace 1/2. hangdoc's cause right: 2/2. "
        "hangdoc certain but wrong: 0 of 2 folders."
    )
    guide_pages.put_table(
        "dumps", measure.guide_table(answered), measure.guide_summary(answered), pages, guide_pages.DUMPS
    )
    page = (pages / guide_pages.DUMPS).read_text()
    assert "file system. | 2 | 2 | 1 | 1 | 0 | 1 | 0 |\n| all | 2 | 2 | 1 | 1 | 0 | 1 | 0 |\n\n" + line in page
    assert f"<!-- dumps -->\n{line}\n<!-- /dumps -->" in (pages / guide_pages.README).read_text()


def test_the_example_of_dumps_is_what_hangdoc_says(pages: Path, tmp_path: Path) -> None:
    before = (pages / guide_pages.DUMPS).read_text()
    guide_pages.put_example("example", measure.example(tmp_path / "folders"), pages)
    assert (pages / guide_pages.DUMPS).read_text() == before


def test_figures_find_their_rows(pages: Path) -> None:
    before = (pages / guide_pages.COST).read_text()
    step = "a small DDP step on 2 ranks, watched against bare, by the clock / in CPU time"
    guide_pages.put_figures({"`hangdoc --help`, which does not import torch": "7.77 s", step: "1.5 / 1.6"}, pages)
    after = (pages / guide_pages.COST).read_text()
    changed = [new for old, new in zip(before.splitlines(), after.splitlines(), strict=True) if old != new]
    assert [line.split(" | ")[1] for line in changed] == ["7.77 s", "1.5 / 1.6"]
    assert f"\nA{step[1:]}: 1.5 / 1.6.\n" in (pages / guide_pages.README).read_text()
    with pytest.raises(KeyError):
        guide_pages.put_figures({"no such row": "1"}, pages)


def test_every_row_that_a_benchmark_measures_is_there() -> None:
    page = (ROOT / guide_pages.COST).read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+?) \| .+ \|$", page, re.MULTILINE)[1:]
    scripts = "".join(path.read_text() for path in (ROOT / "tests" / "benchmarks").glob("*.py"))
    assert len(rows) == 21
    assert [row for row in rows if f'"{row}"' not in re.sub(r'"\s+"', "", scripts)] == []
