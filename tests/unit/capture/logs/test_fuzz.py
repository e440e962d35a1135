"""Whatever stands in a log, it is read, judged and shown without an error, in bounded time."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_logs import Torch, elastic, traceback

from hangdoc import api
from hangdoc.capture import logs
from hangdoc.capture.logs.lines import MAX_TEXT
from hangdoc.capture.logs.read_logs import read_logs
from hangdoc.diagnosis import diagnose
from hangdoc.report import write
from hangdoc.report.log_lines import log_line_rows

T = Torch()
OLD = Torch("2.1")
LINES = (
    (
        "".join(T.overdue(r, 7, stack=("step from /job/train.py:9",)) for r in range(3))
        + T.lives(3, caller=0)
        + T.member(1, 1, 4, "0")
        + "".join(OLD.overdue(r, 7, "ALLGATHER", (1, 4)) for r in range(3))
        + elastic((0, -6, "10:00:05"), (2, 1, "10:00:04"), asked=(1,))
        + traceback(2, "ValueError: ragged", ("/job/train.py", 3, "pad"))
        + traceback(None, "RuntimeError: Timed out waiting 8000ms for recv operation to complete", ("/a/t.py", 1, "f"))
        + "srun: error: node-a: tasks 0-2,5: Killed\nWORLD_SIZE=4 RANK=1\n"
        + "[Rank 0]: Ranks 2, 3 failed to pass monitoredBarrier in 5000 ms\n"
        + "ranks [3] are the lagging ranks\n - [0] Timeout at collective: ALLREDUCE, #315\n"
        + "  - [7] finished collective #182, but didn't join collective #183 (count from 1)\n"
        + "Timed out after 901 seconds waiting for clients. 1/3 clients joined.\n"
        + "Process 39: python train.py\nPython v3.11.9 (/usr/bin/python3.11)\n\n"
        + 'Thread 39 (idle): "MainThread"\n    all_reduce (torch/distributed/distributed_c10d.py:9)\n    fit (train.py:4)\n\n'
        + "h:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 commId 0xabc - Init\n"
        + "h:1:1 [0] NCCL INFO AllReduce: opCount 1 sendbuff 0x1 recvbuff 0x2 count 3 datatype 7 op 0 root 0 comm 0x1\n"
    )
    .encode()
    .splitlines(keepends=True)
)
ODD = (
    b"\0", b"\r", b"\x1b[31m", b"\x1b]8;;http://x\x07", "\u0663".encode(), "\u00b2".encode(), b"99999999999999999999999",
    b"-", b"[rank", b"]:", b"\xff\xfe", b"\n", b'"', b"(", b"<script>", b"srun: error: n: tasks 0-999999: Killed\n",
    b"WORLD_SIZE=999999\n", b"[rank999999]:",
)  # fmt: skip


def _mangled(chance: random.Random) -> bytes:
    lines = [chance.choice(LINES) for _ in range(chance.randint(1, 40))] if chance.random() < 0.5 else list(LINES)
    for _ in range(chance.randint(0, 12)):
        i, way = chance.randrange(len(lines)), chance.randrange(6)
        line = lines[i]
        at = chance.randrange(len(line) + 1)
        if way == 0:
            lines[i] = line[:at]
        elif way == 1:
            lines[i] = line[:at] + chance.choice(ODD) + line[at:]
        elif way == 2:
            j = chance.randrange(len(lines))
            lines[i], lines[j] = lines[j], lines[i]
        elif way == 3:
            lines[i] = line[:at] + bytes([chance.randrange(256)]) + line[at + 1 :]
        elif way == 4:
            lines.insert(i, chance.choice(lines)[:at] + line)
        else:
            lines[i] = re.sub(rb"\d+", lambda _: chance.choice((b"0", b"4294967296", b"9" * 25, b"7")), line)
    return b"".join(lines)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 1 << 32))
def test_mangled_lines_are_read_judged_and_shown(seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        texts = Path(folder, "logs")
        texts.mkdir()
        (texts / "train.log").write_bytes(_mangled(random.Random(seed)))
        (texts / "rank_1.log").write_bytes(_mangled(random.Random(seed + 1)))
        job = read_logs([texts])
        if job is None:
            return
        found = diagnose(job)
        for suffix in (".txt", ".json", ".md", ".html"):
            write(found, Path(folder, f"report{suffix}"), job)
        list(log_line_rows(job))
        api.save(job, Path(folder, "job.hangdoc"))
        api.diagnose(api.load(Path(folder, "job.hangdoc")))


def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    """Those that are searched for anywhere in a line; others are tried at one place of it alone."""
    found = []
    for each in pkgutil.iter_modules(logs.__path__):
        module = importlib.import_module(f"{logs.__name__}.{each.name}")
        source = inspect.getsource(module)
        for name, value in vars(module).items():
            texts = isinstance(value, re.Pattern) and isinstance(value.pattern, str)
            if texts and re.search(rf"\b{name}\.(search|finditer|findall|sub)\b", source):
                found.append((f"{each.name}.{name}", value))
    return found


PIECES = (" ", "1", "1,", "[", "[1", "a.", "_", "[rank", '"', "\x1b[0", ": ", "\u00b2", "rank 1", "[PG 1 ", "a:1:1 [")


@pytest.mark.parametrize(("name", "pattern"), _patterns(), ids=lambda each: each if isinstance(each, str) else "")
def test_no_line_is_slow_to_search(name: str, pattern: re.Pattern[str]) -> None:
    own = re.findall(r"[A-Za-z][\w :=,'/]{3,30}", pattern.pattern)
    for piece in (*PIECES, *own):
        line = (piece * (MAX_TEXT // len(piece) + 1))[: MAX_TEXT - 3] + "\n!x"
        begun = time.process_time()
        pattern.search(line)
        assert time.process_time() - begun < 0.5, (name, piece)


LARGE: dict[str, Callable[[], str]] = {
    "calls": lambda: "".join(T.overdue(r) if r < 6000 else T.lives(r, caller=0) for r in range(9000)),
    "groups": lambda: "".join(T.overdue(r, group=str(r), about="tp", member=0) for r in range(4096)),
    "ranks": lambda: "WORLD_SIZE=999999\n" + "".join(T.overdue(r) for r in range(2000)),
    "tracebacks": lambda: "".join(traceback(r, "ValueError: x", ("/job/t.py", 4, "f")) for r in range(20_000)),
    "prefixes": lambda: "".join("a1 b." * 2000 + f"{i} Traceback (most recent call last):\n" for i in range(300)),
    "tasks": lambda: "srun: error: n: tasks 0-99999: Killed\n" * 4000,
    "records": lambda: ("WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=1) [PG 1 Rank 3]" * 250 + "\n") * 200,
    "waits": lambda: "".join(
        T.member(r, m, 3, str(g)) for g in range(1500) for m, r in enumerate((g, (g + 1) % 1500, (g + 7) % 1500))
    )
    + "".join(T.overdue(r, group=str(r), about="tp", member=0) for r in range(1500)),
}  # fmt: skip


@pytest.mark.parametrize("name", LARGE)
def test_no_log_takes_more_than_seconds(tmp_path: Path, name: str) -> None:
    (tmp_path / "train.log").write_text(LARGE[name](), encoding="utf-8")
    begun = time.process_time()
    job = read_logs([tmp_path])
    if job is not None:
        diagnose(job)
    assert time.process_time() - begun < 10


def test_torchrun_s_files_of_thousands_of_ranks(tmp_path: Path) -> None:
    for rank in range(1500):
        folder = tmp_path / "run" / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        (folder / "stderr.log").write_text(T.overdue(rank), encoding="utf-8")
        (folder / "stdout.log").write_text("step 1\nstep 2\n" * 20, encoding="utf-8")
    begun = time.process_time()
    job = read_logs([tmp_path])
    assert job is not None
    diagnose(job)
    assert time.process_time() - begun < 10
