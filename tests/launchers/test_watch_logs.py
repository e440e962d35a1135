"""``watch --logs``: files of each rank, and one stream of them."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MARK, Watch
from terminal import DEADLINE, HANGDOC, Terminal, environment, wait_until

PYTHON = sys.executable
TORCHRUN = [PYTHON, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
# As DeePMD-kit begins on every rank (deepmodeling/deepmd-kit issue 4595).
HANGS = r"""
import logging, os
logging.basicConfig(format="[%(asctime)s] DEEPMD %(levelname)-7s %(message)s", level=logging.INFO)
log = logging.getLogger()
log.info(r"  __  __  ___  _")
log.info(r" |  \/  || _ \| |__")
log.info("Please read and cite:")
log.info("rank %s of 4", os.environ["RANK"])
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, tensor = dist.get_rank(), torch.ones(8)
for step in range(4):
    if rank == 2 and step == 3:
        print("leaving out step 3")
        continue
    dist.all_reduce(tensor)
    print("step", step)
dist.barrier()
"""


def logs_of(run_dir: Path, local: int, name: str) -> str:
    (path,) = run_dir.glob(f"logs/*/attempt_0/{local}/{name}.log")
    return path.read_text()


@pytest.mark.slow
def test_four_ranks_and_a_hang(watch: Watch, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(HANGS)
    done = watch([*TORCHRUN, "4", str(script)], "--logs")
    assert done.status == 124, done.explain()
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    said = [re.sub(r"\[2\d{3}-.*?\] ", "", line) for line in lines]
    for part in (r"DEEPMD INFO      __  __  ___  _", r" |  \/  || _ \| |__", "Please read and cite:"):
        # Once; twice if a busy machine lets ranks come late with it, and a moment apart.
        assert sum(line.endswith(part) for line in lines) in (1, 2), done.explain()
    own = sorted(line for line in said if "of 4" in line)
    assert own == [f"[{rank}]   DEEPMD INFO    rank {rank} of 4" for rank in range(4)]
    assert [line for line in said if "step 3" in line] == ["[2]   leaving out step 3"]
    assert [line for line in said if line.endswith("step 2")], done.explain()
    # The report, the page and the snapshot know what the culprit wrote last.
    assert re.search(r"\n  rank 2 wrote  step 1\n +step 2\n +leaving out step 3\n", done.stderr), done.explain()
    page = done.snapshots()[-1].with_suffix(".html").read_text()
    assert "leaving out step 3" in page
    assert page.index("rank 2: ") < page.index("rank 0: ")
    # Each rank has its own files, complete, for the user's eyes only.
    for rank in range(4):
        text = logs_of(done.run_dir, rank, "stdout")
        assert text.split("\n")[:3] == ["step 0", "step 1", "step 2"]
        assert "Please read and cite:" in logs_of(done.run_dir, rank, "stderr")
    assert stat.S_IMODE((done.run_dir / "logs").stat().st_mode) == 0o700


FAILS = """
import os, sys, time
print("hello")
time.sleep(2.5)
assert os.environ["RANK"] != "1", "bad luck"
time.sleep(60)
"""


def test_the_users_folder_and_a_ranks_own_error(watch: Watch, tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(FAILS)
    mine = tmp_path / "mine"
    done = watch([*TORCHRUN, "2", "--log-dir", str(mine), str(script)], "--logs", on_hang="report")
    assert done.status == 1, done.explain()
    assert f"the ranks' files are in {mine}" in done.stderr
    assert "".join(sorted(re.findall(r"\[([01,]+)\] +hello\n", done.stdout))) in ("0,1", "01"), done.explain()
    assert re.search(r"^\[1\] +AssertionError: bad luck$", done.stdout, re.MULTILINE), done.explain()
    assert [path.read_text() for path in mine.glob("*/attempt_0/0/stdout.log")] == ["hello\n"]


COUNTS = """
import os, time
for number in range(40):
    print("rank", os.environ["RANK"], "says", number)
    time.sleep(0.1)
"""


def test_files_are_complete_though_hangdoc_is_killed(tmp_path: Path, mark: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(COUNTS)
    command = [*HANGDOC, "watch", "--logs", "--run-dir", "run", *TORCHRUN, "2", str(script)]
    with (tmp_path / "stdout").open("wb") as stdout:
        process = subprocess.Popen(command, cwd=tmp_path, env=environment(**{MARK: mark}), stdout=stdout)
    shown = tmp_path / "stdout"
    try:
        wait_until(lambda: "[1] rank 1 says 3\n" in shown.read_text(), 60.0, "the fourth line")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(DEADLINE)
    seen = shown.read_text()

    def complete() -> bool:
        return all(
            logs_of(tmp_path / "run", rank, "stdout") == "".join(f"rank {rank} says {n}\n" for n in range(40))
            for rank in range(2)
        )

    wait_until(complete, 60.0, "the job's own end")
    assert shown.read_text() == seen


PLAIN = """
import os, sys
print(sys.stdout.isatty(), sys.stderr.isatty())
os.write(2, b"\\xff 10%\\r20%\\r100%\\n\\x1b]0;title\\x07")
sys.exit(7)
"""


def test_a_plain_command(tmp_path: Path) -> None:
    terminal = Terminal([*HANGDOC, "watch", "--logs", "--quiet", PYTHON, "-c", PLAIN], environment(), tmp_path)
    try:
        assert terminal.end() == 7
    finally:
        terminal.close()
    assert sorted(terminal.output.splitlines()) == ["100%", "False False", "\\x1b]0;title\\x07"]
    (run,) = (tmp_path / ".hangdoc").glob("2*")
    assert (run / "logs/stdout.log").read_text() == "False False\n"
    assert (run / "logs/stderr.log").read_bytes() == b"\xff 10%\r20%\r100%\n\x1b]0;title\x07"


def test_without_it_the_output_is_untouched(tmp_path: Path) -> None:
    noise = os.urandom(100_000)
    (tmp_path / "noise").write_bytes(noise)
    code = "import os; data = open('noise', 'rb').read(); os.write(1, data); os.write(2, data)"
    done = subprocess.run(
        [*HANGDOC, "watch", "--quiet", PYTHON, "-c", code],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=DEADLINE,
        check=True,
    )
    assert (done.stdout, done.stderr) == (noise, noise)
    tty = "import os; print([os.isatty(stream) for stream in range(3)], [n for n in os.environ if n.startswith('PET')])"
    terminal = Terminal([*HANGDOC, "watch", "--quiet", PYTHON, "-c", tty], environment(), tmp_path)
    try:
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert terminal.output == "[True, True, True] []\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["noise"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGSEGV])
def test_dies_of_the_signal_that_killed_the_command(number: int, tmp_path: Path) -> None:
    command = [*HANGDOC, "watch", "--logs", "--quiet", "sh", "-c", f"echo hello; kill -{number} $$"]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=DEADLINE, check=False)
    assert (done.returncode, done.stdout) == (-number, b"hello\n")


def test_closed_standard_streams(tmp_path: Path) -> None:
    line = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *HANGDOC, "watch", "--logs", "sh", "-c", "echo hello; exit 3"]
    done = subprocess.run(line, env=environment(), cwd=tmp_path, timeout=DEADLINE, check=False)
    assert done.returncode == 3
    (log,) = tmp_path.glob(".hangdoc/2*/logs/stdout.log")
    assert log.read_text() == "hello\n"


def test_where_no_file_can_be_made(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    for number in range(1, 100):
        (tmp_path / "run" / ("logs" if number == 1 else f"logs-{number}")).touch()
    done = subprocess.run(
        [*HANGDOC, "watch", "--logs", "--run-dir", "run", "touch", "ran"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=DEADLINE, check=False,
    )  # fmt: skip
    assert done.returncode == 125
    assert "leave out --logs" in done.stderr
    assert not (tmp_path / "ran").exists()
