"""Which scenarios the suite runs: one real job for each shape of capture, by what only a real job shows.

The verdict on every scenario is held by its saved case (tests/unit/test_scenario_cases.py) and, as a real job, by
tests/accuracy/run.py, which runs them all.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from own_launcher import by_hand

from hangdoc import scenarios

if TYPE_CHECKING:
    from conftest import Finished, Watch

FOLDER = Path(__file__).parents[2] / "scenarios"
ALL = [found for path in sorted(FOLDER.glob("*.py")) if (found := scenarios.read(path)) is not None]

SHAPES = {
    # How a job comes to be
    "rank_guard": "torchrun, and a group's history from the flight recorder; its snapshot gets the same verdict again",
    "spawned": "mp.spawn: ranks whose environment says nothing",
    "fabric_late_launch": "Lightning's Fabric starts the other rank in the middle of the script",
    "killed_before_joining": "children of a Python script, one of which ended before it said who it was",
    "no_main_guard": "spawned workers run the script again",
    "two_ports": "two stores, and no group",
    # How a rank ends or is held
    "early_exit": "exit statuses and the launcher's log",
    "stopped_rank": "a signal stops it",
    "dead_mount": "the kernel holds it, and no signal ends it",
    "thread_at_exit": "the interpreter is shutting down",
    "straggler": "the job moves again by itself",
    # What a capture reads
    "send_cycle": "messages, from the probe",
    "async_checkpoint": "two threads call",
    "bad_sample": "the exception that is being handled",
    "silent_server": "DataLoader workers and their sockets",
    "waiting_child": "a child process of a rank",
    "barrier_under_lock": "file locks",
    "writer_needs_lock": "thread locks",
    "native_sleep": "native code holds the interpreter",
    "unread_fifo": "a blocked system call on a pipe",
    "unset_key": "the store's keys",
    "overwrite_prompt": "a question on standard input",
}
LAUNCHED = {
    "fabric_child_exits": "Fabric's child has ended: a port is missing",
    "accelerate_gather": "accelerate launch",
}
"""The same, with the launchers' tests: starting them is most of what they cost."""

ABORTED = 124
TORCHRUN = "torchrun --standalone --nproc-per-node "
LONGEST = 150.0
"""Seconds for one run, within the deadline of a test."""
BY_TORCHRUN = [found for found in ALL if found.launch.startswith(TORCHRUN)]
AS_LAUNCHED = {
    "rank_guard",  # what torchrun is to any job
    "no_main_guard",  # the way the script is started matters
    "early_exit",  # torchrun writes down how its ranks ended
}
"""Of those, the ones that torchrun starts here. By hand, where torch is imported once for all ranks, the others take a
third of the time."""


def launched_by_hand(group: list[scenarios.Scenario]) -> list[str]:
    jobs = [f"{scenario.launch.removeprefix(TORCHRUN)}:{scenario.path}" for scenario in group]
    return by_hand(*jobs)


def run(watch: Watch, scenario: scenarios.Scenario, *, fixed: bool = False) -> Finished:
    environment = dict(scenario.environment) | ({"FIXED": "1"} if fixed else {"FIXED": ""})
    deadline = min(scenario.timeout, LONGEST)
    hand = scenario in BY_TORCHRUN and scenario.name not in AS_LAUNCHED
    command = launched_by_hand([scenario]) if hand else scenarios.command(scenario)
    return watch(command, *scenario.watch, env=environment, deadline=deadline)


def differences(rows: list[scenarios.Comparison], finished: Finished) -> str:
    wrong = [f"{row.what}: expected {row.expected}, found {row.found}" for row in rows if not row.agrees]
    return "\n".join([*wrong, finished.explain()]) if wrong else ""


def texts(document: dict[str, Any], kind: str) -> str:
    return "\n".join(item["text"] for item in document["evidence"] if item["kind"] == kind)


def letters(text: str) -> str:
    """Without the breaks of the terminal's lines, which can fall into a long path."""
    return "".join(text.split())


def as_expected(scenario: scenarios.Scenario, finished: Finished) -> None:
    """Assert that the job got the verdict that the header of its scenario expects, and that nothing of it is left."""
    assert finished.document is not None, finished.explain()
    assert not (wrong := differences(scenarios.compare(scenario, finished.document), finished)), wrong
    assert not finished.survivors
    assert (finished.status == ABORTED) == (scenario.outcome == "hang"), finished.explain()
    if scenario.outcome == "slow":
        assert finished.status == 0, finished.explain()
        assert "✖" not in finished.stderr, finished.explain()
    else:  # of a job that moves again, the file tells the last look and the screen the first
        assert letters(finished.document["verdict"]) in letters(finished.stderr), finished.explain()


def as_corrected(finished: Finished) -> None:
    """Assert that corrected variants ended healthy, and that nothing of them is left."""
    rows = scenarios.compare_fixed(finished.document or {}, finished.status)
    assert not (wrong := differences(rows, finished)), wrong
    assert not finished.survivors
