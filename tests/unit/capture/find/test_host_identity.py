"""What tells one host from another, whatever they are called."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from hangdoc.capture.find.target import host_identity
from hangdoc.model.masking import mask_text

PRINT = "from hangdoc.capture.find.target import host_identity; print(host_identity())"


def seen_by(*before: str) -> str:
    line = [*before, sys.executable, "-c", PRINT]
    return subprocess.run(line, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def test_every_process_of_a_host_sees_the_same() -> None:
    assert len(host_identity().split()) == 3
    assert seen_by() == host_identity()


def test_it_is_no_secret_to_mask() -> None:
    assert mask_text(host_identity()) == host_identity()


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
@pytest.mark.parametrize("space", [["--pid", "--fork", "--mount-proc"], ["--net"]])
def test_a_container_is_another_host_under_the_same_name(space: list[str]) -> None:
    assert seen_by("unshare", *space) not in ("", host_identity())
