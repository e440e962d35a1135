"""On a full disk hangdoc says so, and what to do: in its output, its reports and what it keeps."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cases import case

from hangdoc.errors import HangdocError
from hangdoc.kept_files import one_line
from hangdoc.model.codec import write_atomically

SAMPLE = case("broadcasts_changed_places")


@pytest.mark.parametrize("words", [["diagnose", str(SAMPLE)], ["diagnose", "--json", str(SAMPLE)], ["watch", "--help"]])
def test_standard_output(words: list[str]) -> None:
    with open("/dev/full", "wb") as full:
        line = [sys.executable, "-m", "hangdoc", *words]
        done = subprocess.run(line, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.returncode == 125
    assert (
        done.stderr == "hangdoc: cannot write: No space left on device\n  Free some space, or write to another disk.\n"
    )


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fdopen", refuse)
    with pytest.raises(HangdocError) as caught:
        write_atomically(tmp_path / "a.html", b"x")
    monkeypatch.undo()
    assert one_line(caught.value).endswith("No space left on device. Free some space, or write to another disk")
    assert not list(tmp_path.iterdir())
