"""Two files of one name are told apart in every sentence, and in the report's rows, by the same names."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest
import simulator
from hypothesis import given
from hypothesis import strategies as st
from simulator import Op, Program, run, snapshot

from hangdoc.diagnosis import diagnose
from hangdoc.model.document import diagnosis_document
from hangdoc.model.process import Frame, Process
from hangdoc.model.snapshot import JobSnapshot
from hangdoc.model.wording import FileNames
from hangdoc.report.terminal import render

WORLD = ("0", (0, 1, 2))


@pytest.mark.parametrize(
    ("files", "cwd", "names"),
    [
        (["/a/b/train.py", "/a/c/train.py", "/a/c/model.py"], "", ["b/train.py", "c/train.py", "model.py"]),
        (["/a/x/b/train.py", "/a/y/b/train.py"], "/a", ["x/b/train.py", "y/b/train.py"]),
        (["/job/train.py", "/job/sub/train.py"], "/job", ["./train.py", "sub/train.py"]),
        (["/job/train.py", "/job/sub/train.py"], "/elsewhere", ["job/train.py", "sub/train.py"]),
        (["train.py", "/job/sub/train.py"], "/job", ["./train.py", "sub/train.py"]),
        (["train.py", "/job/train.py"], "/job", ["train.py", "train.py"]),
        (["train.py", "/job/train.py"], "", ["train.py", "train.py"]),
        (
            ["./sub/../train.py", "/job/b/train.py", "/job/c/train.py"],
            "/job",
            ["./train.py", "b/train.py", "c/train.py"],
        ),
        (["train.py", "/train.py", "/a/train.py"], "", ["train.py", "/train.py", "a/train.py"]),
        (["<string>", "", "/", "."], "/job", ["<string>", "", "/", "."]),
    ],
)
def test_names_are_as_short_as_they_stay_unique(files: list[str], cwd: str, names: list[str]) -> None:
    assert [FileNames(files, cwd).short(file) for file in files] == names


PARTS = st.lists(st.sampled_from(["a", "b", "job", "train.py"]), min_size=1, max_size=5)


@given(st.sets(PARTS.map(lambda parts: "/" + "/".join(parts)), min_size=1, max_size=8), st.sampled_from(["", "/job"]))
def test_no_two_files_have_one_name(files: set[str], cwd: str) -> None:
    names = FileNames(files, cwd)
    short = {file: names.short(file) for file in files}
    assert len(set(short.values())) == len(files)
    for file, name in short.items():
        assert file.endswith("/" + name.removeprefix("./").removeprefix("/"))
    assert dict(names.distinguished()) == {f: n for f, n in short.items() if n != f.rpartition("/")[2]}


def job(*files: str) -> JobSnapshot:
    """Rank 0 calls all_gather at line 7, the others all_reduce at line 3. ``files`` by rank."""
    calls = {rank: (Op(1, "barrier", WORLD, (2,)), Op(2, "all_reduce", WORLD, (3,))) for rank in range(3)}
    calls[0] = (calls[0][0], Op(3, "all_gather", WORLD, (7,)), calls[0][1])
    frozen = snapshot(run(random.Random(1), Program(3, ((WORLD,),), calls, {}), calls))

    def moved(value: object, file: str) -> object:
        if isinstance(value, Frame):
            return replace(value, file=file) if value.file == simulator.USER else value
        if isinstance(value, tuple):
            return tuple(moved(item, file) for item in value)
        fields = {name: getattr(value, name) for name in getattr(value, "__slots__", ())}
        return replace(value, **{name: moved(item, file) for name, item in fields.items()}) if fields else value  # type: ignore[type-var]

    ranks = tuple(moved(rank, files[rank.rank]) for rank in frozen.ranks)
    return replace(frozen, ranks=ranks, launcher=Process(9, 1, "launcher", cwd="/job"))


def test_two_files_of_one_name_are_told_apart_everywhere() -> None:
    beta, alpha = "/job/beta/train.py", "/job/alpha/train.py"
    diagnosis = diagnose(job(beta, alpha, alpha))
    assert diagnosis.culprits == (0,)
    assert dict(diagnosis.file_names) == {beta: "beta/train.py", alpha: "alpha/train.py"}
    texts = [diagnosis.verdict, diagnosis.why, diagnosis.repair.text if diagnosis.repair else "", render(diagnosis)]
    texts += [item.text for item in diagnosis.evidence]
    told = re.findall(r"(\S*train\.py):(\d+)", " ".join(texts))
    assert {name.strip("(`") for name, line in told if line == "7"} == {"beta/train.py"}
    assert {name.strip("(`") for name, line in told if line == "3"} == {"alpha/train.py"}
    assert "pid 1000 on node" in render(diagnosis)
    # The document has whole paths, and its keys are published.
    assert "file_names" not in diagnosis_document(diagnosis)


def test_one_file_is_called_by_its_last_part() -> None:
    diagnosis = diagnose(job(*["/job/alpha/train.py"] * 3))
    assert diagnosis.file_names == ()
    assert "train.py:7" in diagnosis.verdict
    assert "alpha" not in render(diagnosis)


def test_library_code_does_not_make_names_longer() -> None:
    library = "/venv/lib/python3.11/site-packages/x/train.py"
    frozen = job(*["/job/alpha/train.py"] * 3)
    ranks = tuple(replace(rank, first_store=(Frame(library, 1, "f"),)) for rank in frozen.ranks)
    assert diagnose(replace(frozen, ranks=ranks)).file_names == ()
