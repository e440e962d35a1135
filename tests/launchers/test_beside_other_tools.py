"""Under and around tools that wrap a command as hangdoc does: arguments, outputs, exit statuses, the end.

Each job has two ranks and runs for some seconds. A tool that is not installed is named, and its test skipped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import MARK, Finished, Watch, survivors, unless_torch_aborts

pytestmark = pytest.mark.timeout(400)

PROGRAM = Path(__file__).parent / "programs" / "beside.py"
BIN = Path(sys.executable).parent
# As like options of hangdoc, torchrun and the tools as words can be.
WORDS = ["--stall-after", "1", "--", "-m", "two words", "", "--help", "-o", "ü=✖", "--quiet"]
# Starts a command for each rank and, unlike torchrun, without an agent that imports torch.
TWO_RANKS = [sys.executable, str(PROGRAM.with_name("two_ranks.py"))]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def needs(name: str) -> None:
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"no {name}: pip install {name}")


@pytest.fixture
def notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    monkeypatch.setenv("NOTES", str(folder))
    return folder


def assert_arguments_arrived(notes: Path) -> None:
    found = {path.name: json.loads(path.read_text()) for path in notes.iterdir()}
    assert found == {"0.json": [WORDS, []], "1.json": [WORDS, []]}


def assert_healthy(done: Finished, notes: Path) -> None:
    assert done.status == 0, done.explain()
    assert sorted(done.stdout.split("\n"))[-2:] == ["rank 0 is done", "rank 1 is done"], done.explain()
    assert done.document is None, done.explain()
    assert done.survivors == ()
    assert_arguments_arrived(notes)


def assert_diagnosed(done: Finished, notes: Path) -> None:
    assert done.status == 124, done.explain()
    assert done.document is not None
    assert (done.document["outcome"], done.document["culprits"]) == ("hang", [1]), done.explain()
    assert done.document["cause"]["code"] == "HD101"
    assert done.survivors == ()
    assert_arguments_arrived(notes)


def test_ranks_that_coverage_measures(watch: Watch, notes: Path, tmp_path: Path) -> None:
    needs("coverage")
    data = tmp_path / "coverage"
    measured = ["coverage", "run", "--parallel-mode", f"--data-file={data}", f"--include={PROGRAM}", str(PROGRAM)]
    line = [*TWO_RANKS, sys.executable, "-m", *measured, *WORDS]
    assert_healthy(unless_torch_aborts(lambda: watch(line, stall_after=60)), notes)
    assert len(list(tmp_path.glob("coverage.*"))) >= 2  # one more for each run that torch aborted


def test_coverage_around_hangdoc(notes: Path, tmp_path: Path, mark: str) -> None:
    needs("coverage")
    line = [
        sys.executable,
        "-m",
        "coverage",
        "run",
        f"--data-file={tmp_path / 'coverage'}",
        "--include=*/hangdoc/__main__.py",
    ]
    line += ["-m", "hangdoc", "watch", "--stall-after", "4", "--on-hang", "abort", "--run-dir", str(tmp_path / "run")]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
    environment |= {MARK: mark, "HANGS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*line, "--", *TORCHRUN, str(PROGRAM), *WORDS],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 124, done.stderr
    assert "Rank 1 alone calls barrier" in " ".join(done.stderr.split())
    assert (tmp_path / "coverage").exists()
    assert survivors(mark) == ()
    assert_arguments_arrived(notes)


def test_ranks_that_viztracer_traces(watch: Watch, notes: Path, tmp_path: Path) -> None:
    needs("viztracer")
    traced = ["viztracer", "--quiet", "--tracer_entries", "1000", "--unique_output_file", "--output_dir", str(tmp_path)]
    line = [*TWO_RANKS, sys.executable, "-m", *traced, "--", str(PROGRAM), *WORDS]
    assert_healthy(unless_torch_aborts(lambda: watch(line, stall_after=60)), notes)
    traces = list(tmp_path.glob("beside_*.json"))
    assert len(traces) >= 2
    assert {len(json.loads(trace.read_text())["traceEvents"]) > 10 for trace in traces} == {True}


def test_viztracer_around_hangdoc(notes: Path, tmp_path: Path, mark: str) -> None:
    needs("viztracer")
    script = tmp_path / "notes.py"
    script.write_text("import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(7)")
    line = [sys.executable, "-m", "viztracer", "--quiet", "--output_file", str(tmp_path / "trace.json")]
    # Its own `--` first: without one it takes every option that it knows, wherever it stands.
    line += ["--", str(BIN / "hangdoc"), "watch", "--quiet", sys.executable, str(script), *WORDS]
    done = subprocess.run(
        line,
        env={**os.environ, MARK: mark},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert (done.returncode, json.loads(done.stdout)) == (7, WORDS), done.stderr
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert survivors(mark) == ()


def test_ranks_that_a_debugger_may_enter(watch: Watch, notes: Path) -> None:
    needs("debugpy")
    debugged = ["debugpy", "--listen", "127.0.0.1:0", str(PROGRAM), *WORDS]
    line = [*TWO_RANKS, sys.executable, "-Xfrozen_modules=off", "-m", *debugged]
    assert_diagnosed(watch(line, env={"HANGS": "1"}), notes)


def test_accelerate_launch(watch: Watch, notes: Path) -> None:
    needs("accelerate")
    line = [str(BIN / "accelerate"), "launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    assert_diagnosed(watch([*line, "--dynamo_backend", "no", str(PROGRAM), *WORDS], env={"HANGS": "1"}), notes)


def test_a_module_under_python_m(watch: Watch, notes: Path) -> None:
    line = [*TORCHRUN, "-m", PROGRAM.stem, *WORDS]
    done = unless_torch_aborts(lambda: watch(line, stall_after=60, env={"PYTHONPATH": str(PROGRAM.parent)}))
    assert_healthy(done, notes)


def test_deepspeeds_launcher(watch: Watch, notes: Path) -> None:
    needs("deepspeed")
    line = [str(BIN / "deepspeed"), "--num_gpus", "2", "--no_local_rank", str(PROGRAM), *WORDS]
    assert_diagnosed(watch(line, env={"HANGS": "1", "DS_ACCELERATOR": "cpu"}), notes)
