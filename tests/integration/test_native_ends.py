"""A rank that native code ends leaves its Python stacks with the watch, and is otherwise as it would be without us."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from conftest import MARK

from hangdoc.capture.read.fault_stacks import read_fault

PROGRAM = Path(__file__).parent / "programs" / "native_ends.py"
PROBE = Path(__file__).parents[2] / "hangdoc" / "probe"
DEADLINE = 150.0
_NUMBERS = re.compile(r"0x[0-9a-f]+|\b\d+(\.\d+)?s\b|\(pid\(s\) \d+\)|pid: \d+")


@dataclass(frozen=True)
class Ended:
    """``folder``: what the ranks wrote; ``probed``: what the probe left of them."""

    folder: Path
    probed: Path
    ended: dict[str, tuple[int, int]]

    def wrote(self, mode: str) -> str:
        return _NUMBERS.sub("…", (self.folder / f"{mode}.err").read_text(errors="replace"))

    def fault(self, mode: str) -> Path:
        return self.probed / f"{self.ended[mode][0]}.fault"

    def functions(self, mode: str, number: int) -> list[str]:
        return [f.function for f in read_fault(self.fault(mode), number) if f.file == str(PROGRAM)]


def run(folder: Path, probed: Path | None) -> Ended:
    folder.mkdir()
    ours = {"HANGDOC_PROBE": str(probed), "PYTHONPATH": str(PROBE)} if probed is not None else {}
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HANGDOC_", "PYTHONFAULT"))}
    more = {"OMP_NUM_THREADS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", MARK: folder.name, **ours}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(folder)],
        env={**kept, **more},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=DEADLINE,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    ended = json.loads((folder / "ended.json").read_text())
    return Ended(folder, probed or folder, {mode: (pid, status) for mode, (pid, status) in ended.items()})


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Ended, Ended]]:
    """(without the probe, with it)."""
    outputs = tmp_path_factory.mktemp("native-ends")
    with tempfile.TemporaryDirectory(prefix="hd-", dir="/tmp", ignore_cleanup_errors=True) as probed:
        yield run(outputs / "bare", None), run(outputs / "probed", Path(probed))


ALIKE = [
    "plain",
    "aborts",
    "enabled_before",
    "enables_later",
    "asks_first",
    "enables_and_disables",
    "fails_to_enable",
    "handles_before",
    "handles_later",
    "native_handler",
    "child_crashes",
    "both_end",
    "child_enables",
    "worker_crashes",
    "closes_all",
    "reuses_the_number",
]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ALIKE)
def test_it_ends_and_writes_as_without_the_probe(both: tuple[Ended, Ended], mode: str) -> None:
    bare, probed = both
    assert probed.ended[mode][1] == bare.ended[mode][1]
    assert probed.wrote(mode) == bare.wrote(mode)


@pytest.mark.slow
def test_the_programs_say_what_they_should(both: tuple[Ended, Ended]) -> None:
    """Or equal silence would prove nothing."""
    bare, _ = both
    for mode in ("enabled_before", "enables_later", "asks_first", "child_enables", "under_pytest"):
        assert "Fatal Python error: Segmentation fault" in bare.wrote(mode), mode
    for mode in ("plain", "aborts", "enables_and_disables", "closes_all", "reuses_the_number"):
        assert os.WIFSIGNALED(bare.ended[mode][1]), mode
    assert bare.wrote("handles_before") == "handled 11\n"
    assert os.WEXITSTATUS(bare.ended["native_handler"][1]) == signal.SIGSEGV
    assert "Unexpected segmentation fault encountered in worker" in bare.wrote("worker_crashes")


@pytest.mark.slow
def test_the_stack_of_a_crash_is_known(both: tuple[Ended, Ended]) -> None:
    _, probed = both
    assert probed.functions("plain", signal.SIGSEGV)[:2] == ["crash", "plain"]
    assert probed.functions("aborts", signal.SIGABRT)[0] == "aborts"
    assert probed.functions("aborts", signal.SIGSEGV) == [], "of another signal"
    assert probed.functions("fails_to_enable", signal.SIGSEGV)[:2] == ["crash", "fails_to_enable"]
    assert probed.fault("plain").stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_a_program_with_a_use_of_its_own_keeps_it(both: tuple[Ended, Ended]) -> None:
    _, probed = both
    for mode in ("enabled_before", "handles_before"):
        assert not probed.fault(mode).exists(), mode
    for mode in ("enables_later", "asks_first", "enables_and_disables", "handles_later", "native_handler"):
        assert probed.fault(mode).read_bytes() == b"", mode
    assert (probed.folder / "own").read_bytes() == b"", "turned off again"


@pytest.mark.slow
def test_a_childs_end_is_not_the_ranks(both: tuple[Ended, Ended]) -> None:
    _, probed = both
    for mode in ("child_crashes", "child_enables", "worker_crashes"):
        assert probed.fault(mode).read_bytes() == b"", mode
    assert probed.fault("both_end").read_text().count("Fatal Python error") == 1
    assert probed.functions("both_end", signal.SIGABRT)[0] == "both_end"


@pytest.mark.slow
def test_nothing_is_written_into_a_file_of_the_jobs(both: tuple[Ended, Ended]) -> None:
    _, probed = both
    assert (probed.folder / "reused").read_bytes() == b""
    assert (probed.folder / "taken").read_bytes() == b"", "it has the number that was ours"
    assert probed.functions("reuses_the_number", signal.SIGSEGV)[:2] == ["crash", "reuses_the_number"]


@pytest.mark.slow
def test_pytests_own_plugin_writes_what_it_always_writes(both: tuple[Ended, Ended]) -> None:
    bare, probed = both
    assert probed.ended["under_pytest"][1] == bare.ended["under_pytest"][1]
    for each in both:
        assert "Fatal Python error: Segmentation fault" in each.wrote("under_pytest")
        assert "in test_crashes" in each.wrote("under_pytest")
    assert probed.fault("under_pytest").read_bytes() == b""
