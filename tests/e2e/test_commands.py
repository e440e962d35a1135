"""diagnose, explain, guide, scenario and doctor from the command line: output and exit status."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cases import case
from conftest import MARK, marked, survivors

from hangdoc.model.catalogue import catalogue

CASE = case("uneven_batches")


@pytest.fixture
def hangdoc(tmp_path, mark):
    """Run hangdoc in an empty directory: ``hangdoc(*arguments, env=…)``."""

    def run(*arguments: object, env: dict[str, str] | None = None, deadline: float = 60):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HANGDOC_")}
        return subprocess.run(
            [sys.executable, "-m", "hangdoc", *map(str, arguments)],
            cwd=tmp_path,
            env={**clean, "COLUMNS": "100", MARK: mark, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=deadline,
            check=False,
        )

    return run


def without_traceback(done):
    assert "Traceback" not in done.stderr
    return done


# diagnose


def test_a_snapshot_is_diagnosed(hangdoc):
    done = without_traceback(hangdoc("diagnose", CASE))
    assert done.returncode == 1
    assert done.stdout.startswith("hangdoc ✖ hang · 4 ranks · ")
    assert "Rank 2 left the loop early (uneven_batches.py:41)" in done.stdout
    assert "HD102 uneven-iterations" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


def test_json_alone_on_stdout(hangdoc):
    done = hangdoc("diagnose", CASE, "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["culprits"] == [2]


def test_reports_are_written_by_suffix(hangdoc, tmp_path):
    done = hangdoc("diagnose", "--report", "a.json", "--report", "a.txt", CASE)
    assert done.returncode == 1
    assert json.loads((tmp_path / "a.json").read_text())["cause"]["code"] == "HD102"
    assert (tmp_path / "a.txt").read_text(encoding="utf-8").startswith("hangdoc ✖ hang")


def test_a_page_shows_what_the_snapshot_holds_beside_the_diagnosis(hangdoc, tmp_path):
    done = hangdoc("diagnose", "--report", "a.html", "--report", "a.md", CASE)
    assert done.returncode == 1
    assert "Stacks of all threads" in (tmp_path / "a.html").read_text(encoding="utf-8")
    assert (tmp_path / "a.md").read_text(encoding="utf-8").startswith("### ✖ hang")


def test_a_mistyped_command_and_page_get_a_suggestion(hangdoc):
    done = without_traceback(hangdoc("diagnos"))
    assert (done.returncode, "Did you mean diagnose?" in done.stderr) == (2, True)
    done = without_traceback(hangdoc("guide", "dump"))
    assert (done.returncode, "Did you mean dumps?" in done.stderr) == (2, True)


def test_the_guide_is_read_without_a_network(hangdoc):
    assert "dumps.md" in hangdoc("guide").stdout
    page = hangdoc("guide", "dumps")
    assert (page.returncode, page.stdout.startswith("# ")) == (0, True)


def test_an_unknown_format_is_refused_before_the_work(hangdoc):
    done = without_traceback(hangdoc("diagnose", CASE, "--report", "a.pdf"))
    assert done.returncode == 2
    assert ".json, .txt" in done.stderr
    assert done.stdout == ""


def test_a_report_that_cannot_be_written(hangdoc):
    done = without_traceback(hangdoc("diagnose", CASE, "--report", "none/a.json"))
    assert done.returncode == 2
    assert "cannot write none/a.json" in done.stderr


def test_ascii_output_where_the_encoding_asks_for_it(hangdoc):
    done = hangdoc("diagnose", CASE, env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 1
    assert done.stdout.isascii()
    assert done.stdout.startswith("hangdoc x hang - 4 ranks - ")


def test_a_run_directory_gives_its_latest_stall(hangdoc, tmp_path):
    run = tmp_path / ".hangdoc" / "20260101-000000-1-abcd"
    run.mkdir(parents=True)
    (run / "stall-1.hangdoc").write_bytes(b"not this one")
    shutil.copy(CASE, run / "stall-2.hangdoc")
    os.utime(run / "stall-1.hangdoc", (1, 1))
    for path in (run, run.parent):
        assert hangdoc("diagnose", path).returncode == 1


def test_the_dumps_of_flight_recorders(hangdoc, tmp_path):
    """Two ranks, written by a job itself; the second never calls the all_reduce of the first."""
    import pickle

    def entry(sequence, op, line, retired):
        return {
            "frames": [{"name": "train", "filename": "/job/train.py", "line": line}],
            "record_id": sequence, "pg_id": 0, "process_group": ("0", "default_pg"),
            "collective_seq_id": sequence, "p2p_seq_id": 0, "op_id": sequence, "profiling_name": f"gloo:{op}",
            "time_created_ns": 10**18 + sequence, "input_sizes": [[4]], "input_dtypes": ["Float"],
            "output_sizes": [[4]], "output_dtypes": ["Float"], "state": "scheduled",
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None, "retired": retired,
            "timeout_ms": 1_800_000, "is_p2p": False,
        }  # fmt: skip

    for rank, op, line in ((0, "all_reduce", 10), (1, "broadcast", 20)):
        dump = {
            "version": "2.10",
            "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}},
            "pg_status": {},
            "entries": [entry(n, "all_reduce", 10, True) for n in range(1, 6)] + [entry(6, op, line, False)],
        }
        (tmp_path / f"dump_{rank}").write_bytes(pickle.dumps(dump))
    done = without_traceback(hangdoc("diagnose", tmp_path, "--json"))
    assert done.returncode == 1, done.stderr
    document = json.loads(done.stdout)
    lines = {side["frame"]["line"] for side in document["divergence"]["sides"]}
    assert lines == {10, 20}


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("x", b"garbage", "nothing in there tells of"),
        ("x", b"", "nothing in there tells of"),
        ("x", b"{}", "nothing in there tells of"),
        ("x.hangdoc", b"garbage", "is not a hangdoc snapshot"),
        ("x.hangdoc", b"", "is empty"),
        ("x", gzip.compress(b'{"schema": "hangdoc.snapshot/9"}', mtime=0), "this version reads"),
    ],
)
def test_what_is_no_snapshot(hangdoc, tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    done = without_traceback(hangdoc("diagnose", name))
    assert done.returncode == 3
    assert words in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert done.stdout == ""


def test_a_cut_snapshot(hangdoc, tmp_path):
    (tmp_path / "cut").write_bytes(CASE.read_bytes()[:-10])
    done = without_traceback(hangdoc("diagnose", "cut"))
    assert done.returncode == 3
    assert "cut short" in done.stderr


def test_nothing_there(hangdoc, tmp_path):
    assert hangdoc("diagnose", "none").returncode == 3
    (tmp_path / "empty").mkdir()
    done = without_traceback(hangdoc("diagnose", "empty"))
    assert done.returncode == 3
    assert "neither a snapshot nor dumps" in done.stderr
    assert hangdoc("diagnose").returncode == 2


def test_names_of_files_command_no_terminal(hangdoc, tmp_path):
    folder = tmp_path / "dumps\x1b[2J\nhangdoc: all is well"
    folder.mkdir()
    (folder / "trace_\x1b]0;x\x07_0").write_bytes(b"\x80\x04broken")
    done = without_traceback(hangdoc("diagnose", folder))
    assert done.returncode == 3
    assert all(character.isprintable() or character == "\n" for character in done.stderr)
    assert [line[:8] for line in done.stderr.splitlines()] == ["hangdoc:", "  Give a"]


# explain


def test_explain_lists_all(hangdoc):
    done = hangdoc("explain")
    assert done.returncode == 0
    assert [line.split()[0] for line in done.stdout.splitlines() if line.startswith("HD")] == list(catalogue())


@pytest.mark.parametrize("code", ["HD102", "hd102", "uneven-iterations"])
def test_explain_one(hangdoc, code):
    done = hangdoc("explain", code)
    assert done.returncode == 0
    assert done.stdout.startswith("HD102 uneven-iterations\n")
    assert "hangdoc scenario run uneven_batches" in done.stdout


def test_explain_says_what_is_not_recognised_yet(hangdoc):
    """Of each kind one, if there is one: the catalogue knows which."""
    for recognised in (True, False):
        code = next((code for code, entry in catalogue().items() if entry.recognised is recognised), None)
        if code is not None:
            said = "does not recognize it yet" in " ".join(hangdoc("explain", code).stdout.split())
            assert said is not recognised


def test_explain_names_the_nearest(hangdoc):
    done = without_traceback(hangdoc("explain", "HD10\x1b[31m2"))
    assert done.returncode == 2
    assert "\x1b" not in done.stderr
    assert "Did you mean" in hangdoc("explain", "HD1022").stderr


# scenario


def test_scenarios_are_listed_and_shown(hangdoc):
    done = hangdoc("scenario", "list")
    assert done.returncode == 0
    assert "uneven_batches" in done.stdout
    shown = hangdoc("scenario", "show", "uneven_batches")
    assert shown.returncode == 0
    assert "# /// hangdoc" in shown.stdout


def test_unknown_scenarios(hangdoc):
    for command in ("show", "run"):
        done = without_traceback(hangdoc("scenario", command, "uneven_batch"))
        assert done.returncode == 2
        assert "uneven_batches" in done.stderr


@pytest.mark.timeout(400)
def test_a_scenario_runs_and_its_correction_too(hangdoc):
    """What the output says is saved can be shown again; a quiet run leaves nothing."""
    done = hangdoc("scenario", "run", "rank_guard", deadline=150)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("as expected: rank_guard\n")
    (saved,) = set(re.findall(r"hangdoc diagnose (\S+)$", done.stderr, re.MULTILINE))
    assert "hang" in hangdoc("diagnose", saved).stdout.splitlines()[0]
    temporary = Path(os.environ["TMPDIR"])
    left = set(temporary.glob("hangdoc-*"))
    fixed = hangdoc("scenario", "run", "rank_guard", "--quiet", env={"FIXED": "1"}, deadline=150)
    assert fixed.returncode == 0, fixed.stdout + fixed.stderr
    assert "rank_guard (fixed)" in fixed.stdout
    assert set(temporary.glob("hangdoc-*")) == left


def test_a_scenario_run_that_is_ended_leaves_nothing(tmp_path, mark):
    process = subprocess.Popen(
        [sys.executable, "-m", "hangdoc", "scenario", "run", "rank_guard", "--quiet"],
        env={**os.environ, MARK: mark},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + 60
    while len(marked(mark)) < 5 and time.monotonic() < deadline:  # ours, watch, torchrun and two ranks
        time.sleep(0.1)
    process.terminate()
    assert process.wait(60) == 143
    assert survivors(mark) == ()


# doctor


def test_doctor_finds_this_machine_fit(hangdoc):
    done = hangdoc("doctor", "--python", sys.executable, deadline=150)
    assert done.returncode == 0, done.stdout
    for name in ("py-spy", "sockets", "run directory", "probe", "flight recorder"):
        assert f" {name}: " in done.stdout


def test_doctor_names_what_is_missing(hangdoc):
    done = without_traceback(hangdoc("doctor", "--python", "/usr/bin/false", deadline=150))
    assert "cannot import torch" in done.stdout
    assert "--python PATH" in done.stdout
    gone = without_traceback(hangdoc("doctor", "--python", "/none/python"))
    assert gone.returncode == 3
    off = hangdoc("doctor", env={"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    assert "limited  probe: TORCH_DEVICE_BACKEND_AUTOLOAD=0" in off.stdout
