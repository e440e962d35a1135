"""Which scenarios the suite runs: one real job for each shape of capture, by what only a real job shows.

The verdict on every scenario is held by its saved case (tests/unit/test_scenario_cases.py) and, as a real job, by
tests/accuracy/run.py, which runs them all.
"""

from __future__ import annotations

from pathlib import Path

from hangdoc import scenarios

FOLDER = Path(__file__).parents[2] / "scenarios"
ALL = [found for path in sorted(FOLDER.glob("*.py")) if (found := scenarios.read(path)) is not None]

SHAPES = {
    # How a job comes to be
    "rank_guard": "torchrun, and a group's history from the flight recorder; its snapshot gets the same verdict again",
    "spawned": "mp.spawn: ranks whose environment says nothing",
    "fabric_late_launch": "Lightning's Fabric starts the other rank in the middle of the script",
    "fabric_child_exits": "Fabric's child has ended: a port is missing",
    "accelerate_gather": "accelerate launch",
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
