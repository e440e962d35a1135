"""The program's files, for dumps: in their places, or in a copy; and never those of another version."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorder_dumps import dump, nccl, write
from secret_corpus import SOURCE, SOURCE_SECRETS

from hangdoc.capture.dumps.sources import sources_of
from hangdoc.capture.load import open_saved
from hangdoc.diagnosis import diagnose
from hangdoc.model.encode import snapshot_to_bytes
from hangdoc.model.process import Frame, Stack
from hangdoc.model.snapshot import SourceText, Unavailable
from hangdoc.report.terminal import render

PROGRAM = """\
import x


def train():
    if x.rank:
        x.all_reduce()


class Model:
    size = x.read()


train()
"""
LAST_CALL = 2_000_000_000.0


def read(file: str, copy: Path | None = None, line: int = 6, function: str = "train") -> SourceText | Unavailable:
    stack: Stack = (Frame(file, line, function),)
    found, missing = sources_of([stack], copy, LAST_CALL)
    (one,) = (*found, *missing)
    return one


def program(path: Path, text: str = PROGRAM, changed: float = LAST_CALL - 1) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, (changed, changed))
    return path


def test_a_file_in_its_place_is_read(tmp_path: Path) -> None:
    found = read(str(program(tmp_path / "train.py")))
    assert isinstance(found, SourceText)
    assert (found.function, found.first_line) == ("train", 4) and "if x.rank:" in found.text


def test_a_file_that_was_edited_since_is_not(tmp_path: Path) -> None:
    found = read(str(program(tmp_path / "train.py", changed=LAST_CALL + 3600)))
    assert isinstance(found, Unavailable) and "edited since the dumps were made" in found.why


def test_of_a_copy_the_longest_end_of_the_path_counts(tmp_path: Path) -> None:
    program(tmp_path / "train.py", PROGRAM.replace("rank", "other"), LAST_CALL + 3600)
    program(tmp_path / "project/train.py", changed=LAST_CALL + 3600)
    found = read("/job/project/train.py", tmp_path)
    assert isinstance(found, SourceText) and "x.rank" in found.text and found.file == "/job/project/train.py"
    found = read("/job/elsewhere/train.py", tmp_path)
    assert isinstance(found, SourceText) and "x.other" in found.text


def test_a_file_of_another_version_is_not_believed(tmp_path: Path) -> None:
    program(tmp_path / "train.py")
    for line, function in ((6, "evaluate"), (13, "train"), (90, "train"), (90, "<module>")):
        found = read("/job/train.py", tmp_path, line, function)
        assert isinstance(found, Unavailable) and "another version" in found.why
    for line, function in ((13, "<module>"), (10, "Model"), (5, "<lambda>")):
        assert isinstance(read("/job/train.py", tmp_path, line, function), SourceText)


def test_nothing_outside_the_copy_is_read(tmp_path: Path) -> None:
    outside = program(tmp_path / "secret.py")
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.py").symlink_to(outside)
    found = read("/job/train.py", copy)
    assert isinstance(found, Unavailable)
    found = read("/job/../../secret.py", copy)
    assert isinstance(found, Unavailable)


def test_what_is_missing_says_how_to_get_it(tmp_path: Path) -> None:
    found = read("/no/such/train.py")
    assert isinstance(found, Unavailable) and "--source DIR" in found.why
    found = read("<ipython-input-3>")
    assert isinstance(found, Unavailable) and "typed in" in found.why
    os.mkfifo(tmp_path / "train.py")
    assert isinstance(read("/job/train.py", tmp_path), Unavailable)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users reach: pytest's own are for us alone."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may read more than the dumps' owner")
def test_another_users_dumps_show_root_only_what_that_user_may_read(tmp_path: Path, open_folder: Path) -> None:
    path = program(open_folder / "train.py")
    frames = [{"name": "train", "filename": str(path), "line": 6}]
    for rank, kind in enumerate(("nccl:all_reduce", "nccl:barrier")):
        call = nccl(1, frames=frames, profiling_name=kind, time_created_ns=int(LAST_CALL * 1e9))
        write(tmp_path / f"dumps/trace_{rank}", dump(call))

    def shown(owner: int, mode: int) -> bool:
        os.chown(tmp_path / "dumps/trace_1", owner, owner)
        path.chmod(mode)
        return bool(open_saved(tmp_path / "dumps").sources)

    assert [shown(0, 0o600), shown(65534, 0o644), shown(65534, 0o600)] == [True, True, False]


def test_no_secret_of_a_dump_or_of_its_sources_is_kept(tmp_path: Path) -> None:
    head = "import torch.distributed as dist\n\n\ndef train(mode, rank, login, wait):\n"
    text = f"{head}{SOURCE}    dist.all_reduce()\n"
    line = len(text.splitlines())
    path = program(tmp_path / "code/token=pathword1/train.py", text)
    frames = [{"name": "train", "filename": str(path), "line": line}]
    groups = {"0": {"name": "0", "desc": "https://me:groupword1@host", "ranks": "[0, 1]"}}
    for rank, kind in enumerate(("nccl:all_reduce", "nccl:barrier")):
        call = nccl(1, frames=frames, profiling_name=kind, state="started", retired=False, time_created_ns=10**18 * 2)
        write(tmp_path / f"dumps/trace_{rank}", dump(call, pg_config=groups))
    (tmp_path / "dumps/trace_password=fileword1_2").write_bytes(b"\x80\x04broken")
    job = open_saved(tmp_path / "dumps")
    shown = gzip.decompress(snapshot_to_bytes(job)).decode() + render(diagnose(job))
    for secret in (*SOURCE_SECRETS, "pathword1", "groupword1", "fileword1"):
        assert secret not in shown
    assert 'mode == \\"train\\" and rank == 3' in shown  # it was read
