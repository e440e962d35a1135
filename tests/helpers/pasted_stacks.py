"""Stacks as the tools print them, made from (function, file, line) of each frame, innermost first."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from hangdoc.capture.dumps.sources import sources_of
from hangdoc.capture.logs.lines import Line, lines_of
from hangdoc.capture.logs.processes import ranks_of
from hangdoc.capture.logs.sift import sift
from hangdoc.capture.logs.stacks import MARKERS, stacks_in, stacks_in_json
from hangdoc.model.logged import LogStack
from hangdoc.model.masked import masked
from hangdoc.model.snapshot import JobSnapshot

Frames = Sequence[tuple[str, str, int]]

_C10D = "torch/distributed/distributed_c10d.py"
_WRAPPER = ("wrapper", "torch/distributed/c10d_logger.py", 81)
ALL_REDUCE: Frames = (("all_reduce", _C10D, 2954), _WRAPPER)
BARRIER: Frames = (("barrier", _C10D, 4700), _WRAPPER)
QUEUE: Frames = (("wait", "threading.py", 327), ("get", "queue.py", 171))
LOADER: Frames = (
    ("get", "multiprocessing/queues.py", 113),
    ("_try_get_data", "torch/utils/data/dataloader.py", 1131),
    ("_next_data", "torch/utils/data/dataloader.py", 1329),
    ("__next__", "torch/utils/data/dataloader.py", 631),
)
MAIN: Frames = (("main", "train.py", 50), ("<module>", "train.py", 60))
_IDLE: Frames = (("wait", "threading.py", 331), ("run", "tqdm/_monitor.py", 60), ("_bootstrap", "threading.py", 1002))
_LIB = "/opt/env/lib/python3.11"


def step(line: int, function: str = "step") -> Frames:
    """A line of the program's, below which a call may stand."""
    return ((function, "train.py", line),)


def full(file: str, program: str = "/work") -> str:
    """The path of a file that py-spy prints shortened."""
    if file.startswith(("/", "<")):
        return file
    if file.startswith(("torch/", "tqdm/")):
        return f"{_LIB}/site-packages/{file}"
    return (
        f"{_LIB}/{file}" if file in ("threading.py", "queue.py", "multiprocessing/queues.py") else f"{program}/{file}"
    )


def py_spy(
    pid: int, frames: Frames, status: str = "idle", *, alone: bool = False, title: str = "python train.py"
) -> str:
    """`py-spy dump --pid PID`. ``alone``: somebody pasted the main thread only."""
    text = f'Process {pid}: {title}\nPython v3.11.9 (/usr/bin/python3.11)\n\nThread {pid} ({status}): "MainThread"\n'
    text += _py_spy_frames(frames)
    return text if alone else f'{text}Thread {pid + 9} (idle): "Thread-1"\n{_py_spy_frames(_IDLE)}\n'


def _py_spy_frames(frames: Frames) -> str:
    places = ((function, f"{file}:{line}" if line else file) for function, file, line in frames)
    return "".join(f"    {function} ({place})\n" for function, place in places)


def faulthandler(frames: Frames, seed: int = 0, others: Sequence[Frames] = (_IDLE,)) -> str:
    """What `faulthandler.dump_traceback_later()` prints: the main thread last, and no pid."""
    text = "Timeout (0:15:00)!\n"
    for number, thread in enumerate((*others, frames)):
        text += f"Thread 0x00007f{seed:04x}{number:06x} (most recent call first):\n"
        text += "".join(f'  File "{full(file)}", line {line} in {name}\n' for name, file, line in thread) + "\n"
    return text


def as_json(pid: int, frames: Frames) -> str:
    """`py-spy dump --json --pid PID`."""

    def thread(tid: int, name: str, stack: Frames) -> dict[str, object]:
        shown = [
            {"name": n, "filename": full(f), "short_filename": f, "line": ln, "locals": None} for n, f, ln in stack
        ]
        return {
            "pid": pid,
            "os_thread_id": tid,
            "thread_name": name,
            "active": False,
            "owns_gil": False,
            "frames": shown,
        }

    return json.dumps([thread(pid + 9, "Thread-1", _IDLE), thread(pid, "MainThread", frames)])


def lines(text: str | bytes, file: str = "stacks.txt") -> list[Line]:
    """The lines of a log that have to do with stacks, as a capture finds them."""
    data = text.encode() if isinstance(text, str) else text
    return list(lines_of(file, sift(io.BytesIO(data), MARKERS).kept))


def stacks(files: Mapping[str, str]) -> list[LogStack]:
    """The stacks in all files: name → text."""
    found = [
        each for name, text in files.items() if name.endswith(".json") for each in stacks_in_json(name, text.encode())
    ]
    texts = [line for name, text in files.items() if not name.endswith(".json") for line in lines(text, name)]
    return found + stacks_in(texts)


def job(files: Mapping[str, str], source: Path | None = None) -> JobSnapshot:
    """The job that these files show, and nothing else."""
    seen = ranks_of(stacks(files))
    sources, missing = sources_of(seen.stacks, source, 0.0)
    snapshot = JobSnapshot(
        taken=0.0,
        mode="log",
        world_size=seen.world_size,
        ranks=seen.ranks,
        sources=sources,
        unavailable=(*seen.unavailable, *missing),
    )
    return masked(snapshot)
