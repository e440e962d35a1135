"""``--on-hang-exec``: what the command gets, and that nothing it does harms the watch."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from hangdoc.model.diagnosis import Cause, CulpritProcess, Diagnosis
from hangdoc.model.kinds import Confidence, Outcome
from hangdoc.sidecar.hang_command import HangCommand, variables

FOUND = Diagnosis(
    outcome=Outcome.HANG,
    verdict="Rank 2 waits; token=hf_abcdefghijklmnopqrstuvwxyz0123456789\x1b[31m",
    confidence=Confidence.LIKELY,
    cause=Cause("HD101", "collective-on-some-ranks", ""),
    culprits=(2, 3),
    culprit_processes=(CulpritProcess(None, None, "hosta", "absent-node"), CulpritProcess(2, 4711, "hostb", "rank")),
)


def ran(line: str, deadline: float = 20.0, document: bytes = b"{}", **environment: str) -> list[str]:
    """What is said of a command that has run."""
    said: list[str] = []
    command = HangCommand(line, said.append, deadline)
    command.start(document, environment)
    command.wait()
    return said


def test_the_variables() -> None:
    found = variables(FOUND, Path("/run/stall-1.hangdoc"))
    assert "hf_abc" not in found["HANGDOC_VERDICT"]
    assert "\x1b" not in found.pop("HANGDOC_VERDICT")
    assert found == {
        "HANGDOC_OUTCOME": "hang",
        "HANGDOC_CAUSE": "HD101",
        "HANGDOC_CONFIDENCE": "likely",
        "HANGDOC_CULPRITS": "2,3",
        "HANGDOC_HOST": "hostb",
        "HANGDOC_PID": "4711",
        "HANGDOC_SNAPSHOT": "/run/stall-1.hangdoc",
        "HANGDOC_DOCUMENT": "/run/stall-1.json",
    }


def test_what_is_not_known_is_empty() -> None:
    found = variables(Diagnosis(Outcome.HANG, ""), None)
    assert set(found.values()) == {"hang", "possible", ""}


def test_the_command_gets_the_document_and_the_variables(tmp_path: Path) -> None:
    document = json.dumps({"verdict": "x" * 200_000}).encode()
    there = tmp_path / "got"
    line = f"cat > '{there}'; echo \"$HANGDOC_VERDICT\" >> '{there}'; echo \"$HOME\" >> '{there}'"
    assert ran(line, document=document, HANGDOC_VERDICT="it's …") == []
    assert there.read_bytes() == document + f"it's …\n{os.environ['HOME']}\n".encode()


def test_its_output_goes_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    assert ran("echo out; echo err >&2") == []
    assert capfd.readouterr() == ("", "out\nerr\n")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("exit 3", "failed with exit status 3"),
        ("no-such-command-anywhere 2>/dev/null", "failed with exit status 127"),
        ("kill -9 $$", "was ended by signal 9"),
    ],
)
def test_a_failure_is_one_line(line: str, why: str) -> None:
    assert ran(line) == [f"--on-hang-exec: the command {why}"]


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    line = f"trap '' TERM; sleep 300 & echo $! > '{pids}'; echo $$ >> '{pids}'; while :; do sleep 300; done"
    assert ran(line, deadline=0.5) == ["--on-hang-exec: the command has not ended within 0 s and was ended"]
    for pid in map(int, pids.read_text().split()):
        assert not _runs(pid)


def test_signals_that_a_watch_blocks_are_not_blocked_there(tmp_path: Path) -> None:
    there = tmp_path / "status"
    import signal

    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    try:
        assert ran(f"grep SigBlk /proc/self/status > '{there}'") == []
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert int(there.read_text().split()[1], 16) == 0


def test_at_the_end_of_the_watch_it_is_ended() -> None:
    said: list[str] = []
    command = HangCommand("sleep 300", said.append, 60.0)
    command.start(b"", {})
    command.close()
    assert said == ["--on-hang-exec: the command still ran at the end and was ended"]


def test_one_that_still_runs_is_not_started_twice() -> None:
    said: list[str] = []
    command = HangCommand("sleep 300", said.append, 60.0)
    command.start(b"", {})
    command.start(b"", {})
    assert said == ["--on-hang-exec: the command still runs for the hang before, so it is not run for this one"]
    command.close()


def _runs(pid: int) -> bool:
    """True if the process runs; one that was killed has some seconds to go."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX":
                return False
        except OSError:
            return False
        time.sleep(0.05)
    return True
