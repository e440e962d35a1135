"""The program's own modules, whole: which, in what order, how many, and what is said of the others."""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from hangdoc.capture.read import whole_modules as bounds
from hangdoc.capture.read.parsed_files import ParsedFiles
from hangdoc.capture.read.source_files import Witness
from hangdoc.capture.read.sources import Sources
from hangdoc.capture.safe.open_files import user_of
from hangdoc.model.marks import Marks
from hangdoc.model.process import Frame
from hangdoc.model.snapshot import Module, Unavailable

Found = tuple[tuple[Module, ...], tuple[Unavailable, ...]]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """train.py → work/steps.py → work/rules.py ↔ work/deep/base.py; work/plugins.py is loaded by name."""
    files = {
        "train.py": "import json, numpy\nfrom work import steps\n\ndef main():\n    steps.run()\n",
        "work/__init__.py": "",
        "work/steps.py": "from . import rules\nfrom .deep.base import Base\n\ndef run():\n    rules.check()\n",
        "work/rules.py": "import work.deep.base\n\ndef check():\n    return 'ready/a'\n",
        "work/deep/__init__.py": "",
        "work/deep/base.py": "from ... import gone\nfrom .. import rules\nfrom ..rules import *\nclass Base: x = 1\n",
        "work/plugins.py": "def plugin():\n    pass\n",
        "unused.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def kept(folder: Path, *names: str, loaded: Sequence[str] = (), seconds: float = 60, started: float = 0) -> Found:
    witness = Witness(os.getpid(), started or time.time() + 60, user_of(os.getpid()))
    frames = tuple(Frame(str(folder / name), 1, "<module>") for name in names)
    found = Sources([frames], ParsedFiles([witness], marks=Marks()))
    return found.of_modules([str(folder / name) for name in loaded], time.monotonic() + seconds)


def names_of(found: Found, folder: Path) -> list[str]:
    return [str(Path(module.file).relative_to(folder)) for module in found[0]]


def test_imports_are_followed_on_disk(program: Path) -> None:
    found = kept(program, "train.py")
    assert names_of(found, program) == [
        *("train.py", "work/__init__.py", "work/steps.py"),
        *("work/rules.py", "work/deep/__init__.py", "work/deep/base.py"),
    ]
    assert found[1] == ()
    (rules,) = (module for module in found[0] if module.file.endswith("rules.py"))
    assert rules.digest == "sha256:" + hashlib.sha256((program / "work/rules.py").read_bytes()).hexdigest()
    assert rules.text.startswith("import work.deep.base\n\ndef check():\n    return '…")


def test_what_stacks_import_comes_before_what_else_is_loaded(program: Path) -> None:
    loaded = ("unused.py", "work/plugins.py", "work/rules.py", "work/steps.py", "train.py")
    found = kept(program, "train.py", loaded=loaded)
    assert names_of(found, program)[:5] == [
        "train.py",
        "work/steps.py",
        "work/rules.py",
        "unused.py",
        "work/plugins.py",
    ]


def test_what_is_loaded_decides_between_files_of_one_name(program: Path) -> None:
    other = program / "other"
    other.mkdir()
    (other / "steps.py").write_text("y = 2\n")
    (program / "job.py").write_text("import steps\n")
    (program / "steps.py").write_text("z = 3\n")
    found = kept(program, "job.py", loaded=["other/steps.py"])
    assert "other/steps.py" in names_of(found, program)
    assert names_of(kept(program, "job.py"), program) == ["job.py", "steps.py"]


def test_libraries_are_no_modules_of_the_program(program: Path) -> None:
    library = program / "lib" / "site-packages"
    library.mkdir(parents=True)
    (library / "tool.py").write_text("x = 1\n")
    found = kept(program, "train.py", "lib/site-packages/tool.py", loaded=["lib/site-packages/tool.py"])
    assert not any("tool" in module.file for module in found[0])


@pytest.mark.parametrize("bound", ["MAX_LINES", "MAX_BYTES"])
def test_what_does_not_fit_is_said(program: Path, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (program / "work/steps.py").write_text("from . import rules\n" + "x = 1\n" * 1000)
    monkeypatch.setattr(bounds, bound, 100 if bound == "MAX_LINES" else 4000)
    found, (note,) = kept(program, "train.py", loaded=["work/rules.py"])
    assert [Path(module.file).name for module in found] == [
        "train.py",
        "rules.py",
        "__init__.py",
        "__init__.py",
        "base.py",
    ]
    assert note.what == "modules"
    assert note.why.startswith(f"{program}/work/steps.py: left out, ")
    text = "".join(module.text for module in found)
    assert len(text) < 4000 and text.count("\n") < 100


def test_a_huge_file_is_not_parsed(program: Path) -> None:
    (program / "work/rules.py").write_text("x = 1\n" * 600_000)
    began = time.process_time()
    found, (note,) = kept(program, "train.py")
    assert time.process_time() - began < 2
    assert "rules.py" in note.why
    assert "work/steps.py" in names_of((found, ()), program)


def test_nothing_more_is_read_when_time_is_over(program: Path) -> None:
    found, (note,) = kept(program, "train.py", "work/steps.py", "unused.py", "work/rules.py", seconds=-1)
    assert found == ()
    assert note.why.endswith("and 1 more: not read in time")


def test_hostile_trees(program: Path) -> None:
    work = program / "work"
    (work / "rules.py").unlink()
    os.mkfifo(work / "rules.py")
    (work / "steps.py").write_text("from . import rules, loop, far, latin, nothing, strange\nfrom ........ import up\n")
    (work / "loop.py").symlink_to("loop.py")
    (work / "far.py").symlink_to("/dev/zero")
    (work / "latin.py").write_bytes(b"# coding: latin-1\nx = '\xe9'\n")
    (work / "nothing.py").write_bytes(b"\xff\xfe\0\0")
    (work / "strange.py").write_bytes(b"# coding: no-such-thing\n")
    found, notes = kept(program, "train.py")
    assert [Path(module.file).name for module in found] == ["train.py", "__init__.py", "steps.py", "latin.py"]
    assert [note.why for note in notes] == [f"{work}/nothing.py, {work}/strange.py: its encoding is not known"]


def test_a_newer_pythons_file_is_named_with_what_would_help(program: Path) -> None:
    (program / "work/rules.py").write_text("def f():\n    match x\n")
    found, (note,) = kept(program, "train.py")
    assert "work/steps.py" in names_of((found, ()), program)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert note.why == f"{program}/work/rules.py: Python {version}, which hangdoc runs on, cannot parse it"
    assert "the Python that the job runs on" in note.remedy


@pytest.mark.parametrize("text", ["x = " + "(" * 5000, "x = " + "-" * 100_000 + "1", "x = [" * 3000])
def test_what_the_parser_gives_up_on_is_no_crash(program: Path, text: str) -> None:
    (program / "work/rules.py").write_text(text)
    found, (note,) = kept(program, "train.py")
    assert "cannot parse" in note.why
    assert len(found) > 3


def test_a_file_that_changed_since_the_start_is_not_what_runs(program: Path) -> None:
    for path in program.rglob("*.py"):
        os.utime(path, (1, 1))
    os.utime(program / "work/rules.py")
    found, (note,) = kept(program, "train.py", started=time.time() - 100)
    assert "work/steps.py" in names_of((found, ()), program)
    assert note.why == f"{program}/work/rules.py: edited since the job started"


def test_a_name_that_leads_nowhere_is_looked_for_in_few_places(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program / "train.py").write_text(f"import {', '.join(f'nothing{n}.at.all' for n in range(10_000))}\n")
    looked = []
    monkeypatch.setattr(ParsedFiles, "kind_of", lambda self, path: looked.append(path))
    began = time.process_time()
    kept(program, "train.py")
    assert len(looked) == 2000
    assert time.process_time() - began < 10


def test_marks_are_equal_in_all_files_of_one_capture(program: Path) -> None:
    (program / "work/steps.py").write_text("def run(store):\n    store.set('ready/a', 1)\n")
    (program / "train.py").write_text("from work import steps, rules\n")
    found, _ = kept(program, "train.py")
    texts = {Path(module.file).name: module.text for module in found}
    (mark,) = {texts["rules.py"].partition("…")[2][:8], texts["steps.py"].partition("…")[2][:8]}
    assert len(mark) == 8
    assert len({module.marks for module in found}) == 1
    again, _ = kept(program, "train.py")
    assert not any(mark in module.text for module in again)
